"""What the server accepts of clients: updates of one kind and size, whole sets of keys, one answer."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from psfit.federated import messages as kinds
from psfit.federated import ring
from psfit.federated.contacts import FederationError
from psfit.federated.masks import BOX_BYTES
from psfit.federated.messages import LATEST, Label, Message

PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")


def agree_on_label(
    replies: dict[str, Message], members: Sequence[str], secure: bool, refuse: Callable[[str, str], None]
) -> Label | None:
    """What the updates are for; None if the clients are done. Refused updates are taken out of `replies`."""
    labels: dict[str, Label | None] = {}

    def drop(name: str, reason: str) -> None:
        refuse(name, reason)
        del replies[name]

    for name, reply in list(replies.items()):
        try:
            labels[name] = None if reply.kind == kinds.DONE else _check_update(name, reply, members, secure)
        except ValueError as error:
            drop(name, str(error))
    if len(set(labels.values())) <= 1:
        return next(iter(labels.values()), None)
    common, count = Counter(labels.values()).most_common(1)[0]
    if common is None or common.operation != LATEST or 2 * count <= len(labels):
        require_one(labels, "do not agree on what to compute")
    for name, label in labels.items():
        if label != common:
            drop(name, "its update is not of the kind or size of the others'")
    return common


def holds_keys(name: str, reply: Message, members: Sequence[str]) -> bool:
    """Whether a reply holds a public key and a sealed box for each other member."""
    boxes = (reply.parts.get(f"box-{other}", b"") for other in members if other != name)
    return bool(PUBLIC_KEY.fullmatch(str(reply.facts.get("public")))) and all(len(box) == BOX_BYTES for box in boxes)


def require_one(values: dict[str, Any], complaint: str) -> None:
    """End the run if the values of clients differ, and name those that do."""
    common, count = Counter(values.values()).most_common(1)[0]
    if count == len(values):
        return
    others = [name for name, value in values.items() if value != common] if 2 * count > len(values) else values
    raise FederationError(
        f"the clients {complaint}; {', '.join(others)} differ(s) from the others. All clients need the same "
        "version of PsFiT and columns with the same meaning"
    )


def _check_update(name: str, reply: Message, members: Sequence[str], secure: bool) -> Label:
    label = Label.from_facts(reply.facts.get("label"))
    words = ring.from_bytes(reply.parts.get("words", b""), label.count)
    if secure and not holds_keys(name, reply, members):
        raise ValueError("its update lacks keys")
    if not secure and label.operation == LATEST and ring.is_unusable(words):
        raise ValueError("its update is not finite or out of range")
    return label
