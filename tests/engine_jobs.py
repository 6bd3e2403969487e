"""What every engine must reproduce and survive: the answers of torchrun on uneven partitions, and faults in mid-fit."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import KAPPA, SAMPLES, Job, data
from launch import HERE, command, run

from psfit import BiCADMM, GridSpec

X, JOBS = data()
NAMES = ("squared", "logistic", "softmax")
# The shares of two ranks under torchrun, and an empty partition between them.
CUTS = ((0, 50), (50, 50), (50, SAMPLES))
CPU = GridSpec(device="cpu", timeout=60)
# It needs many iterations, so that there is time for faults.
LONG = BiCADMM(effort="low", tol=1e-12, max_iter=100_000)


def torchrun_answers(folder: Path) -> dict[str, dict]:
    """The answers of two ranks that torchrun has started."""
    output = folder / "torchrun.json"
    done = run(command("torch", 2, str(HERE / "reproduce.py"), "torch", str(output), "cpu", "-", "plain", "2x1"))
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text())["2x1"]


def settings(job: Job) -> dict:
    """The parameters of a job's estimator."""
    return {"kappa": KAPPA, "gamma": 10.0, "grid": CPU, "solver": job.solver, **job.options}


def require_same(model, answer: dict, nodes: tuple[int, ...] = (2,)) -> None:
    """The model is the one of torchrun; the engine may have put both partitions on one node."""
    assert model.objective_ == pytest.approx(answer["objective"], rel=1e-9)
    assert model.lower_bound_ == pytest.approx(answer["lower_bound"], rel=1e-6)
    np.testing.assert_array_equal(model.result_.coef != 0, np.array(answer["coef"]) != 0)
    np.testing.assert_allclose(model.result_.coef, answer["coef"], rtol=1e-6, atol=1e-9)
    assert np.asarray(getattr(model, "classes_", [])).tolist() == answer["classes"]
    assert model.result_.samples == SAMPLES
    assert model.result_.nodes in nodes


def require_predictions(found, expected) -> None:
    """Labels are the same; numbers may differ by rounding, because batches have other sizes."""
    found, expected = np.asarray(found), np.asarray(expected)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    else:
        assert found.tolist() == expected.tolist()


def die_at_work(marker: Path):
    """A callback that kills the first process that works; engines send it by value, since it has no name elsewhere."""
    path = str(marker)

    def callback(progress):
        import os
        import signal

        if progress.iteration >= 3:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    return callback


def work_slowly(folder: Path):
    """A callback that notes the process and makes the fit last."""
    path = str(folder)

    def callback(progress):
        import os
        import time

        if progress.iteration >= 3:
            open(f"{path}/{os.getpid()}", "a").close()
            time.sleep(0.05)

    return callback


def workers_of(folder: Path, count: int, timeout: float = 60) -> list[int]:
    """The processes that `work_slowly`, as soon as there are so many."""
    return _wait(
        lambda: found if len(found := [int(path.name) for path in folder.iterdir()]) >= count else None, timeout
    )


def wait_for_end(processes: list[int], timeout: float = 30) -> None:
    """Fail unless all these processes end."""

    def states() -> list[int]:
        return [pid for pid in processes if _is_alive(pid)]

    _wait(lambda: True if not states() else None, timeout)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait(ask, timeout: float):
    end = time.monotonic() + timeout
    while (answer := ask()) is None:
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)
    return answer
