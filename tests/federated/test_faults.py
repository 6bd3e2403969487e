"""Clients and servers that fail: killed and started again, slow, or sending what they must not."""

import os
import signal
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import psfit
from psfit.federated import FederationError, Job, LocalData, ServerSettings, ring, simulate
from psfit.federated.masks import BOX_BYTES
from psfit.federated.messages import Message
from psfit.federated.server import Server
from psfit.federated.simulation import PipeTransport, make_members, unpack_model
from psfit.federated.sum_log import LogError, SumLog
from psfit.federated.updates import agree_on_label

NAMES = ("a", "b", "c", "d")
JOB = Job("SparseLinearRegression", {"kappa": 3})
SETTINGS = ServerSettings(timeout=1.0, patience=60.0)
# For clients that never return. Those that do must answer within the patience, also on a busy machine.
HASTY = ServerSettings(timeout=1.0, patience=4.0)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 8))
    y = X @ [2, 0, -1, 0, 0, 1.5, 0, 0] + rng.normal(size=120)
    data = {name: LocalData(X[k::4], y[k::4]) for k, name in enumerate(NAMES)}
    return data, psfit.SparseLinearRegression(3).fit(X, y)


def assert_same(model, pooled):
    assert model.objective_ == pytest.approx(pooled.objective_, rel=1e-6)
    assert model.support_.tolist() == pooled.support_.tolist()


class Failing(PipeTransport):
    """Does something to client d at certain updates of iterations; `plan` maps their order to what is done."""

    plan = None

    def __init__(self, members):
        super().__init__(members)
        self.seen = set()
        self.requests = []

    def send(self, name, message):
        if message.kind == "shares":
            self.requests.append((name, tuple(message.facts["place"]), tuple(message.facts["owners"])))
        super().send(name, message)

    def receive(self, timeout):
        received = super().receive(timeout)
        if received is None or received[1].kind != "update":
            return received
        name, reply = received
        if reply.facts["label"]["operation"] == "latest":
            self.seen.add(reply.facts["place"][1])
            action = self.plan.get(len(self.seen)) if name == "a" else None
            if action is not None:
                del self.plan[len(self.seen)]
                action(self)
            if name == "d" and self.plan.get("tamper"):
                return name, self.plan["tamper"].pop(0)(reply)
        return received


def test_a_client_that_is_killed_and_comes_back_changes_nothing(problem):
    data, pooled = problem
    transports = []

    class Watched(Failing):
        plan: ClassVar = {5: lambda self: self.kill("d"), 9: lambda self: self.start("d")}

        def __init__(self, members):
            transports.append(self)
            super().__init__(members)

    found = simulate(JOB, data, SETTINGS, connect=Watched)
    assert_same(found.model, pooled)
    # The iteration went on without d. Each of the others was asked for its share of a key once, and keys belong to one
    # message; a busy machine may miss d at more than one of them.
    assert any(text.startswith("d sent no update") for text in found.outcome.absences)
    requests = transports[0].requests
    assert {(name, owners) for name, _, owners in requests} >= {(name, ("d",)) for name in "abc"}
    assert len(set(requests)) == len(requests)


def test_a_client_that_comes_late_and_then_is_slow_changes_nothing(problem):
    data, pooled = problem

    class Slow(Failing):
        plan: ClassVar = {
            5: lambda self: os.kill(self.processes["d"].pid, signal.SIGSTOP),
            9: lambda self: os.kill(self.processes["d"].pid, signal.SIGCONT),
        }

        def __init__(self, members):
            super().__init__(members)
            self.kill("d")
            self.invitations = 0

        def send(self, name, message):
            self.invitations += (name, message.kind) == ("d", "start")
            if self.invitations == 2 and "d" in self._killed:
                self.start("d")
            super().send(name, message)

    found = simulate(JOB, data, SETTINGS, connect=Slow)
    assert_same(found.model, pooled)
    assert found.outcome.clients == NAMES
    # Its late update was not added: the sum was complete without it.
    assert any(text.startswith("d sent no update") for text in found.outcome.absences)


def test_messages_that_hold_nonsense_are_refused_and_stop_nobody():
    def refusals(update):
        refused = []
        replies = {"a": good, "b": good, "d": update}
        assert agree_on_label(replies, ("a", "b", "d"), True, lambda name, _: refused.append(name)).count == 1
        return refused

    label = {"operation": "latest", "count": 1, "phase": "iteration", "digest": ""}
    boxes = {f"box-{name}": bytes(BOX_BYTES) for name in "abd"}
    good = Message("update", {"label": label, "public": "0f" * 32}, boxes | {"words": bytes(ring.BYTES)})
    assert refusals(good) == []
    wrong = ({"label": None}, {"label": label | {"count": float("inf")}}, {"label": [1]}, {"public": "zz" * 32})
    for facts in wrong:
        assert refusals(Message("update", good.facts | facts, good.parts)) == ["d"]
    assert refusals(Message("update", good.facts, good.parts | {"box-a": b""})) == ["d"]
    deep = b"[" * 100_000
    heads = (b"", b"{}", deep, b'{"kind": "x", "facts": {}, "sizes": {"a": Infinity}}', b'{"kind": 1, "facts": 3}')
    for head in heads:
        with pytest.raises(ValueError, match=r"no message|longer or shorter"):
            Message.unpack(len(head).to_bytes(4) + head)


class CrashError(Exception):
    """The server is gone."""


