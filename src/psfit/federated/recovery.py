"""Masks of clients whose updates did not arrive, from the shares that the other clients hold."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from psfit.federated import ring
from psfit.federated.identities import public_key
from psfit.federated.masks import Place, pair_masks, share_threshold
from psfit.federated.messages import Message
from psfit.federated.sharing import join_shares


class RecoveryError(ValueError):
    """There are not enough shares, or they are false."""


def find_missing_masks(
    run: str,
    place: Place,
    missing: Sequence[str],
    prepared_for: Sequence[str],
    keys: Mapping[str, Message],
    given: Mapping[str, Message],
    members: Sequence[str],
) -> Callable[[int], np.ndarray]:
    """What must be added to the sum over `members` so that their masks for the missing clients cancel."""
    publics = {name: bytes.fromhex(keys[name].facts["public"]) for name in members}
    privates = {}
    for owner in missing:
        holders = [name for name in prepared_for if name != owner]
        shares = {
            number: given[name].parts[f"share-{owner}"]
            for number, name in enumerate(holders, start=1)
            if name in given and f"share-{owner}" in given[name].parts
        }
        try:
            privates[owner] = join_shares(shares, share_threshold(len(prepared_for)))
        except ValueError as error:
            raise RecoveryError(f"the key of {owner}: {error}") from None
        if public_key(privates[owner]).hex() != keys[owner].facts["public"]:
            raise RecoveryError(f"the shares of the key of {owner} are false")

    def masks(count: int) -> np.ndarray:
        total = ring.zeros(count)
        for owner, private in privates.items():
            total = ring.add(total, pair_masks(run, place, owner, private, publics, count))
        return total

    return masks
