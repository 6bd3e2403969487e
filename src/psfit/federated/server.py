"""The server: it invites clients, adds their updates, and sends the sums back. It holds no data and computes no model.

One sum is one round trip: the message that asks for an update carries the result of the sum before.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from psfit.federated import messages as kinds
from psfit.federated import ring
from psfit.federated.contacts import Contacts, Exchanged, FederationError, Transport, place_facts
from psfit.federated.job import Job
from psfit.federated.link import SumResult
from psfit.federated.masks import FEWEST_CLIENTS, Place
from psfit.federated.messages import LATEST, Label, Message
from psfit.federated.recovery import RecoveryError, find_missing_masks
from psfit.federated.sum_log import SumLog

LOG = logging.getLogger("psfit.federated.server")
# Seconds between two looks at who has returned.
PAUSE = 1.0


@dataclass(frozen=True)
class ServerSettings:
    """How the server treats clients.

    Parameters
    ----------
    secure : bool, default=True
        Whether updates are masked.
    min_clients : int, default=3
        The fewest clients of a sum.
    timeout : float, default=60
        Seconds to wait for stragglers in sums of iterates, which go on without them.
    patience : float, default=3600
        Seconds to wait for clients where a sum needs all of them, and at the start.
    """

    secure: bool = True
    min_clients: int = FEWEST_CLIENTS
    timeout: float = 60.0
    patience: float = 3600.0

    def __post_init__(self) -> None:
        if self.secure and self.min_clients < FEWEST_CLIENTS:
            raise ValueError(
                f"min_clients={self.min_clients}: secure sums need at least {FEWEST_CLIENTS}; "
                "from a sum over two, each of them can compute the other's numbers"
            )
        if self.min_clients < 1 or not 0 < self.timeout <= self.patience:
            raise ValueError("min_clients must be at least 1, and 0 < timeout <= patience")


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the file of the model, what clients exchanged, the number of sums, and what happened to whom.

    `privacy` holds epsilon, delta and clip of differential privacy, if the job asked for it.
    """

    model: bytes
    exchanged: dict[str, Exchanged]
    sums: int
    absences: list[str] = field(default_factory=list)
    privacy: dict[str, float] | None = None

    def as_facts(self) -> dict[str, Any]:
        """All but the model, as JSON can hold it."""
        exchanged = {name: asdict(one) for name, one in self.exchanged.items()}
        return {"sums": self.sums, "exchanged": exchanged, "absences": self.absences, "privacy": self.privacy}


