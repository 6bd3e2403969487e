"""The server: it invites clients, adds their updates, and sends the sums back. It holds no data and computes no model.

One sum is one round trip: the message that asks for an update carries the result of the sum before.
"""

import json
import logging
import time
from collections.abc import Sequence

from psfit.federated import messages as kinds
from psfit.federated import ring
from psfit.federated.contacts import Contacts, FederationError, Transport, place_facts
from psfit.federated.job import Job
from psfit.federated.link import SumResult
from psfit.federated.masks import Place
from psfit.federated.messages import LATEST, Label, Message
from psfit.federated.recovery import RecoveryError, find_missing_masks
from psfit.federated.settings import Outcome, ServerSettings
from psfit.federated.sum_log import SumLog
from psfit.federated.updates import agree_on_label, holds_keys, require_one

LOG = logging.getLogger("psfit.federated.server")
# Seconds between two looks at who has returned.
PAUSE = 1.0


class LeaveError(Exception):
    """Clients have been away for longer than the server waits."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


class Server:
    """Runs one job over the clients `names`."""

    def __init__(
        self, names: Sequence[str], job: Job, transport: Transport, log: SumLog, settings: ServerSettings
    ) -> None:
        if len(names) < settings.min_clients:
            raise ValueError(f"the federation has {len(names)} clients, but min_clients={settings.min_clients}")
        if len(names) > ring.MOST_CLIENTS:
            raise ValueError(f"the federation has more than {ring.MOST_CLIENTS} clients")
        self.job, self.transport, self.log, self.settings = job, transport, log, settings
        promise = job.make_privacy(settings.min_clients)
        self.privacy = None if promise is None else promise.as_facts()
        self.absences: list[str] = []
        self._begin([name for name in names if name not in log.left])

    def _begin(self, names: Sequence[str]) -> None:
        """Prepare a fit over the clients `names`, from its first sum on or from the sums in the log."""
        self.names = tuple(names)
        facts = {"run": self.log.run, "names": list(names), "secure": self.settings.secure, "job": self.job.as_facts()}
        self.contacts = Contacts(names, self.transport, Message(kinds.START, facts), self.absences)
        # Who takes part in the next sum, with the keys for it, and for whom these keys were made.
        self.members: tuple[str, ...] = ()
        self.prepared_for: tuple[str, ...] = ()
        self.keys: dict[str, Message] = {}
        self.session = 0

    def run(self) -> Outcome:
        """Run the job to its end; if clients leave, over the others."""
        try:
            while True:
                try:
                    outcome = self._run_among_names()
                    break
                except LeaveError as left:
                    self._go_on_without(left.names)
        except FederationError as error:
            self.contacts.end(self.log.run, str(error), self.members)
            raise
        self.contacts.end(self.log.run, "the run is complete", self.members)
        return outcome

    def _run_among_names(self) -> Outcome:
        self._wait_for_all()
        outcome = None
        while outcome is None:
            if self.contacts.returned or not self.members:
                self._open_session()
            outcome = self._make_sum()
        return outcome

    def _go_on_without(self, absent: Sequence[str]) -> None:
        """Begin anew over the clients that are there: no answer contains sums with and sums without those that left."""
        stay, named = [name for name in self.names if name not in absent], ", ".join(absent)
        waited = f"these clients were away for {self.settings.patience:g} s: {named}"
        if len(stay) < self.settings.min_clients:
            raise FederationError(
                f"{waited}. The other {len(stay)} are fewer than min_clients={self.settings.min_clients}. Start the "
                "run again from its checkpoint when they are back"
            )
        if not self.contacts.allow_leaving(absent):
            raise FederationError(
                f"{waited}. The roster does not allow to go on without them: sums with and without a client show its "
                "numbers to the others. Start the run again from its checkpoint when they are back, or another run "
                "without them"
            )
        if self.privacy is not None and len(self.log):
            raise FederationError(
                f"{waited}. The noisy sum over all clients is known already; another one without them would spend "
                "epsilon a second time. Start the run again from its checkpoint when they are back"
            )
        self.contacts.note_absence(absent, f"left; the fit begins anew over {', '.join(stay)}")
        self.contacts.dismiss(self.log.run, f"the run goes on without {named}", absent)
        self.log.leave_out(absent)
        self._begin(stay)

    def _wait_for_all(self) -> None:
        """The first sums need all clients: they are part of the problem itself."""
        began, nowhere = time.monotonic(), Place(-1, -1)
        while absent := set(self.names) - self.contacts.returned:
            self.contacts.invite(absent)
            self.contacts.collect(absent, nowhere, PAUSE, ())
            if lost := self.contacts.find_lost(sorted(absent), began, self.settings.patience):
                raise LeaveError(lost)

    def _open_session(self) -> None:
        """Begin anew with all clients that are here; with secure sums they make new keys."""
        contacts = self.contacts
        present = tuple(name for name in self.names if name in contacts.returned or name in self.members)
        place = Place(self.log.next_session(), len(self.log))
        contacts.returned.clear()
        self.session, self.members, self.prepared_for = place.session, present, present
        if self.settings.secure:
            asked = Message(kinds.KEYS, place_facts(self.log.run, place, members=list(present)))
            made = contacts.ask(dict.fromkeys(present, asked), place, self.settings.timeout, [kinds.BOXES])
            self.keys = {name: reply for name, reply in made.items() if holds_keys(name, reply, present)}
            self.members = tuple(name for name in present if name in self.keys)
            contacts.note_absence([name for name in present if name not in self.keys], "made no keys")

    def _make_sum(self) -> Outcome | None:
        """One sum; None if the run goes on. A sum that cannot be completed is repeated when its clients are back."""
        place, contacts, expected = Place(self.session, len(self.log)), self.contacts, (kinds.UPDATE, kinds.DONE)
        began = time.monotonic()
        replies: dict[str, Message] = {}
        if len(self.members) >= self.settings.min_clients:
            replies = contacts.ask(self._sum_requests(place), place, self.settings.timeout, expected)
        while True:
            label = agree_on_label(replies, self.members, self.settings.secure, self._note_refusal)
            absent = [name for name in self.names if name not in replies]
            if not absent or (label is not None and label.operation == LATEST and self._suffice(replies)):
                break
            if contacts.returned:
                return None
            lost = contacts.find_lost(absent, began, self.settings.patience)
            complete = label is None and self._suffice(replies)
            if lost and not complete:
                raise LeaveError(lost)
            if lost == absent:
                # The answer is complete. The first of those that have it gives the model.
                self.members = tuple(name for name in self.names if name in replies)
                if "model" not in replies[self.members[0]].parts:
                    request = {self.members[0]: self._sum_requests(place)[self.members[0]]}
                    replies |= contacts.ask(request, place, self.settings.timeout, [kinds.DONE])
                if "model" in replies[self.members[0]].parts:
                    break
                return None
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
            requests[name] = Message(kinds.SUM, facts | {"wants_model": name == self.members[0]}, parts)
        return requests

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
            asked = Message(kinds.SHARES, place_facts(self.log.run, place, owners=missing))
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
        """The end of a run: all clients have the same answer. The server has it from the first of them."""
        digests = {name: reply.facts.get("digest") for name, reply in replies.items()}
        require_one(digests, "ended with different answers")
        parts = replies[self.members[0]].parts
        try:
            answers = json.loads(parts.get("answers", b"{}"))
        except ValueError:
            raise FederationError(f"client {self.members[0]} sent answers that are no JSON") from None
        return Outcome(
            parts.get("model", b""),
            self.names,
            self.log.left,
            self.contacts.exchanged,
            len(self.log),
            self.absences,
            self.privacy,
            answers,
        )

    def _note_refusal(self, name: str, reason: str) -> None:
        self.contacts.note_absence([name], f"sent an update {len(self.log)} that was refused: {reason}")
