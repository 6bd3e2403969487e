"""Who is there: invitations, questions to clients and their replies, and what each client has exchanged."""

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from psfit.federated import messages as kinds
from psfit.federated.masks import Place
from psfit.federated.messages import Message

LOG = logging.getLogger("psfit.federated.server")
# Seconds between two invitations of a client that is not there.
INVITATION_PAUSE = 2.0
# Seconds to wait until clients know that a run is over.
LAST_WAIT = 30.0


class FederationError(RuntimeError):
    """A run cannot go on; the message names the clients and the remedy."""


class Transport(Protocol):
    """How messages travel between the server and the clients."""

    def send(self, name: str, message: Message) -> None:
        """Send a message to a client; it may get lost."""

    def receive(self, timeout: float) -> tuple[str, Message] | None:
        """The next reply of any client; None if none arrives in time."""


@dataclass
class Exchanged:
    """What one client has exchanged with the server: sums, bytes of payload each way, and bytes of headers."""

    sums: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    header_bytes: int = 0


class Contacts:
    """The server's connections to the clients `names`.

    Attributes
    ----------
    returned : set of str
        Clients that have (re)joined and wait for a session.
    needs : dict of str
        The number of the first result that each client does not have.
    absences : list of str
        What happened to clients, in order.
    """

    def __init__(self, names: Sequence[str], transport: Transport, invitation: Message, absences: list[str]) -> None:
        self.names, self.transport, self.invitation = tuple(names), transport, invitation
        self.exchanged = {name: Exchanged() for name in names}
        self.returned: set[str] = set()
        self.needs: dict[str, int] = {}
        self.absences = absences
        # Whom the roster of each client allows to leave; None means everybody.
        self._may_leave: dict[str, set[str] | None] = {}
        # When each client was last heard of.
        self._heard = dict.fromkeys(names, float("-inf"))
        self._invited: dict[str, float] = {}
        # The number of the last invitation of each client, and the last one whose answer says nothing any more.
        self._invitations = dict.fromkeys(names, 0)
        self._outdated = dict.fromkeys(names, 0)

    def ask(
        self, requests: Mapping[str, Message], place: Place, timeout: float, expected: Sequence[str]
    ) -> dict[str, Message]:
        """Send requests, and collect the replies that arrive in time."""
        for name, request in requests.items():
            self._outdated[name] = self._invitations[name]
            self._send(name, request)
            self.exchanged[name].sums += request.kind == kinds.SUM
        return self.collect(requests, place, timeout, expected)

    def collect(
        self, names: Iterable[str], place: Place, timeout: float, expected: Sequence[str]
    ) -> dict[str, Message]:
        """The replies of the expected kinds that arrive in time; ends early if no more can come."""
        replies: dict[str, Message] = {}
        waiting, deadline = set(names), time.monotonic() + timeout
        while waiting and (left := deadline - time.monotonic()) > 0:
            received = self.transport.receive(left)
            if received is None:
                break
            name, reply = received
            if name not in self.exchanged:
                LOG.warning("a reply of an unknown client was refused")
                continue
            if reply.facts.get("run") != self.invitation.facts["run"]:
                LOG.warning("client %s answered a message of another run", name)
                continue
            self._count(name, reply)
            fits = reply.facts.get("place") == [place.session, place.number]
            if reply.kind == kinds.FAILED:
                raise FederationError(
                    f"client {name} cannot go on: {reply.facts.get('reason')}; its own log says more. Correct it, and "
                    "start the run again"
                )
            if reply.kind in (kinds.READY, kinds.BEHIND):
                self._note_return(name, reply, place)
                waiting -= self.returned
            elif fits and reply.kind in expected:
                replies[name] = reply
                waiting.discard(name)
            elif fits and reply.kind == kinds.REFUSED:
                self.note_absence([name], f"did not answer: {reply.facts.get('reason')}")
                waiting.discard(name)
        return replies

    def invite(self, names: Iterable[str]) -> None:
        """Ask clients to join, if they have not been asked just now."""
        now = time.monotonic()
        for name in names:
            if now - self._invited.get(name, -INVITATION_PAUSE) >= INVITATION_PAUSE:
                self._invited[name] = now
                self._invitations[name] += 1
                facts = self.invitation.facts | {"invitation": self._invitations[name]}
                self._send(name, Message(self.invitation.kind, facts))

    def find_lost(self, names: Iterable[str], since: float, patience: float) -> list[str]:
        """Those of the clients that have not been heard of for so long; one that only computes long is not lost."""
        now = time.monotonic()
        return [name for name in names if now - max(since, self._heard[name]) > patience]

    def allow_leaving(self, names: Iterable[str]) -> bool:
        """Whether the rosters of all clients that are here allow to go on without these."""
        leaving = set(names)
        lists = [allowed for name, allowed in self._may_leave.items() if name not in leaving]
        return bool(lists) and all(allowed is None or leaving <= allowed for allowed in lists)

    def dismiss(self, run: str, reason: str, names: Iterable[str]) -> None:
        """Tell clients, if they can be reached, that the run is over for them."""
        for name in names:
            self._send(name, Message(kinds.END, place_facts(run, Place(-1, -1), reason=reason)))

    def end(self, run: str, reason: str, present: Iterable[str]) -> None:
        """Tell all clients that the run is over, and wait a while until those that are present know."""
        self.dismiss(run, reason, self.names)
        with contextlib.suppress(FederationError):
            self.collect(present, Place(-1, -1), LAST_WAIT, [kinds.ENDED])

    def note_absence(self, names: Iterable[str], why: str) -> None:
        """Keep what happened to clients."""
        for name in names:
            LOG.warning("client %s %s", name, why)
            self.absences.append(f"{name} {why}")

    def _note_return(self, name: str, reply: Message, place: Place) -> None:
        # A client that still works on this very sum is slow, but has not been away. Answers to old invitations arrive
        # late, when the client has long been asked for more.
        invitation = reply.facts.get("invitation")
        if reply.kind == kinds.READY:
            allowed = reply.facts.get("may_leave", [])
            self._may_leave[name] = set(map(str, allowed)) if isinstance(allowed, list) else None
        old = reply.kind == kinds.READY and not (isinstance(invitation, int) and invitation > self._outdated[name])
        if old or reply.facts.get("working_on") == [place.session, place.number]:
            return
        number = reply.facts.get("number")
        if isinstance(number, int) and number >= 0:
            self.needs[name] = number
            self.returned.add(name)

    def _send(self, name: str, message: Message) -> None:
        self.exchanged[name].sent_bytes += message.payload_bytes
        self.exchanged[name].header_bytes += message.header_bytes
        self.transport.send(name, message)

    def _count(self, name: str, reply: Message) -> None:
        self._heard[name] = time.monotonic()
        self.exchanged[name].received_bytes += reply.payload_bytes
        self.exchanged[name].header_bytes += reply.header_bytes


def place_facts(run: str, place: Place, **facts: Any) -> dict[str, Any]:
    """The facts of a request that belongs to one sum."""
    return {"run": run, "place": [place.session, place.number]} | facts
