"""Masks that hide a client's numbers in a sum.

For message k of a session client i sends ``v_i + g_i + sum_j +-m_ij`` modulo 2^256, where

- m_ij is known to clients i and j alone and cancels in the sum. Its key comes from X25519 keys that both have made for
  this one message. The public keys travel with the message before, sealed for each receiver with the keys of the
  pinned identities, so that the server cannot replace them.
- g_i comes from the secret that all clients share and the server does not have. Clients remove it from the sum.

Each private key of a message is divided into Shamir shares for the other clients. If client i does not send its
message, enough shares give the masks that are missing in the sum: those of this one message.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from psfit.federated import ring
from psfit.federated.identities import (
    KEY_BYTES,
    Identity,
    Roster,
    agree_on_key,
    derive_key,
    make_private_key,
    public_key,
)
from psfit.federated.requirements import import_cryptography
from psfit.federated.sharing import SHARE_BYTES, split_secret

NONCE_BYTES = 12
TAG_BYTES = 16
# A sealed box holds a public key and a share.
BOX_BYTES = NONCE_BYTES + KEY_BYTES + SHARE_BYTES + TAG_BYTES
# A sum over two clients shows each of them the other's numbers.
FEWEST_CLIENTS = 3


class MaskError(RuntimeError):
    """Keys are missing or false, or the server asks for what would show a single client's numbers."""


@dataclass(frozen=True, order=True)
class Place:
    """A message of a run: its session of keys and its number."""

    session: int
    number: int

    def purpose(self, run: str, use: str, *names: str) -> str:
        """The text that binds a key to one run, message and use."""
        return "|".join([use, run, str(self.session), str(self.number), *names])


@dataclass
class _MessageKeys:
    """One client's keys for one message: its own, and what it has received from the others."""

    private: bytes
    publics: dict[str, bytes] = field(default_factory=dict)
    shares: dict[str, bytes] = field(default_factory=dict)
    # The clients of the sum for which this client has sent its numbers; and those whose shares it has given away.
    members: frozenset[str] = frozenset()
    given: set[str] = field(default_factory=set)


class Keyring:
    """The keys of one client in one run."""

    def __init__(self, identity: Identity, roster: Roster, run: str) -> None:
        roster.require(identity)
        self.name, self.run = identity.name, run
        others = {name: key for name, key in roster.keys.items() if name != identity.name}
        self._box_keys = {
            name: agree_on_key(identity.private, key, f"box|{run}|{'|'.join(sorted((name, identity.name)))}")
            for name, key in others.items()
        }
        self._group_key = derive_key(roster.secret, f"group|{run}")
        self.digest_key = derive_key(roster.secret, f"digest|{run}")
        self._keys: dict[Place, _MessageKeys] = {}

    def prepare(self, place: Place, members: Sequence[str]) -> tuple[bytes, dict[str, bytes]]:
        """Make the keys of a message: the public key, and a sealed box for each other member."""
        private = make_private_key()
        self._forget_before(place)
        self._keys[place] = _MessageKeys(private)
        public, others = public_key(private), [name for name in members if name != self.name]
        shares = split_secret(private, len(others), share_threshold(len(members)))
        boxes = {}
        for name, share in zip(others, shares, strict=True):
            nonce = os.urandom(NONCE_BYTES)
            cipher = import_cryptography().ChaCha20Poly1305(self._box_keys[name])
            about = place.purpose(self.run, "box", self.name, name).encode()
            boxes[name] = nonce + cipher.encrypt(nonce, public + share, about)
        return public, boxes

    def receive(self, place: Place, boxes: Mapping[str, bytes]) -> None:
        """Open the boxes of the other members."""
        if place not in self._keys:
            raise MaskError(f"no keys were made for message {place.number} of session {place.session}")
        for name, box in boxes.items():
            cipher = import_cryptography().ChaCha20Poly1305(self._box_keys[name])
            about = place.purpose(self.run, "box", name, self.name).encode()
            try:
                content = cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], about)
            except import_cryptography().InvalidTag:
                raise MaskError(
                    f"the keys of client {name!r} are not sealed with the key that the roster pins"
                ) from None
            self._keys[place].publics[name] = content[:KEY_BYTES]
            self._keys[place].shares[name] = content[KEY_BYTES:]

    def hide(self, place: Place, members: Sequence[str], words: np.ndarray) -> np.ndarray:
        """The masked form of a client's numbers for a sum over `members`."""
        keys, count = self._keys[place], words.shape[1]
        missing = [name for name in members if name != self.name and name not in keys.publics]
        if missing:
            raise MaskError(f"the keys of {', '.join(missing)} are missing")
        if keys.members:
            raise MaskError(f"the masks of message {place.number} of session {place.session} have been used")
        keys.members = frozenset(members)
        publics = {name: keys.publics[name] for name in members if name != self.name}
        masked = ring.add(words, pair_masks(self.run, place, self.name, keys.private, publics, count))
        return ring.add(masked, self._group_mask(place, self.name, count))

    def reveal(self, place: Place, members: Iterable[str], words: np.ndarray) -> np.ndarray:
        """The sum over `members`, from the sum of their masked numbers."""
        for name in members:
            words = ring.subtract(words, self._group_mask(place, name, words.shape[1]))
        return words

    def give_shares(self, place: Place, owners: Sequence[str], fewest: int) -> dict[str, bytes]:
        """Give away the shares of clients whose message did not arrive, if enough others remain; each only once.

        The server's word does not count: the members are those of the sum to which this client has sent its numbers,
        and all clients whose shares were asked for at this message are missing together.
        """
        keys = self._keys.get(place)
        if keys is None or not keys.members or any(name not in keys.shares for name in owners):
            raise MaskError(f"the shares of {', '.join(owners)} for message {place.number} are gone or given already")
        missing = keys.given | set(owners)
        if self.name in missing or len(keys.members - missing) < max(fewest, FEWEST_CLIENTS):
            raise MaskError(f"a sum without {', '.join(sorted(missing))} would have fewer than {fewest} clients")
        keys.given = missing
        return {name: keys.shares.pop(name) for name in set(owners)}

    def _group_mask(self, place: Place, name: str, count: int) -> np.ndarray:
        key = derive_key(self._group_key, place.purpose(self.run, "group", name))
        return make_stream(key, place.number, count)

    def _forget_before(self, place: Place) -> None:
        """Keep the keys of the message before only, in case that it is still needed."""
        self._keys = {old: keys for old, keys in self._keys.items() if old >= Place(place.session, place.number - 1)}


def share_threshold(members: int) -> int:
    """How many shares give a key: more than half of the members."""
    return members // 2 + 1


def pair_masks(
    run: str, place: Place, name: str, private: bytes, publics: Mapping[str, bytes], count: int
) -> np.ndarray:
    """The sum of the masks that client `name` adds for the clients with these public keys."""
    total = ring.zeros(count)
    for other, public in publics.items():
        key = agree_on_key(private, public, place.purpose(run, "mask", *sorted((name, other))))
        mask = make_stream(key, place.number, count)
        total = ring.add(total, mask) if name < other else ring.subtract(total, mask)
    return total


def make_stream(key: bytes, counter: int, count: int) -> np.ndarray:
    """So many uniform numbers from a key: the ChaCha20 stream whose nonce is the number of the message."""
    tools = import_cryptography()
    nonce = bytes(8) + counter.to_bytes(8, "little")
    data = tools.Cipher(tools.ChaCha20(key, nonce), mode=None).encryptor().update(bytes(ring.BYTES * count))
    return ring.from_bytes(data, count)
