"""The files of a run in the server's folder."""

from pathlib import Path

ORDER, MODEL, RESULT, FAILURE, SUMS = "order.json", "model.psfit", "result.json", "failure.txt", "sums"
ANSWERS = "answers.json"
# The number of the process of the ServerApp, which outlives a SuperLink that is killed.
SERVER_APP = "serverapp.pid"


def write_whole(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)
