"""The files of a run in the server's folder."""

from pathlib import Path

ORDER, MODEL, RESULT, FAILURE, SUMS = "order.json", "model.psfit", "result.json", "failure.txt", "sums"
ANSWERS = "answers.json"


def write_whole(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)
