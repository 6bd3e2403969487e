"""The processes of the other ranks, so that a message can name the rank that was lost."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

# Seconds to wait: a connection closes a moment before the system shows that the process has ended.
WAIT = 1.0
PAUSE = 0.02
# States of a process that works no more: ended, or stopped.
GONE = {"Z": "has ended", "X": "has ended", "T": "is stopped", "t": "is stopped"}


@dataclass(frozen=True)
class Peers:
    """All ranks of a job: this rank's number, the number of ranks, and the machine and process of each."""

    rank: int
    size: int
    places: tuple[str, ...] = ()

    def describe_lost(self) -> str:
        """The ranks that have ended or stopped; "another rank" if it is not known which."""
        end = time.monotonic() + WAIT
        lost = self._find_lost()
        while not lost and self.places and time.monotonic() < end:
            time.sleep(PAUSE)
            lost = self._find_lost()
        if lost:
            return " and ".join(f"rank {rank} (its process {reason})" for rank, reason in lost.items())
        return f"rank {1 - self.rank}" if self.size == 2 else "another rank"

    def _find_lost(self) -> dict[int, str]:
        """The other ranks on this machine whose processes have ended or stopped, with which of the two.

        Where the system does not show its processes, as on macOS, every rank has a machine of its own.
        """
        if not self.places:
            return {}
        here = self.places[self.rank].split()[0]
        others = {rank: place.split() for rank, place in enumerate(self.places) if rank != self.rank}
        states = {rank: _state(process) for rank, (machine, process) in others.items() if machine == here}
        return {rank: GONE[state] for rank, state in states.items() if state in GONE}


def own_place() -> str:
    """The machine (or container) of this process, and its process number there."""
    return f"{_machine()} {os.getpid()}"


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return f"unknown-{os.getpid()}"


def _state(process: str) -> str:
    """The system's letter for the state of a process; X if the process does not exist."""
    try:
        return Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except OSError:
        return ""
