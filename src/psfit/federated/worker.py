"""A client: its data and program, and its answers to the server. It does not know how messages travel."""

import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psfit.estimators.model import SparseModel
from psfit.estimators.persistence.model_file import save
from psfit.federated import messages as kinds
from psfit.federated import ring
from psfit.federated.communicator import FederatedCommunicator
from psfit.federated.identities import Identity, Roster
from psfit.federated.job import Answer, Job, LocalData
from psfit.federated.link import ClientLink, FederationEndedError, SumResult
from psfit.federated.masks import FEWEST_CLIENTS, Keyring, MaskError, Place
from psfit.federated.messages import Message
from psfit.federated.questions import to_facts

LOG = logging.getLogger("psfit.federated.client")
# Makes the samples of this client for a job.
Reader = Callable[[Job], LocalData]


@dataclass(frozen=True)
class Policy:
    """What a client agrees to.

    Parameters
    ----------
    secure : bool
        Take part in runs with secure sums only.
    min_clients : int
        Take part in no sum over fewer clients.
    job : Job, optional
        Take part in this job only; by default in every one.
    """

    secure: bool = True
    min_clients: int = FEWEST_CLIENTS
    job: Job | None = None


class Run:
    """One run of a client: the thread of its program, its link and its keys."""

    def __init__(self, facts: dict[str, Any], identity: Identity, roster: Roster | None, read: Reader, fewest: int):
        self.name, self.id, self.secure = identity.name, str(facts["run"]), bool(facts["secure"])
        self.names = tuple(facts["names"])
        self.job, self.fewest = Job.from_facts(facts["job"]), fewest
        self.keyring = Keyring(identity, roster, self.id) if self.secure and roster is not None else None
        self.may_leave = frozenset() if roster is None else roster.may_leave
        self.link = ClientLink(self.name, self._reveal)
        self.answer: Answer | None = None
        self.digest = ""
        self.session = -1
        self.reply: tuple[Place, Message] | None = None
        self._read = read
        self.thread = threading.Thread(target=self._work, name=f"psfit-{self.name}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            data = self._read(self.job)
            classes = None if self.job.classes is None else tuple(self.job.classes)
            key = b"" if self.keyring is None else self.keyring.digest_key
            world = FederatedCommunicator(self.names.index(self.name), len(self.names), self.link, classes, key)
            # Without masks the server sees each client's numbers, so the noise of one must suffice.
            answer = self.job.work(data, world, self.fewest if self.secure else 1)
        except FederationEndedError as error:
            LOG.warning("run %s ended: %s", self.id, error)
        except Exception as error:
            # The traceback stays on this machine.
            LOG.exception("run %s failed on this client", self.id)
            self.link.fail(type(error).__name__)
        else:
            with self.link.condition:
                self.answer, self.digest = answer, world.digest
                self.link.condition.notify_all()

    def _reveal(self, result: SumResult) -> np.ndarray:
        return result.words if self.keyring is None else self.keyring.reveal(result.place, result.members, result.words)


class Worker:
    """A client that answers the messages of the server; `handle` may be called from several threads."""

    def __init__(self, identity: Identity, read: Reader, roster: Roster | None = None, policy: Policy | None = None):
        self.identity, self.roster, self.read, self.policy = identity, roster, read, policy or Policy()
        self.run: Run | None = None
        self.lock = threading.RLock()
        self.newest: Place | None = None
        # When the last message of the server came.
        self.heard = float("-inf")
        # Set when the server has ended a run.
        self.over = threading.Event()
        # Set when this client has told the server that it has the answer.
        self.reported = threading.Event()

    def handle(self, message: Message) -> Message:
        """The answer to a message of the server."""
        self.heard = time.monotonic()
        answer = {
            kinds.START: self._start,
            kinds.KEYS: self._make_keys,
            kinds.SUM: self._join_sum,
            kinds.SHARES: self._give_shares,
            kinds.END: self._end,
        }.get(message.kind)
        try:
            reply = self._refuse("unknown kind of message") if answer is None else answer(message)
        except (MaskError, KeyError, TypeError, ValueError) as error:
            LOG.warning("a message of kind %s was refused: %s", message.kind, error)
            reply = self._refuse(str(error) if isinstance(error, MaskError) else type(error).__name__)
        except Exception as error:
            # Without an answer the server would wait until its patience ends. The traceback stays on this machine.
            LOG.exception("a message of kind %s could not be answered", message.kind)
            reply = Message(kinds.FAILED, {"reason": type(error).__name__})
        about = {"name": self.identity.name} | {name: message.facts.get(name) for name in ("run", "place")}
        return Message(reply.kind, about | reply.facts, reply.parts)

    def _start(self, message: Message) -> Message:
        facts = message.facts
        objection = self._object(facts)
        if objection is not None:
            LOG.warning("run %s was refused: %s", facts.get("run"), objection)
            return Message(kinds.FAILED, {"reason": objection})
        with self.lock:
            if self.run is None or self.run.id != facts["run"]:
                try:
                    run = Run(facts, self.identity, self.roster, self.read, self.policy.min_clients)
                except ValueError as error:
                    # The server waits for nobody who cannot do this job, such as a client of an older version.
                    LOG.warning("run %s was refused: %s", facts["run"], error)
                    return Message(kinds.FAILED, {"reason": f"{type(error).__name__} at the start"})
                if self.run is not None:
                    self.run.link.end("another run has started")
                self.run, self.newest = run, None
                LOG.info("run %s started: %s", facts["run"], self.run.job.estimator)
            working_on = None if self.newest is None else [self.newest.session, self.newest.number]
            ready: dict[str, Any] = {"number": self.run.link.next_result, "working_on": working_on}
            ready["invitation"] = facts.get("invitation", 0)
            # Without masks, a client has nothing to lose by sums with and without it.
            ready["may_leave"] = None if self.run.keyring is None else sorted(self.run.may_leave)
            return Message(kinds.READY, ready)

    def _object(self, facts: dict[str, Any]) -> str | None:
        """Why this client does not take part in a run; None if it does."""
        names, policy = tuple(facts["names"]), self.policy
        if policy.secure and not facts["secure"]:
            return "this client takes part in secure sums only"
        if facts["secure"]:
            objection = "this client has no roster" if self.roster is None else self.roster.object_to(names)
            if objection is not None:
                return objection
        if self.identity.name not in names:
            return "this client is not one of the run's"
        if policy.job is not None and facts["job"] != policy.job.as_facts():
            return "the job of the run is not the one that this client agreed to"
        if len(names) < policy.min_clients:
            return f"the run has {len(names)} clients, and this client asks for at least {policy.min_clients}"
        return None

    def _make_keys(self, message: Message) -> Message:
        run, place = self._find_run(message), _read_place(message)
        if run is None or run.keyring is None:
            return Message(kinds.BEHIND, {"number": 0})
        with self.lock:
            if place.session <= run.session:
                raise MaskError("the server asks for the keys of a session that is over")
            members = self._read_members(message, run)
            run.session = place.session
            public, boxes = run.keyring.prepare(place, members)
        return Message(kinds.BOXES, {"public": public.hex()}, {f"box-{name}": box for name, box in boxes.items()})

    def _join_sum(self, message: Message) -> Message:
        run, place = self._find_run(message), _read_place(message)
        if run is None:
            return Message(kinds.BEHIND, {"number": 0})
        members = self._read_members(message, run)
        run.link.take(_read_results(message))
        if run.link.next_result < place.number:
            return Message(kinds.BEHIND, {"number": run.link.next_result})
        with self.lock:
            self.newest = place
        link = run.link
        with link.condition:
            link.condition.wait_for(lambda: self._is_decided(run, place))
            update = link.update
            if link.failure is not None:
                return Message(kinds.FAILED, {"reason": link.failure})
            if run.answer is not None:
                return self._report_done(run, bool(message.facts.get("wants_model")))
            if self.newest != place or update is None:
                return self._refuse("a newer message has replaced this one")
        with self.lock:
            return self._make_update(run, place, members, message)

    def _read_members(self, message: Message, run: Run) -> list[str]:
        """The clients of a sum; refuses a list that would hide a sum over too few."""
        members = [str(name) for name in message.facts["members"]]
        known = set(members) <= set(run.names) and run.name in members and len(set(members)) == len(members)
        if not known or len(members) < self.policy.min_clients:
            raise MaskError(f"a sum over {len(set(members))} clients is not allowed here")
        return members

    def _is_decided(self, run: Run, place: Place) -> bool:
        link = run.link
        waits = link.update is not None and link.update.number == place.number and place.number not in link.results
        ended = link.failure is not None or run.answer is not None
        return waits or ended or self.newest != place or self.run is not run

    def _make_update(self, run: Run, place: Place, members: list[str], message: Message) -> Message:
        if run.reply is not None and run.reply[0] == place:
            return run.reply[1]
        update = run.link.update
        if update is None or update.number != place.number:
            return self._refuse("a newer message has replaced this one")
        if not update.finite:
            # The other clients go on with the last numbers of this one that were finite.
            LOG.warning("run %s: update %d is not finite and was not sent", run.id, place.number)
            return self._refuse("its update is not finite")
        words = update.words
        facts: dict[str, Any] = {"label": update.label.as_facts()}
        parts: dict[str, bytes] = {}
        if run.keyring is not None:
            boxes = {name: message.parts[f"box-{name}"] for name in members if name != run.name}
            run.keyring.receive(place, boxes)
            words = run.keyring.hide(place, members, words)
            public, boxes = run.keyring.prepare(Place(place.session, place.number + 1), members)
            facts["public"] = public.hex()
            parts = {f"box-{name}": box for name, box in boxes.items()}
        run.reply = place, Message(kinds.UPDATE, facts, {"words": ring.to_bytes(words)} | parts)
        return run.reply[1]

    def _report_done(self, run: Run, wants_model: bool) -> Message:
        self.reported.set()
        parts = {}
        if wants_model and run.answer is not None:
            parts["model"] = pack_model(run.answer.model)
            if run.answer.found:
                found = {kind: to_facts(one) for kind, one in run.answer.found.items()}
                parts["answers"] = json.dumps(found).encode()
        return Message(kinds.DONE, {"digest": run.digest}, parts)

    def _give_shares(self, message: Message) -> Message:
        run, place, facts = self._find_run(message), _read_place(message), message.facts
        if run is None or run.keyring is None:
            return Message(kinds.BEHIND, {"number": 0})
        with self.lock:
            shares = run.keyring.give_shares(place, facts["owners"], self.policy.min_clients)
        LOG.info("run %s: shares of %s were given for message %d", run.id, ", ".join(shares), place.number)
        return Message(kinds.GIVEN, {}, {f"share-{name}": share for name, share in shares.items()})

    def _end(self, message: Message) -> Message:
        run = self._find_run(message)
        if run is not None:
            run.link.end(str(message.facts.get("reason", "the server has ended the run")))
            LOG.info("run %s is over", run.id)
            self.over.set()
        return Message(kinds.ENDED)

    def _find_run(self, message: Message) -> Run | None:
        run = self.run
        return run if run is not None and run.id == message.facts.get("run") else None

    def _refuse(self, reason: str) -> Message:
        return Message(kinds.REFUSED, {"reason": reason})


def pack_model(model: SparseModel) -> bytes:
    """The model's file as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.psfit")
        save(model, path)
        return path.read_bytes()


def _read_place(message: Message) -> Place:
    session, number = message.facts["place"]
    return Place(int(session), int(number))


def _read_results(message: Message) -> list[SumResult]:
    results = []
    for facts in message.facts.get("results", []):
        place, data = Place(*map(int, facts["place"])), message.parts[f"result-{int(facts['place'][1])}"]
        results.append(SumResult(place, tuple(facts["members"]), ring.from_bytes(data, int(facts["count"]))))
    return results
