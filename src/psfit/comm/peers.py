"""Who the other ranks are, as processes, so that a rank that is lost can be named."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

# A connection closes a moment before the process is seen to have ended.
WAIT = 1.0
PAUSE = 0.02
# States of a process that does no more work: ended, or stopped.
GONE = {"Z": "has ended", "X": "has ended", "T": "is stopped", "t": "is stopped"}


@dataclass(frozen=True)
class Peers:
    """All ranks of a job: this one's number, how many there are, and where and as which process each of them runs."""

    rank: int
    size: int
    places: tuple[str, ...] = ()

    def describe_lost(self) -> str:
        """Those that are known to be gone; "another rank" where it is not known which one."""
        end = time.monotonic() + WAIT
        lost = self._lost()
        while not lost and self.places and time.monotonic() < end:
            time.sleep(PAUSE)
            lost = self._lost()
        if lost:
            return " and ".join(f"rank {rank} (its process {reason})" for rank, reason in lost.items())
        return f"rank {1 - self.rank}" if self.size == 2 else "another rank"

    def _lost(self) -> dict[int, str]:
        """Ranks on this machine whose processes do no more work, with what is known of them."""
        if not self.places:
            return {}
        here = self.places[self.rank].split()[0]
        states = {rank: _state(place.split()[1]) for rank, place in enumerate(self.places) if place.split()[0] == here}
        return {rank: GONE[state] for rank, state in states.items() if state in GONE}


def own_place() -> str:
    """The machine, as far as its processes can see each other, and the number of this process there."""
    return f"{_machine()} {os.getpid()}"


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return f"unknown-{os.getpid()}"


def _state(process: str) -> str:
    """The letter that the system has for the state of a process; X if there is none."""
    try:
        return Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except OSError:
        return ""
