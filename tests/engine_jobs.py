"""What every engine must reproduce and survive: the answers of torchrun on uneven partitions, and faults in mid-fit."""

import fcntl
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from jobs import KAPPA, SAMPLES, Job, data
from launch import HERE, command, run

from psfit import BiCADMM, GridSpec, PeerLostError

X, JOBS = data()
Y = JOBS["squared"].y
COUNTS, OFFSET = JOBS["poisson, offset"].y, JOBS["poisson, offset"].offset
NAMED = [f"c{k}" for k in range(X.shape[1])]
# A table with text, counts and offsets; the rules by which it is read; and constraints by the names of its features.
TABLE = pd.DataFrame(X, columns=NAMED).assign(kind=np.where(X[:, 1] > 1, "high", "low"), count=COUNTS, exposed=OFFSET)
RULES = {"categories": "columns"}
CONSTRAINTS = {"include": "kind", "exclude": ["c5"], "lower": {"c9": 0.0}, "upper": {"c1": 0.05}}
# The shares of two ranks under torchrun, and an empty partition between them.
CUTS = ((0, 50), (50, 50), (50, SAMPLES))
CPU = GridSpec(device="cpu", timeout=60)
# It needs many iterations, so that there is time for faults.
LONG = BiCADMM(effort="low", tol=1e-12, max_iter=100_000)


def torchrun_answers(temporary: pytest.TempPathFactory) -> dict[str, dict]:
    """The answers of two ranks that torchrun has started; the first of the test processes that asks computes them."""
    base = temporary.getbasetemp()
    output = (base.parent if base.name.startswith("popen-") else base) / "torchrun.json"
    with output.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            program = [str(HERE / "reproduce.py"), "torch", str(output), "cpu", "-", "engines", "2x1"]
            done = run(command("torch", 2, *program))
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


def die_at_work(marker: Path, iteration: int = 3):
    """A callback that kills the first process that works; engines send it by value, since it has no name elsewhere.

    After that it notes the iterations that it sees beside the marker.
    """
    path = str(marker)

    def callback(progress):
        import os
        import signal

        if os.path.exists(path) and progress.iteration:
            with open(f"{path}-seen", "a") as file:
                file.write(f"{progress.iteration}\n")
        if progress.iteration >= iteration:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    return callback


def first_after(marker: Path) -> int:
    """The smallest iteration that was seen after the process of `die_at_work` had died, and another had started."""
    seen = [int(line) for line in Path(f"{marker}-seen").read_text().split()]
    return min(seen)


def stop_in_mid_fit(fit: Callable[[], object], stop: Callable[[], object], folder: Path, count: int) -> None:
    """Stop the engine while `count` processes `work_slowly`: the fit must raise an error, and all of them must end."""
    errors = []

    def run_fit():
        try:
            fit()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run_fit)
    thread.start()
    processes = workers_of(folder, count, thread.is_alive)
    stop()
    thread.join(240)
    assert isinstance(errors[0], PeerLostError), errors
    wait_for_end(processes)


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


def workers_of(folder: Path, count: int, is_running: Callable[[], bool]) -> list[int]:
    """The processes that `work_slowly`, as soon as there are so many; none if the fit has ended before."""

    def find() -> list[int] | None:
        found = [int(path.name) for path in folder.iterdir()]
        return found if len(found) >= count else None if is_running() else []

    return _wait(find, 240)


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
