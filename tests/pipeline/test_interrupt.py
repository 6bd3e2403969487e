"""Ctrl-C and SIGTERM, in a pseudo-terminal and in a pipe: the best answer so far, with its gap, and no traceback."""

import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from launch import alone, python, start
from launch import command as ranks
from problems import make_source

import psfit
from psfit import BiCADMM, Problem, SparseLinearRegression, SparseLinearRegressionCV, Status, StoppedError, solve
from psfit.common.progress import Progress
from psfit.common.signals import SAME_PRESS, Signals
from psfit.estimators import display
from psfit.losses import Logistic, Squared

PATIENCE = 120.0
STABILITY = """
import os, signal, numpy as np, psfit
X = np.random.default_rng(0).normal(size=(80, 6))
solver = psfit.BiCADMM(interruptible=True)
kill = lambda progress: os.kill(os.getpid(), signal.SIGTERM)
psfit.stability_selection(X, X[:, 1], [2], resamples=4, solver=solver, callback=kill)
"""
CODES = {"SIGINT": 130, "SIGTERM": 143}
NAMES = {"SIGINT": "INTERRUPTED", "SIGTERM": "TERMINATED"}
# Makes standard input the terminal whose keys a process obeys, then becomes that process.
OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    """A file on which exact mode searches for long: more features than samples, correlated, and a very weak signal."""
    rng = np.random.default_rng(0)
    X = 0.95 * rng.normal(size=(150, 1)) + 0.3 * rng.normal(size=(150, 200))
    y = X[:, :8] @ rng.normal(size=8) + 3 * rng.normal(size=150)
    path = tmp_path_factory.mktemp("hard") / "hard.csv"
    names = ",".join([*(f"x{j}" for j in range(200)), "y"])
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header=names, comments="")
    return path


@pytest.mark.parametrize("whom", [pytest.param("all", marks=pytest.mark.long), "one rank"])
def test_ranks_end_together_with_one_answer(hard, tmp_path, whom):
    out, page = tmp_path / "model.psfit", tmp_path / "page.html"
    # Only real processes are children of their launcher.
    line = ranks("torch", 2, *command(hard, "--out", out, "--report", page)[1:], real=whom == "one rank")
    with alone():
        job = start(line)
        lines = read_until(job.stderr.fileno(), b"explored")
        if whom == "all":
            # The terminal sends the signal to all processes, and torchrun forwards it, too.
            os.killpg(job.pid, signal.SIGINT)
        else:
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGINT)
        text, _ = job.communicate(timeout=PATIENCE)
    assert lines.count(b"preparing the data") == 1
    assert text.count("status     INTERRUPTED: ") == 1
    assert "it was asked to stop" in page.read_text()
    result = psfit.load(out).result_
    assert result.nodes == 2
    assert len(result.support) <= 8


# How the line begins, and how it ends, for a signal at the first fold, at a later one, and during a path.
CHOICE = r"kappa = \d+, gamma = \S+ \(%s \S+\); no model was fitted with it"
CUT_SHORT = {
    "--cv 5 at fold 1 of 5": r"Ctrl-C during fold 1 of 5: no fold is complete, so there is no choice yet",
    "--cv 5 at fold 3 of 5": r"Ctrl-C during fold [345] of 5: the best choice so far, from the [234] folds before, is "
    + CHOICE % "mean loss on held-out samples",
    "--criterion bic at exchanging": r"Ctrl-C during the path: the best choice so far, from searches that are not "
    r"complete, is " + CHOICE % "BIC",
}


