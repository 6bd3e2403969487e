"""Write `answers.json` anew, where answers are meant to change: ``PYTHONPATH=src:tests python -m answers.write``."""

import json
import tempfile
from pathlib import Path

from answers.place import Place
from answers.problems import PROBLEMS, answer

FILE = Path(__file__).with_name("answers.json")


def main() -> None:
    """Solve all problems in this process, on its CPU."""
    blocks = []
    for name in sorted(PROBLEMS):
        with tempfile.TemporaryDirectory() as folder:
            found = answer(name, Place(Path(folder)))
        lines = [f"    {json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found)]
        blocks.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    FILE.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


if __name__ == "__main__":
    main()
