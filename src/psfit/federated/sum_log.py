"""The server's checkpoint: the results of all sums of a run, on disk. A stopped run goes on from them."""

import json
import os
import uuid
from pathlib import Path
from typing import Any

from psfit.federated import ring
from psfit.federated.link import SumResult
from psfit.federated.masks import Place

FORMAT = 1


class LogError(ValueError):
    """A folder does not hold the checkpoint of this run."""


class SumLog:
    """The results of a run in a folder, one file each; without a folder, in memory."""

    def __init__(self, folder: Path | None, about: dict[str, Any]) -> None:
        self.folder, self._results = folder, list[SumResult]()
        self.run, self.session = uuid.uuid4().hex, 0
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        head = folder / "run.json"
        if head.exists():
            self._resume(json.loads(head.read_text()), about)
        else:
            self._write(head, json.dumps({"format": FORMAT, "run": self.run, "about": about}).encode())

    def __len__(self) -> int:
        return len(self._results)

    def since(self, number: int) -> list[SumResult]:
        """All results from a number on."""
        return self._results[number:]

    def append(self, result: SumResult) -> None:
        """Keep a result, before any client gets it."""
        if self.folder is not None:
            head = {"place": [result.place.session, result.place.number], "members": list(result.members)}
            content = json.dumps(head).encode() + b"\n" + ring.to_bytes(result.words)
            self._write(self.folder / f"{len(self):06d}.sum", content)
        self._results.append(result)

    def next_session(self) -> int:
        """The number of a new session of keys; no number is used twice, also after a restart."""
        self.session += 1
        if self.folder is not None:
            self._write(self.folder / "session", str(self.session).encode())
        return self.session

    def _resume(self, head: dict[str, Any], about: dict[str, Any]) -> None:
        if head.get("format") != FORMAT or head.get("about") != about or self.folder is None:
            raise LogError(f"{self.folder} holds the checkpoint of another run; choose another folder, or delete it")
        self.run = head["run"]
        session = self.folder / "session"
        self.session = int(session.read_text()) if session.exists() else 0
        for number, path in enumerate(sorted(self.folder.glob("*.sum"))):
            facts, _, data = path.read_bytes().partition(b"\n")
            found = json.loads(facts)
            if path.stem != f"{number:06d}" or found["place"][1] != number:
                raise LogError(f"{path} is not the next sum of the run; a file is missing or has been renamed")
            words = ring.from_bytes(data, len(data) // ring.BYTES)
            self._results.append(SumResult(Place(*found["place"]), tuple(found["members"]), words))

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        """Write a whole file or nothing."""
        part = path.with_suffix(".part")
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
