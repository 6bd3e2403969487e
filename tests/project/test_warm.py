"""Programs that are forked from a server behave like real ones."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import active, python, run


def say(*arguments, cwd, **variables):
    """What the program and a real Python do with the same arguments."""
    ends = []
    for program in (python(), sys.executable):
        done = subprocess.run([program, *arguments], cwd=cwd, env=active(**variables), capture_output=True, text=True)
        ends.append((done.returncode, done.stdout, done.stderr.splitlines()[-1:]))
    return ends


@pytest.mark.parametrize(
    "text",
    [
        "import os, sys; print(sys.argv, os.getcwd(), os.environ['COLOUR'], __name__, sys.path[0])",
        "import sys; print('half', end=''); sys.exit(7)",
        "raise KeyError('gone')",
        "import os; os.kill(os.getpid(), 9)",
        "import atexit; atexit.register(print, 'last')",
    ],
    ids=["surroundings", "exit code", "error", "signal", "end"],
)
def test_as_a_real_python(text, tmp_path):
    ours, real = say("-c", text, "a", "b c", cwd=tmp_path, COLOUR="green")
    assert ours == real


def test_scripts_and_modules(tmp_path):
    (tmp_path / "other.py").write_text("name = 'a module beside it'")
    (tmp_path / "script.py").write_text("import sys, other; print(other.name, sys.argv)")
    for arguments in (["script.py", "x"], ["-m", "script", "x"]):
        ours, real = say(*arguments, cwd=tmp_path)
        assert ours == real
        assert "a module beside it" in ours[1]


def test_signals_are_passed_on(tmp_path):
    text = "import signal, time; signal.signal(15, lambda *_: exit(3)); print('ready', flush=True); time.sleep(60)"
    job = subprocess.Popen([python(), "-c", text], stdout=subprocess.PIPE, text=True)
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == 3
    job.stdout.close()


def test_nothing_outlives_a_killed_client():
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    job = subprocess.Popen([python(), "-c", text], stdout=subprocess.PIPE, text=True)
    pid = int(job.stdout.readline())
    job.kill()
    job.wait(30)
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    job.stdout.close()


def test_a_job_that_does_not_end_is_ended():
    with pytest.raises(AssertionError, match="no end after 1 s"):
        run([python(), "-c", "import time; time.sleep(60)"], timeout=1)
