"""The server's checkpoint: the results of all sums of a run, on disk. A stopped run goes on from them."""

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psfit.federated import ring
from psfit.federated.link import SumResult
from psfit.federated.masks import Place

FORMAT = 2


class LogError(ValueError):
    """A folder does not hold the checkpoint of this run."""


class SumLog:
    """The results of a run in a folder, one file each; without a folder, in memory.

    Attributes
    ----------
    run : str
        The name of the run. If clients leave, another run begins.
    left : tuple of str
        The clients that have left.
    """

    def __init__(self, folder: Path | None, about: dict[str, Any]) -> None:
        self.folder, self.about, self._results = folder, about, list[SumResult]()
        self.run, self.session, self.left = uuid.uuid4().hex, 0, tuple[str, ...]()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        head = folder / "run.json"
        if head.exists():
            self._resume(json.loads(head.read_text()), about)
        else:
            self._write_head()

    def __len__(self) -> int:
        return len(self._results)

    def since(self, number: int) -> list[SumResult]:
        """All results from a number on."""
        return self._results[number:]

    def append(self, result: SumResult) -> None:
        """Keep a result, before any client gets it."""
        if self.folder is not None:
            place = [result.place.session, result.place.number]
            head = {"run": self.run, "place": place, "members": list(result.members)}
            content = json.dumps(head).encode() + b"\n" + ring.to_bytes(result.words)
            self._write(self.folder / f"{len(self):06d}.sum", content)
        self._results.append(result)

    def leave_out(self, names: Sequence[str]) -> None:
        """Begin another run without some clients; sums with their numbers are not used again."""
        self.run, self.left, self._results = uuid.uuid4().hex, (*self.left, *names), []
        if self.folder is not None:
            # Files of the run before are known by its name, also if this program ends between these lines.
            self._write_head()
            for path in self.folder.glob("*.sum"):
                path.unlink()

    def next_session(self) -> int:
        """The number of a new session of keys; no number is used twice, also after a restart."""
        self.session += 1
        if self.folder is not None:
            self._write(self.folder / "session", str(self.session).encode())
        return self.session

    def _resume(self, head: dict[str, Any], about: dict[str, Any]) -> None:
        if head.get("format") != FORMAT or head.get("about") != about or self.folder is None:
            raise LogError(f"{self.folder} holds the checkpoint of another run; choose another folder, or delete it")
        self.run, self.left = head["run"], tuple(head["left"])
        session = self.folder / "session"
        self.session = int(session.read_text()) if session.exists() else 0
        for number, path in enumerate(sorted(self.folder.glob("*.sum"))):
            facts, _, data = path.read_bytes().partition(b"\n")
            found = json.loads(facts)
            if found["run"] != self.run:
                break
            if path.stem != f"{number:06d}" or found["place"][1] != number:
                raise LogError(f"{path} is not the next sum of the run; a file is missing or has been renamed")
            words = ring.from_bytes(data, len(data) // ring.BYTES)
            self._results.append(SumResult(Place(*found["place"]), tuple(found["members"]), words))

    def _write_head(self) -> None:
        head = {"format": FORMAT, "run": self.run, "left": self.left, "about": self.about}
        self._write(Path(self.folder or "", "run.json"), json.dumps(head).encode())

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        """Write a whole file or nothing."""
        part = path.with_suffix(".part")
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