class Server:
    """Runs one job over the clients `names`."""

    def __init__(
        self, names: Sequence[str], job: Job, transport: Transport, log: SumLog, settings: ServerSettings
    ) -> None:
        if len(names) < settings.min_clients:
            raise ValueError(f"the federation has {len(names)} clients, but min_clients={settings.min_clients}")
        if len(names) > ring.MOST_CLIENTS:
            raise ValueError(f"the federation has more than {ring.MOST_CLIENTS} clients")
        self.names, self.log, self.settings = tuple(names), log, settings
        promise = job.make_privacy(settings.min_clients)
        self.privacy = None if promise is None else promise.as_facts()
        invitation = {"run": log.run, "names": list(names), "secure": settings.secure, "job": job.as_facts()}
        self.contacts = Contacts(names, transport, Message(kinds.START, invitation))
        # Who takes part in the next sum, with the keys for it, and for whom these keys were made.
        self.members: tuple[str, ...] = ()
        self.prepared_for: tuple[str, ...] = ()
        self.keys: dict[str, Message] = {}
        self.session = 0

    def run(self) -> Outcome:
        """Run the job to its end."""
        try:
            self._wait_for_all()
            outcome = None
            while outcome is None:
                if self.contacts.returned or not self.members:
                    self._open_session()
                outcome = self._make_sum()
        except FederationError as error:
            self.contacts.end(self.log.run, str(error), self.members)
            raise
        self.contacts.end(self.log.run, "the run is complete", self.members)
        return outcome

    def _wait_for_all(self) -> None:
        """The first sums need all clients: they are part of the problem itself."""
        deadline, nowhere = time.monotonic() + self.settings.patience, Place(-1, -1)
        while absent := set(self.names) - self.contacts.returned:
            self.contacts.invite(absent)
            self.contacts.collect(absent, nowhere, PAUSE, ())
            if time.monotonic() > deadline:
                names = ", ".join(sorted(absent))
                raise FederationError(f"these clients did not start within {self.settings.patience:g} s: {names}")

    def _open_session(self) -> None:
        """Begin anew with all clients that are here; with secure sums they make new keys."""
        contacts = self.contacts
        present = tuple(name for name in self.names if name in contacts.returned or name in self.members)
        place = Place(self.log.next_session(), len(self.log))
        contacts.returned.clear()
        self.session, self.members, self.prepared_for = place.session, present, present
        if self.settings.secure:
            asked = Message(kinds.KEYS, place_facts(self.log.run, place, members=list(present)))
            self.keys = contacts.ask(dict.fromkeys(present, asked), place, self.settings.timeout, [kinds.BOXES])
            self.members = tuple(name for name in present if name in self.keys)
            contacts.note_absence([name for name in present if name not in self.keys], "made no keys")

    def _make_sum(self) -> Outcome | None:
        """One sum; None if the run goes on. A sum that cannot be completed is repeated when its clients are back."""
        place, contacts, expected = Place(self.session, len(self.log)), self.contacts, (kinds.UPDATE, kinds.DONE)
        began, wait = time.monotonic(), self.settings.timeout
        replies: dict[str, Message] = {}
        if len(self.members) >= self.settings.min_clients:
            replies = contacts.ask(self._sum_requests(place), place, wait, expected)
        while True:
            label = self._agree_on_label(replies)
            absent = [name for name in self.names if name not in replies]
            if not absent or (label is not None and label.operation == LATEST and self._suffice(replies)):
                break
            if contacts.returned:
                return None
            if time.monotonic() - began > self.settings.patience:
                raise FederationError(self._describe_absent(absent))
            contacts.invite(absent)
            replies |= contacts.collect(absent, place, PAUSE, expected)
        contacts.invite(absent)
        if label is None:
            return self._finish(replies)
        self._complete(place, label, replies)
        return None

    def _sum_requests(self, place: Place) -> dict[str, Message]:
        """The requests for a sum, each with the results that its client does not have."""
        requests = {}
        for name in self.members:
            results = self.log.since(self.contacts.needs.get(name, 0))
            self.contacts.needs[name] = len(self.log)
            about = [
                {"place": [r.place.session, r.place.number], "members": list(r.members), "count": r.words.shape[1]}
                for r in results
            ]
            parts = {f"result-{r.place.number}": ring.to_bytes(r.words) for r in results}
            if self.settings.secure:
                others = (other for other in self.members if other != name)
                parts |= {f"box-{other}": self.keys[other].parts[f"box-{name}"] for other in others}
            facts = place_facts(self.log.run, place, members=list(self.members), results=about)
            requests[name] = Message(kinds.SUM, facts | {"wants_model": name == self.names[0]}, parts)
        return requests

    def _describe_absent(self, absent: list[str]) -> str:
        return (
            f"these clients were away for {self.settings.patience:g} s: {', '.join(absent)}. The answer belongs to the "
            "samples of all clients, and sums with and without a client would show its numbers, so the run ends here. "
            "Start it again from its checkpoint when they are back, or start another run without them"
        )

    def _suffice(self, replies: dict[str, Message]) -> bool:
        return len(replies) >= self.settings.min_clients

    def _complete(self, place: Place, label: Label, replies: dict[str, Message]) -> None:
        """Add the updates, keep the result, and note who takes part in the next sum."""
        total = ring.zeros(label.count)
        for reply in replies.values():
            total = ring.add(total, ring.from_bytes(reply.parts["words"], label.count))
        missing = [name for name in self.members if name not in replies]
        members = tuple(name for name in self.members if name in replies)
        self.contacts.note_absence(missing, f"sent no update {place.number}")
        if missing and self.settings.secure:
            asked = Message(kinds.SHARES, place_facts(self.log.run, place, owners=missing, members=list(self.members)))
            given = self.contacts.ask(dict.fromkeys(members, asked), place, self.settings.timeout, [kinds.GIVEN])
            try:
                masks = find_missing_masks(self.log.run, place, missing, self.prepared_for, self.keys, given, members)
            except RecoveryError as error:
                # The others try again without the missing clients, with new keys.
                LOG.warning("update %d is repeated: %s", place.number, error)
                self.members = members
                self.contacts.returned.update(members)
                return
            total = ring.add(total, masks(label.count))
        self.log.append(SumResult(place, members, total))
        self.keys = {name: replies[name] for name in members}
        self.prepared_for, self.members = self.members, members

    def _finish(self, replies: dict[str, Message]) -> Outcome:
        """The end of a run: all clients have the same answer."""
        digests = {name: reply.facts.get("digest") for name, reply in replies.items()}
        self._require_one(digests, "ended with different answers")
        model = replies[self.names[0]].parts.get("model", b"")
        return Outcome(model, self.contacts.exchanged, len(self.log), self.contacts.absences, self.privacy)

    def _agree_on_label(self, replies: dict[str, Message]) -> Label | None:
        """What the updates are for; None if the clients are done. Refuses updates that differ from the others'."""
        labels: dict[str, Label | None] = {}
        for name, reply in list(replies.items()):
            try:
                labels[name] = None if reply.kind == kinds.DONE else self._check_update(reply)
            except ValueError as error:
                self._refuse_update(name, str(error), replies)
        if len(set(labels.values())) <= 1:
            return next(iter(labels.values()), None)
        common, count = Counter(labels.values()).most_common(1)[0]
        if common is None or common.operation != LATEST or 2 * count <= len(labels):
            self._require_one(labels, "do not agree on what to compute")
        for name, label in labels.items():
            if label != common:
                self._refuse_update(name, "its update is not of the kind or size of the others'", replies)
        return common

    def _check_update(self, reply: Message) -> Label:
        label = Label.from_facts(reply.facts.get("label"))
        words = ring.from_bytes(reply.parts.get("words", b""), label.count)
        if self.settings.secure:
            others = [name for name in self.members if name != reply.facts["name"]]
            if len(str(reply.facts.get("public"))) != 64 or any(f"box-{name}" not in reply.parts for name in others):
                raise ValueError("its update lacks keys")
        elif label.operation == LATEST and ring.is_unusable(words):
            raise ValueError("its update is not finite or out of range")
        return label

    def _refuse_update(self, name: str, reason: str, replies: dict[str, Message]) -> None:
        self.contacts.note_absence([name], f"sent an update {len(self.log)} that was refused: {reason}")
        del replies[name]

    def _require_one(self, values: dict[str, Any], complaint: str) -> None:
        common, count = Counter(values.values()).most_common(1)[0]
        if count == len(values):
            return
        others = [name for name, value in values.items() if value != common] if 2 * count > len(values) else values
        raise FederationError(
            f"the clients {complaint}; {', '.join(others)} differ(s) from the others. All clients need the same "
            "version of PsFiT and columns with the same meaning"
        )