def test_server_and_clients_that_are_killed_go_on_from_the_sums_on_disk(problem, tmp_path):
    data, pooled = problem
    about = {"job": JOB.as_facts()}

    def crash(self):
        raise CrashError

    class Crashing(Failing):
        plan: ClassVar = {7: crash}

    transport = Crashing(make_members(data, SETTINGS))
    try:
        with pytest.raises(CrashError):
            Server(NAMES, JOB, transport, SumLog(tmp_path, about), SETTINGS).run()
        for name in ("a", "d"):
            transport.kill(name)
            transport.start(name)
        kept = SumLog(tmp_path, about)
        before = len(kept)
        assert before > 10
        outcome = Server(NAMES, JOB, transport, kept, SETTINGS).run()
    finally:
        transport.close()
    assert outcome.sums > before
    assert_same(unpack_model(outcome.model), pooled)
    with pytest.raises(LogError, match="another run"):
        SumLog(tmp_path, {"job": "another"})


def lie_about_size(reply):
    """An update that claims to hold more numbers than it does."""
    label = reply.facts["label"] | {"count": 10**9}
    return Message(reply.kind, reply.facts | {"label": label}, reply.parts)


def send_other_size(reply):
    """An update of another size, as its label says."""
    label = reply.facts["label"] | {"count": 1}
    return Message(reply.kind, reply.facts | {"label": label}, reply.parts | {"words": bytes(ring.BYTES)})


def send_nan(reply):
    """An update with a number that is not finite."""
    count = reply.facts["label"]["count"]
    return Message(reply.kind, reply.facts, reply.parts | {"words": ring.to_bytes(ring.encode(np.full(count, np.nan)))})


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (lie_about_size, "cannot hold 1000000000 numbers"),
        (send_other_size, "not of the kind or size of the others'"),
        (send_nan, "not finite or out of range"),
    ],
)
def test_a_false_update_is_refused_with_its_client_and_poisons_nothing(problem, tamper, reason):
    data, pooled = problem

    class Tampering(Failing):
        plan: ClassVar = {"tamper": [tamper]}

    settings = replace(SETTINGS, secure=False)
    found = simulate(JOB, data, settings, connect=Tampering)
    assert_same(found.model, pooled)
    (refused,) = (text for text in found.outcome.absences if "that was refused" in text)
    assert refused.startswith("d sent an update")
    assert reason in refused


def test_a_client_that_fails_ends_the_run_by_name_and_without_its_data(problem):
    data, _ = problem
    X = data["b"].X.copy()
    X[3, 2] = np.nan
    wrong = dict(data) | {"b": LocalData(X, data["b"].y)}
    with pytest.raises(FederationError, match=r"client b cannot go on: \w+Error; its own log says more"):
        simulate(JOB, wrong, SETTINGS)
    narrow = dict(data) | {"c": LocalData(data["c"].X[:, :5], data["c"].y)}
    with pytest.raises(FederationError, match="do not agree on what to compute; c differ"):
        simulate(JOB, narrow, SETTINGS)


def run_server(transport, log):
    try:
        return Server(NAMES, JOB, transport, log, HASTY).run()
    finally:
        transport.close()


def test_a_client_that_leaves_is_left_out_and_the_answer_belongs_to_the_others(problem, tmp_path):
    data, _ = problem

    class Leaving(Failing):
        plan: ClassVar = {6: lambda self: self.kill("d")}

    transport = Leaving(make_members(data, HASTY, may_leave=("d",)))
    outcome = run_server(transport, SumLog(tmp_path, {}))
    X, y = (np.concatenate([getattr(data[name], part) for name in "abc"]) for part in "Xy")
    assert_same(unpack_model(outcome.model), psfit.SparseLinearRegression(3).fit(X, y))
    assert (outcome.clients, outcome.left) == (("a", "b", "c"), ("d",))
    assert "d left; the fit begins anew over a, b, c" in outcome.absences
    # The checkpoint knows it: all its sums are those of the second run.
    again = SumLog(tmp_path, {})
    assert again.left == ("d",)
    assert len(again) == outcome.sums
    assert all(set(result.members) <= set("abc") for result in again.since(0))


def test_a_client_that_leaves_after_the_last_sum_still_counts(problem):
    data, pooled = problem

    class LeavingLate(Failing):
        plan: ClassVar = {}

        def receive(self, timeout):
            received = super().receive(timeout)
            if received is not None and received[0] == "a" and received[1].kind == "done":
                self.kill("a")
                return super().receive(timeout)
            return received

    outcome = run_server(LeavingLate(make_members(data, HASTY)), SumLog(None, {}))
    assert_same(unpack_model(outcome.model), pooled)
    assert outcome.clients == NAMES


def test_too_few_clients_end_the_run_by_name(problem):
    data, _ = problem
    transport = PipeTransport(make_members(data, HASTY, may_leave=NAMES))
    for name in ("b", "c"):
        transport.kill(name)
    with pytest.raises(FederationError, match=r"away for 4 s: b, c\. The other 2 are fewer than min_clients=3"):
        run_server(transport, SumLog(None, {}))


def test_nobody_goes_on_without_a_client_that_has_not_allowed_it(problem, tmp_path):
    data, _ = problem
    transport = PipeTransport(make_members(data, HASTY, may_leave=("b", "c")))
    transport.kill("d")
    with pytest.raises(FederationError, match=r"away for 4 s: d\. The roster does not allow to go on without them"):
        run_server(transport, SumLog(tmp_path, {}))
    # The checkpoint is still one of all clients.
    assert SumLog(tmp_path, {}).left == ()


def test_a_process_that_ends_by_itself_is_named_at_once(problem):
    transport = PipeTransport(make_members(problem[0], SETTINGS))
    try:
        transport.processes["b"].kill()
        with pytest.raises(RuntimeError, match=r"the process of client 'b' ended by itself with exit code -9"):
            transport.receive(30.0)
    finally:
        transport.close()
