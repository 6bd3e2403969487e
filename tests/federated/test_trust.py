"""What a client refuses: runs, lists of clients and sums that could show its numbers or stop it."""

import tempfile

import numpy as np
import pytest

from psfit.federated import Identity, Job, LocalData, Policy, Roster, ServerSettings, Worker, ring
from psfit.federated.link import ClientLink, SumResult
from psfit.federated.masks import Place
from psfit.federated.messages import Label, Message

JOB = Job("SparseLinearRegression", {"kappa": 3})


def test_clients_refuse_runs_that_they_do_not_trust():
    identity = Identity.create("a")
    others = [Identity.create("b").public, Identity.create("c").public, Identity.create("d", may_leave=True).public]
    roster = Roster.create([identity.public, *others])
    worker = Worker(identity, lambda job: None, roster, Policy(min_clients=3))
    facts = {"run": "r", "names": ["a", "b", "c", "d"], "secure": True, "job": JOB.as_facts()}

    def reason(**changes):
        return worker.handle(Message("start", facts | changes)).facts["reason"]

    assert "secure sums only" in reason(secure=False)
    assert "not those of this client's roster" in reason(names=["a", "b", "c", "x"])
    assert "not those of this client's roster" in reason(names=["b", "a", "c", "d"])
    assert "leaves out c, which the roster does not allow" in reason(names=["a", "b", "d"])
    assert "KeyError" in worker.handle(Message("start", {})).facts["reason"]
    pinned = Worker(identity, lambda job: None, roster, Policy(job=JOB))
    other = Job("SparseLinearRegression", {"kappa": 4}).as_facts()
    refused = pinned.handle(Message("start", facts | {"job": other}))
    assert "not the one that this client agreed to" in refused.facts["reason"]
    newer = worker.handle(Message("start", facts | {"job": JOB.as_facts() | {"field": 1}}))
    assert (newer.kind, newer.facts["reason"]) == ("failed", "JobError at the start")
    careful = Worker(identity, lambda job: None, roster, Policy(min_clients=4))
    assert "at least 4" in careful.handle(Message("start", facts | {"names": ["a", "b", "c"]})).facts["reason"]
    assert worker.handle(Message("sum", {"run": "r", "place": [1, 0], "members": []})).kind == "behind"
    # A list that names a client twice, or strangers, would hide a sum over too few.
    assert worker.handle(Message("start", facts | {"names": ["a", "b", "c"]})).kind == "ready"
    for members in (["a", "b", "b"], ["a", "b"], ["b", "c", "d"], ["a", "b", "x"]):
        for kind in ("keys", "sum"):
            answered = worker.handle(Message(kind, {"run": "r", "place": [1, 0], "members": members, "results": []}))
            assert "is not allowed here" in answered.facts["reason"]
    # No number of a session is used twice, so no mask can be.
    asked = Message("keys", {"run": "r", "place": [5, 0], "members": ["a", "b", "c"]})
    assert worker.handle(asked).kind == "boxes"
    assert "session that is over" in worker.handle(asked).facts["reason"]
    with pytest.raises(ValueError, match="secure sums need at least 3"):
        ServerSettings(min_clients=2)


def test_a_sum_of_another_size_is_an_error_of_this_client():
    """The server would wait for ever for a client that takes it for the end of the run."""
    link = ClientLink("a", lambda result: result.words)
    link.take([SumResult(Place(1, 0), ("a", "b", "c"), ring.zeros(3))])
    with pytest.raises(ValueError, match="a sum of another size"):
        link.exchange(Label("sum", 2, "", ""), ring.encode(np.ones(2)))


def test_a_client_that_cannot_answer_says_so(monkeypatch, tmp_path):
    """A folder for temporary files is missing, which the client needs to send the model."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    worker = Worker(Identity("a", b""), lambda job: LocalData(X, X[:, 1]), None, Policy(secure=False, min_clients=1))
    job = Job("SparseLinearRegression", {"kappa": 1}, pooled=True)
    worker.handle(Message("start", {"run": "r", "names": ["a"], "secure": False, "job": job.as_facts()}))
    # One client alone needs no sum, so its answer is the model.
    last = Message("sum", {"run": "r", "members": ["a"], "wants_model": True, "place": [1, 0]})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    failed = worker.handle(last)
    assert (failed.kind, failed.facts["reason"]) == ("failed", "FileNotFoundError")
    monkeypatch.undo()
    assert worker.handle(last).kind == "done"
