"""A folder of checkpoints: who writes there, what is found there, and what may be deleted.

Ranks on one host, or on a shared file system, meet in one folder; others have folders of their own under the same name.
In every folder one rank leads: it holds the lock and writes what its ranks share. The lock is the operating system's,
which takes it back when the process ends in whatever way.
"""

import errno
import fcntl
import json
import os
import re
import socket
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psfit.admm.checkpoint.error import CheckpointError
from psfit.comm import Grid

LOCK, MARKER, MANIFEST, SHARED = "lock", ".psfit-checkpoint", "manifest.json", "shared.npz"
ITERATION = re.compile(r"iteration-(\d{8,})")
OWN_FILES = re.compile(rf"({re.escape(MARKER)}|{re.escape(MANIFEST)}|{re.escape(SHARED)}|rank-\d+\.npz)(\.partial)?")
# A process that was killed may need a moment to let go of its lock.
PATIENCE = 2.0
PAUSE = 0.05
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Folder:
    """A folder as one rank sees it; `leads` if this is the rank that writes what the folder's ranks share."""

    path: Path
    rank: int
    leads: bool

    def inside(self, name: str) -> "Folder":
        """A folder in this one."""
        return Folder(self.path / name, self.rank, self.leads)

    def place(self, iteration: int) -> Path:
        """Where the checkpoint of an iteration lies."""
        return self.path / f"iteration-{iteration:08d}"

    def rank_file(self, iteration: int) -> Path:
        """What only this rank needs."""
        return self.place(iteration) / f"rank-{self.rank:05d}.npz"

    def prepare(self, iteration: int) -> None:
        """Make the place of a checkpoint and mark it as ours; the leader's task."""
        place = self.place(iteration)
        place.mkdir(parents=True, exist_ok=True)
        if not (place / MARKER).exists() and any(place.iterdir()):
            raise CheckpointError(f"{place} is needed for a checkpoint but holds other files; choose another folder")
        (place / MARKER).touch()

    def finished(self) -> list[int]:
        """Iterations whose checkpoints have a manifest here."""
        return [iteration for iteration in self._ours() if (self.place(iteration) / MANIFEST).exists()]

    def usable(self) -> list[int]:
        """Iterations of which this rank finds its own file and the shared one."""
        return [
            iteration
            for iteration in self._ours()
            if self.rank_file(iteration).exists() and (self.place(iteration) / SHARED).exists()
        ]

    def remove_others(self, iteration: int) -> None:
        """Delete all checkpoints but one; files that no checkpoint has written stay. The leader's task."""
        for other in self._ours():
            if other != iteration:
                _remove(self.place(other))

    def _ours(self) -> list[int]:
        """Iterations that this code has made a place for."""
        places = [(ITERATION.fullmatch(path.name), path) for path in self.path.glob("iteration-*")]
        return [
            int(match[1])
            for match, path in places
            if match is not None and not path.is_symlink() and (path / MARKER).is_file()
        ]


def _remove(place: Path) -> None:
    # Without its manifest it is no checkpoint any more, whatever is left of it; the marker says whose the rest is.
    (place / MANIFEST).unlink(missing_ok=True)
    for path in sorted(place.iterdir(), key=lambda path: path.name == MARKER):
        if OWN_FILES.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)
    if not any(place.iterdir()):
        place.rmdir()


@contextmanager
def open_folder(path: Path, grid: Grid) -> Iterator[Folder]:
    """The folder for a run of all ranks; no other run can open it meanwhile."""
    run = grid.world.all_gather(uuid.uuid4().hex.encode())[0].decode()
    claim = path / f".claim-{run}"
    leads, lock = False, None

    def enter() -> None:
        nonlocal leads, lock
        path.mkdir(parents=True, exist_ok=True)
        leads = _claimed(claim)
        if leads:
            lock = _locked(path)

    try:
        try:
            grid.together(enter)
        finally:
            # By now every rank of this folder has tried to be the first.
            if leads:
                claim.unlink(missing_ok=True)
        yield Folder(path, grid.world.rank, leads)
    finally:
        if lock is not None:
            os.close(lock)


def _claimed(claim: Path) -> bool:
    """Whether this rank is the first one of its run here."""
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _locked(path: Path) -> int:
    """An open file with the folder's lock."""
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(lock, path)
        os.ftruncate(lock, 0)
        os.write(lock, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode())
    except BaseException:
        os.close(lock)
        raise
    return lock


def _take(lock: int, path: Path) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise CheckpointError(
                    f"{path} is in use by another run{_holder(lock)}; wait until it has ended, or choose another folder"
                ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            warnings.warn(
                f"the file system of {path} has no locks ({error}); see to it that no other run uses the folder",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        time.sleep(PAUSE)


def _holder(lock: int) -> str:
    """Who has the lock, as far as the file says so."""
    try:
        found = json.loads(os.pread(lock, 4096, 0))
        return f" (process {int(found['process'])} on {found['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
