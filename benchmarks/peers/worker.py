"""One method in a process of its own, which lives as long as the benchmark: it answers one turn after the other.

A turn is a line of JSON with the folder of a case; the answer is a line with the supports and the seconds of the
method alone. The data are read before the clock starts. So all methods see the same state: a process that has nothing
else in it, data in memory as C-ordered float64, and the first turn, which compiles, does not count.
"""

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from methods import METHODS

sys.path.append(str(Path(__file__).parents[1] / "quality"))
from suite import Case, Spec

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


# A process may take so many seconds more for its first answer, in which it loads and compiles its packages.
START = 60.0


class OverTime(Exception):
    """A turn took longer than its cap."""


def write_case(case: Case, folder: Path) -> None:
    """The data as every worker reads them."""
    np.save(folder / "X.npy", np.ascontiguousarray(case.X, dtype=np.float64))
    np.save(folder / "y.npy", case.y)
    (folder / "spec.json").write_text(json.dumps(asdict(case.spec) | {"seed": case.seed}))


def read_case(folder: Path) -> Case:
    """In this process's own memory."""
    spec = json.loads((folder / "spec.json").read_text())
    seed = spec.pop("seed")
    return Case(Spec(**spec), seed, np.load(folder / "X.npy"), np.load(folder / "y.npy"))


class Worker:
    """The benchmark's end of the process; one that is over time or dies is replaced at the next turn."""

    def __init__(self, method: str, threads: int) -> None:
        self.method, self.threads = method, threads
        self.process: subprocess.Popen[str] | None = None

    def turn(self, folder: Path, cap: float) -> dict[str, Any]:
        """Supports and seconds of one run; `OverTime` beyond the cap, `RuntimeError` for whatever else went wrong."""
        if self.process is None:
            self.process, cap = self._start(), cap + START
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{folder}\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], cap)[0]:
            self.stop()
            raise OverTime
        line = process.stdout.readline()
        if not line:
            self.stop()
            raise RuntimeError("the process ended without an answer")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def stop(self) -> None:
        """End the process, also in the middle of a run."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", __file__, self.method, str(self.threads)]
        environment = os.environ | dict.fromkeys(THREADS, str(self.threads))
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def answer(method: str, threads: int, folder: Path) -> dict[str, Any]:
    """One run of a method."""
    case = read_case(folder)
    began = time.perf_counter()
    try:
        supports = METHODS[method].find(case, threads)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    seconds = time.perf_counter() - began
    return {"supports": [np.asarray(support).tolist() for support in supports], "seconds": seconds}


def main() -> None:
    """Answer until the input ends; what packages print goes to the error stream."""
    method, threads = sys.argv[1], int(sys.argv[2])
    # Some packages take all the cores they may use, whatever the variables say.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(method, threads, Path(line.strip()))), file=answers, flush=True)


if __name__ == "__main__":
    main()
