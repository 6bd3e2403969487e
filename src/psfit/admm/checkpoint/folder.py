"""A folder of checkpoints: which rank writes there, what is found there, and what may be deleted.

Ranks on one host, or on a shared file system, share one folder; other ranks have other folders with the same name. In
every folder one rank leads: it has the lock and writes the shared file. The lock is one of the operating system, which
releases it when the process ends, for any reason.
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
# Seconds to wait for a lock: a killed process may need a moment to release it.
LOCK_SECONDS = 2.0
PAUSE = 0.05
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Folder:
    """A folder as one rank sees it; `leads` if this rank writes the files that the folder's ranks share."""

    path: Path
    rank: int
    leads: bool

    def inside(self, name: str) -> "Folder":
        """A folder inside this one."""
        return Folder(self.path / name, self.rank, self.leads)

    def place(self, iteration: int) -> Path:
        """The folder of the checkpoint of an iteration."""
        return self.path / f"iteration-{iteration:08d}"

    def rank_file(self, iteration: int) -> Path:
        """The file that only this rank needs."""
        return self.place(iteration) / f"rank-{self.rank:05d}.npz"

    def prepare(self, iteration: int) -> None:
        """Make the folder of a checkpoint and mark it as PsFiT's. Only the leader calls this."""
        place = self.place(iteration)
        place.mkdir(parents=True, exist_ok=True)
        if not (place / MARKER).exists() and any(place.iterdir()):
            raise CheckpointError(f"{place} is needed for a checkpoint but has other files; choose another folder")
        (place / MARKER).touch()

    def finished_iterations(self) -> list[int]:
        """Iterations whose checkpoints have a manifest here."""
        return [iteration for iteration in self._own_iterations() if (self.place(iteration) / MANIFEST).exists()]

    def usable_iterations(self) -> list[int]:
        """Iterations whose files this rank finds: its own and the shared one."""
        return [
            iteration
            for iteration in self._own_iterations()
            if self.rank_file(iteration).exists() and (self.place(iteration) / SHARED).exists()
        ]

    def remove_others(self, iteration: int) -> None:
        """Delete all checkpoints but one, and no other files. Only the leader calls this."""
        for other in self._own_iterations():
            if other != iteration:
                _remove(self.place(other))

    def _own_iterations(self) -> list[int]:
        """Iterations whose folders have PsFiT's mark."""
        places = [(ITERATION.fullmatch(path.name), path) for path in self.path.glob("iteration-*")]
        return [
            int(match[1])
            for match, path in places
            if match is not None and not path.is_symlink() and (path / MARKER).is_file()
        ]


def _remove(place: Path) -> None:
    # The manifest goes first: without it, this is no longer a checkpoint. The marker goes last: it shows that the
    # other files are PsFiT's.
    (place / MANIFEST).unlink(missing_ok=True)
    for path in sorted(place.iterdir(), key=lambda path: path.name == MARKER):
        if OWN_FILES.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)
    if not any(place.iterdir()):
        place.rmdir()


@contextmanager
def open_folder(path: Path, grid: Grid) -> Iterator[Folder]:
    """Open the folder for a run of all ranks; no other run can open it at the same time."""
    run = grid.world.all_gather(uuid.uuid4().hex.encode())[0].decode()
    claim = path / f".claim-{run}"
    leads, lock = False, None

    def open_or_create() -> None:
        nonlocal leads, lock
        path.mkdir(parents=True, exist_ok=True)
        leads = _claim_lead(claim)
        if leads:
            lock = _lock_folder(path)

    try:
        try:
            grid.run_together(open_or_create)
        finally:
            # Now every rank of this folder has tried to be the first.
            if leads:
                claim.unlink(missing_ok=True)
        yield Folder(path, grid.world.rank, leads)
    finally:
        if lock is not None:
            os.close(lock)


def _claim_lead(claim: Path) -> bool:
    """Whether this rank is the first of its run in this folder."""
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _lock_folder(path: Path) -> int:
    """Lock the folder; return the open file that has the lock."""
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _acquire(lock, path)
        os.ftruncate(lock, 0)
        os.write(lock, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode())
    except BaseException:
        os.close(lock)
        raise
    return lock


def _acquire(lock: int, path: Path) -> None:
    end = time.monotonic() + LOCK_SECONDS
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
                f"the file system of {path} has no locks ({error}); make sure that no other run uses the folder",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        time.sleep(PAUSE)


def _holder(lock: int) -> str:
    """The process that has the lock, if the file names it."""
    try:
        found = json.loads(os.pread(lock, 4096, 0))
        return f" (process {int(found['process'])} on {found['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