@pytest.mark.parametrize("case", CUT_SHORT)
def test_a_choice_that_is_cut_short_says_what_was_found(hard, tmp_path, case):
    out, (how, mark) = tmp_path / "model.psfit", case.split(" at ")
    line = [python(), "-m", "psfit", "path", str(hard), "--target", "y", "--kappas", "1:60", *how.split()]
    job = subprocess.Popen(
        [*line, "--effort", "high", "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    lines = read_until(job.stderr.fileno(), mark.encode())
    job.send_signal(signal.SIGINT)
    text, rest = job.communicate(timeout=PATIENCE)
    assert job.returncode == 130
    assert b"Traceback" not in lines + rest
    said = [line for line in rest.decode().splitlines() if line.startswith("psfit: ")]
    assert len(said) == 1
    assert re.fullmatch("psfit: stopped by " + CUT_SHORT[case], said[0]), said
    assert text == b""
    assert not out.exists()


def command(hard, *more, program=sys.executable):
    line = [program, "-m", "psfit", "fit", str(hard), "--target", "y", "--kappa", "8", "--gamma", "10"]
    return [*line, "--exact", *map(str, more)]


def read_until(stream, mark, output=b""):
    """Read a file descriptor until the mark has come."""
    end = time.monotonic() + PATIENCE
    while mark not in output:
        assert time.monotonic() < end, output.decode()
        if select.select([stream], [], [], 1.0)[0]:
            output += os.read(stream, 65536)
    return output


def read_to_the_end(stream, output):
    """Read a pseudo-terminal until its process is gone."""
    while True:
        try:
            more = os.read(stream, 65536)
        except OSError:
            return output
        if not more:
            return output
        output += more


# In a pipe what a scheduler sends, in a terminal the key; Ctrl-C in a pipe has tests of its own below and above.
@pytest.mark.parametrize("name", ["SIGTERM"])
def test_a_signal_in_a_pipe_ends_the_search_with_its_answer(hard, tmp_path, name):
    out = tmp_path / "model.psfit"
    line = command(hard, "--out", out, program=python())
    job = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = read_until(job.stderr.fileno(), b"explored")
    job.send_signal(getattr(signal, name))
    text, rest = job.communicate(timeout=PATIENCE)
    assert job.returncode == CODES[name]
    assert "Traceback" not in (lines + rest).decode()
    assert f"status     {NAMES[name]}: " in text.decode()
    # Lines, not a redrawn one.
    assert b"\r" not in lines
    assert b"\x1b" not in lines
    result = psfit.load(out).result_
    assert result.status is Status[NAMES[name]]
    assert len(result.support) <= 8
    assert 0 < result.gap < 1
    assert f"gap {result.gap:.2g}" in text.decode()


@pytest.mark.parametrize("name", ["SIGINT"])
def test_a_signal_in_a_terminal_ends_the_search_with_its_answer(hard, name):
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    line = [sys.executable, "-c", OWN_TERMINAL, *command(hard)]
    job = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    # A live line is drawn over itself.
    output = read_until(ours, b"\r", read_until(ours, b"explored"))
    assert b"proving how good the answer is" in output
    assert b"residuals" not in output
    if name == "SIGINT":
        # The key itself, which the terminal turns into a signal.
        os.write(ours, b"\x03")
    else:
        os.kill(job.pid, signal.SIGTERM)
    output = read_to_the_end(ours, output)
    assert job.wait(PATIENCE) == CODES[name]
    os.close(ours)
    assert b"Traceback" not in output
    assert f"status     {NAMES[name]}: ".encode() in output
    # The cursor that the live line hid is back.
    assert output.rfind(b"\x1b[?25h") > output.rfind(b"\x1b[?25l")


@pytest.fixture(autouse=True)
def keys_are_heard():
    """Where the tests run in the background of a shell, Ctrl-C is ignored, and processes that they start inherit it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def no_press_before(monkeypatch):
    """Tests send signals faster than people press keys."""
    monkeypatch.setattr(Signals, "last_press", -math.inf)


def test_a_second_interrupt_ends_the_program():
    signals = Signals()
    with signals.catch(signal.SIGINT):
        os.kill(os.getpid(), signal.SIGINT)
        # A launcher's copy of the same key press.
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.SIGINT in signals.received
        time.sleep(SAME_PRESS + 0.1)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_presses_in_a_row_end_a_program_that_goes_on_to_another_fit():
    for again in (False, True):
        signals = Signals()
        with signals.catch(signal.SIGINT), pytest.raises(KeyboardInterrupt) if again else nullcontext():
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(SAME_PRESS + 0.2)


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signals = Signals()
        with signals.catch(signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), signal.SIGINT)
        assert not signals.received
    finally:
        signal.signal(signal.SIGINT, before)


def test_json_of_an_interrupted_fit_is_whole(hard, tmp_path):
    line = command(hard, "--json", "--checkpoint", tmp_path, program=python())
    job = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # Nothing is printed before the end, but a checkpoint shows that the iteration is over.
    end = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("*/manifest.json")):
        assert time.monotonic() < end
        time.sleep(0.1)
    job.send_signal(signal.SIGINT)
    text, _ = job.communicate(timeout=PATIENCE)
    assert job.returncode == 130
    assert json.loads(text)["status"] == "INTERRUPTED"


def stop_in(phase, heard):
    """A callback that asks to stop when a phase has begun."""

    def callback(progress):
        heard.append(progress)
        return phase in progress.phase

    return callback


@pytest.mark.parametrize("phase", ["iteration", "polish"])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_a_callback_ends_a_fit_with_a_feasible_answer(loss, phase):
    source = make_source(loss, samples=60, features=12, nonzeros=3, seed=1)
    heard = []
    result = solve(Problem(loss, (3,)), source, callback=stop_in(phase, heard))
    assert result.status is Status.INTERRUPTED
    assert len(result.support) <= 3
    assert result.lower_bound <= result.objective
    full = solve(Problem(loss, (3,)), source)
    assert result.lower_bound <= full.objective <= result.objective * (1 + 1e-9)
    assert heard[-1].seconds <= result.seconds


@pytest.mark.parametrize("phase", ["iteration", "polish"])
def test_sigterm_with_a_folder_stops_the_iteration_and_ends_what_follows_with_an_answer(phase, tmp_path):
    source = make_source(Squared(), samples=60, features=12, nonzeros=3, seed=1)

    def terminate(progress):
        if phase in progress.phase and progress.iteration > 5:
            os.kill(os.getpid(), signal.SIGTERM)

    solver = BiCADMM(checkpoint=tmp_path, interruptible=True)
    if phase == "iteration":
        with pytest.raises(StoppedError, match="goes on from the checkpoint"):
            solve(Problem(Squared(), (3,)), source, solver, callback=terminate)
    else:
        result = solve(Problem(Squared(), (3,)), source, solver, callback=terminate)
        assert result.status is Status.TERMINATED
        assert len(result.support) <= 3
    assert len(list(tmp_path.glob("iteration-*/manifest.json"))) == 1


def test_callbacks_hear_of_everything():
    source = make_source(Squared(), samples=60, features=12, nonzeros=3, seed=1)
    heard = []
    result = solve(Problem(Squared(), (3,)), source, callback=lambda progress: heard.append(progress))
    assert result.status in (Status.CONVERGED, Status.SETTLED)
    phases = list(dict.fromkeys(progress.phase for progress in heard))
    assert phases == ["the first factorisation", "the iteration", "the polish", "the proof"]
    assert max(progress.iteration for progress in heard) == result.n_iter
    records = {record.iteration: record for record in result.history}
    for progress in heard:
        if progress.iteration > 1:
            # An iteration's residuals come with the next one.
            assert progress.primal == records[progress.iteration - 1].primal
    assert heard[-1].objective == pytest.approx(result.objective)
    assert heard[-1].lower_bound == pytest.approx(result.lower_bound)
    assert heard[-1].gap == pytest.approx(result.gap, abs=1e-12)


def test_the_time_that_is_left(monkeypatch):
    """By the share of the first fold that is done, then by the folds before."""
    clock = iter([100.0, 102.0, 103.0, 106.0, 108.0])
    monkeypatch.setattr(display, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    told = []
    report = display.label_round(told.append, "fold", 1, 4, 100.0)
    report(Progress(done=0, total=10, gamma=1, gammas=3))
    report(Progress(done=5, total=10, gamma=1, gammas=3))
    # A sixth of a fold took 3 seconds: there are 18 in a fold and 72 in all.
    assert [progress.seconds_left for progress in told] == [pytest.approx(np.nan, nan_ok=True), pytest.approx(69)]
    assert "gamma 1 of 3 | limit 5 of 10 | about 69 s left" in display.describe(told[-1])
    display.label_round(told.append, "fold", 3, 4, 100.0)(Progress())
    # Two folds took 6 seconds, so two more take 6, of which 2 are over.
    assert told[-1].seconds_left == pytest.approx(4)
    alone = Progress(seconds=8.0, done=2, total=10)
    assert "limit 2 of 10 | about 32 s left" in display.describe(alone)


def test_estimators_paths_and_choices_hear_their_callbacks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    y = 2 * X[:, 1] - X[:, 4] + 0.1 * rng.normal(size=80)
    heard = []
    model = SparseLinearRegression(kappa=2, callback=stop_in("polish", heard)).fit(X, y)
    assert model.result_.status is Status.INTERRUPTED
    path = psfit.sparse_path(X, y, [1, 2, 3], callback=stop_in("iteration", heard))
    assert path.ended is Status.INTERRUPTED
    assert "INTERRUPTED" in str(path)
    assert np.all(np.diff(path.objectives[0]) <= 0)
    told = []
    chosen = SparseLinearRegressionCV([1, 2, 3], cv=3, callback=told.append).fit(X, y)
    assert chosen.kappa_ >= 2
    folds = [progress for progress in told if "fold" in progress.phase]
    assert {progress.phase.split(",")[0] for progress in folds} == {f"fold {k} of 3" for k in (1, 2, 3)}
    # The time is that of all folds so far; from the first limit on it is known about how long the others take.
    assert np.all(np.diff([progress.seconds for progress in folds]) >= 0)
    at_start = ["fold 1" in progress.phase and progress.gamma == 1 and progress.done == 0 for progress in folds]
    assert [bool(np.isnan(progress.seconds_left)) for progress in folds] == at_start
    assert {(progress.gamma, progress.gammas) for progress in folds} >= {(1, 3), (2, 3), (3, 3)}
    with pytest.raises(StoppedError, match="the callback stopped it during fold 2 of 3: the best choice so far, from"):
        SparseLinearRegressionCV([1, 2, 3], cv=3, callback=stop_in("fold 2", heard)).fit(X, y)
    # A signal ends the program, not the work on one half.
    ended = subprocess.run([sys.executable, "-c", STABILITY], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGTERM
    with pytest.raises(StoppedError, match="no answer"):
        psfit.stability_selection(X, y, [2], resamples=4, callback=stop_in("half 3", heard))


def test_a_choice_that_fills_missing_values_keeps_the_folds_that_are_done(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    y = 2 * X[:, 1] - X[:, 4] + 0.1 * rng.normal(size=80)
    rows = [",".join([*(f"{value:.6f}" for value in row), f"{target:.6f}"]) for row, target in zip(X, y, strict=True)]
    rows[0] = "," + rows[0].partition(",")[2]
    path = tmp_path / "gaps.csv"
    path.write_text("\n".join(["a,b,c,d,e,f,y", *rows]))
    source = psfit.FileSource(path, target="y", missing="fill")
    model = SparseLinearRegressionCV([1, 2, 3], cv=3, callback=stop_in("fold 3", []))
    with pytest.raises(StoppedError, match=r"fold 3 of 3.*from the 2 folds before, is kappa = [23]"):
        model.fit(source)


def test_a_time_limit_ends_the_polish():
    source = make_source(Squared(), samples=400, features=300, nonzeros=30, seed=0, correlation=0.9)
    heard = []

    def wait(progress):
        """Let the time limit pass when the polish begins."""
        if progress.phase == "the polish" and not heard:
            heard.append(progress.phase)
            time.sleep(1.1)

    result = solve(Problem(Squared(), (30,)), source, BiCADMM(effort="high", time_limit=1.0), callback=wait)
    assert heard == ["the polish"]
    assert result.status is Status.TIME_LIMIT
    assert result.lower_bound <= result.objective
    assert len(result.support) == 30


def test_progress_in_a_pipe_is_lines(capfd):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    y = 2 * X[:, 1] - X[:, 4] + 0.1 * rng.normal(size=80)
    model = SparseLinearRegression(kappa=2, verbose=1).fit(X, y)
    said, told = capfd.readouterr()
    assert said == f"{model.result_}\n"
    assert [line.split("s  ", 1)[1].split(" |")[0] for line in told.splitlines()] == [
        "preparing the data",
        "looking for features that matter",
        "exchanging features for better ones",
        "proving how good the answer is",
    ]
    last = told.splitlines()[-1]
    assert f"best {model.objective_:.8g}" in last
    assert "residuals" not in told
    model.set_params(verbose=2).fit(X, y)
    assert "residuals" in capfd.readouterr().err


def test_progress_in_a_notebook_overwrites_its_line(capfd, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    model = SparseLinearRegression(kappa=2, verbose=1).fit(X, 2 * X[:, 1] + 0.1 * rng.normal(size=80))
    said, told = capfd.readouterr()
    assert told == ""
    assert re.match(r"\r +\d+\.\d s  preparing the data", said)
    # The line ends before the result.
    assert said.endswith(f"\n{model.result_}\n")
