"""What server and clients send to each other; nothing here depends on how it travels."""

import json
from dataclasses import dataclass, field
from typing import Any

# Kinds of messages of the server: begin or rejoin a run; make keys; take part in a sum; give shares; the run is over.
START, KEYS, SUM, SHARES, END = "start", "keys", "sum", "shares", "end"
# Kinds of replies of a client.
READY, BOXES, UPDATE, GIVEN, DONE, BEHIND, FAILED, REFUSED, ENDED = (
    "ready",
    "boxes",
    "update",
    "given",
    "done",
    "behind",
    "failed",
    "refused",
    "ended",
)


@dataclass(frozen=True)
class Message:
    """A kind, facts that JSON can hold, and named parts of bytes."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)

    @property
    def payload_bytes(self) -> int:
        """The bytes of all parts: what the model of the traffic counts."""
        return sum(len(part) for part in self.parts.values())

    @property
    def header_bytes(self) -> int:
        """The bytes of the facts and of the names of the parts."""
        return len(json.dumps(self.facts)) + sum(len(name) for name in self.parts)

    def pack(self) -> bytes:
        """The message as bytes."""
        sizes = {name: len(part) for name, part in self.parts.items()}
        head = json.dumps({"kind": self.kind, "facts": self.facts, "sizes": sizes}).encode()
        return len(head).to_bytes(4) + head + b"".join(self.parts.values())

    @classmethod
    def unpack(cls, data: bytes) -> "Message":
        """The message in these bytes; raises ValueError if they hold none."""
        end = 4 + int.from_bytes(data[:4])
        try:
            head = json.loads(data[4:end])
            kind, facts, sizes = str(head["kind"]), dict(head["facts"]), dict(head["sizes"])
            lengths = [int(size) for size in sizes.values()]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise ValueError("these bytes hold no message of a federation") from None
        if min(lengths, default=0) < 0 or end + sum(lengths) != len(data):
            raise ValueError("a message says that its parts are longer or shorter than they are")
        parts = {}
        for name, length in zip(sizes, lengths, strict=True):
            parts[name], end = data[end : end + length], end + length
        return cls(kind, facts, parts)


@dataclass(frozen=True)
class Label:
    """What a message is for; all clients of a sum must send the same.

    `digest` covers all that the client has computed and all that clients must have in common so far.
    """

    operation: str
    count: int
    phase: str
    digest: str

    def as_facts(self) -> dict[str, Any]:
        """The label as JSON can hold it."""
        return vars(self).copy()

    @classmethod
    def from_facts(cls, facts: Any) -> "Label":
        """The label in facts; raises ValueError if there is none."""
        try:
            label = cls(str(facts["operation"]), int(facts["count"]), str(facts["phase"]), str(facts["digest"]))
        except (TypeError, KeyError, ValueError, OverflowError):
            raise ValueError("an update without a label") from None
        if label.count < 0:
            raise ValueError("an update with a negative number of numbers")
        return label


# The operation in which the last update of a client that does not answer may stand for the missing one.
LATEST = "latest"
