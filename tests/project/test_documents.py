"""The documents do what they show: every block of README.md and of the tutorial runs, and prints what stands there.

A document is a play in one folder and one namespace, from top to bottom:

- a block fenced as ``python`` runs; the block right behind it (fenced as ``text``, or indented) is what it prints, and
  without such a block it prints nothing;
- a ``python`` block whose first line is a comment with a file name, such as ``# ranks.py``, becomes that file instead;
- in a block fenced as ``console`` every line after ``$`` runs in a shell, with ``psfit``, ``torchrun`` and ``mpirun``;
  the lines up to the next ``$`` are what it prints, and without any its output is not compared;
- other blocks are not run.

Words must agree. Numbers agree if they differ by at most a thousandth, or are both smaller than 1e-4. Seconds, gaps,
counts of iterations and of screened features vary from machine to machine and agree always, and so does anything with
a line that is ``...``.
"""

import contextlib
import io
import re
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from launch import active, alone
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "docs/tutorial.md",
    "docs/choosing-kappa.md",
    "docs/constraints.md",
    "docs/certificate.md",
    "docs/estimators.md",
    "docs/federated.md",
    "docs/tables.md",
]
DOCUMENTS += ["docs/sindy.md"] if find_spec("pysindy") else []
FILE_NAME = re.compile(r"# (\S+\.py)\n")
NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")
# What takes the place of numbers that vary.
VARIES = [
    (re.compile(r"iterations +\d+"), "iterations ~"),
    (re.compile(r"\d+(\.\d+)? s\b"), "~ s"),
    (re.compile(r"gap +[-+.\de]*\d"), "gap ~"),
    (re.compile(r", [\d.]+% better than this one"), ""),
    (re.compile(r"a better one would have \d+ of these \w+( and none of \d+ others)?"), "~ better one"),
    (re.compile(r"\d+ \w+ (is|are) in no better one"), "~ better one"),
]


@dataclass(frozen=True)
class Step:
    """A block to run, and what it has to print; None if that is not compared."""

    kind: str
    text: str
    printed: str | None
    line: int


def steps(document: str) -> list[Step]:
    """The blocks that run, in order."""
    tokens = MarkdownIt("commonmark").parse(document)
    found = []
    for token, follower in zip(tokens, [*tokens[1:], None], strict=True):
        line = (token.map or [0])[0] + 1
        if token.type == "fence" and token.info == "python":
            named = FILE_NAME.match(token.content)
            shown = follower.content if follower is not None and _shows_output(follower) else ""
            found.append(Step(named.group(1) if named else "python", token.content, shown, line))
        elif token.type == "fence" and token.info == "console":
            found += _commands(token.content, line)
    return found


def _shows_output(token: Token) -> bool:
    return token.type == "code_block" or (token.type == "fence" and token.info == "text")


def _commands(text: str, line: int) -> list[Step]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {line}: a console block begins with $"
    found = []
    for part in parts[1:]:
        # A backslash at the end of a line continues it in the next one, as in a shell.
        command = re.match(r"(?:.*\\\n)*.*\n?", part).group()
        found.append(Step("console", command, part[len(command) :] or None, line))
    return found


def agree(expected: str, printed: str) -> bool:
    """Whether an output is the expected one."""
    chunks = [_words(chunk) for chunk in re.split(r"^ *\.\.\.$", expected, flags=re.MULTILINE)]
    words = _words(printed)
    if len(chunks) == 1:
        return _same(chunks[0], words)
    first, *middle, last = chunks
    if len(first) + len(last) > len(words) or not _same(first, words[: len(first)]):
        return False
    if last and not _same(last, words[-len(last) :]):
        return False
    at, end = len(first), len(words) - len(last)
    for chunk in middle:
        places = [k for k in range(at, end - len(chunk) + 1) if _same(chunk, words[k : k + len(chunk)])]
        if not places:
            return False
        at = places[0] + len(chunk)
    return True


def _words(text: str) -> list[str]:
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return text.split()


def _same(expected: list[str], printed: list[str]) -> bool:
    return len(expected) == len(printed) and all(map(_alike, expected, printed))


def _alike(expected: str, printed: str) -> bool:
    if NUMBER.sub("#", expected) != NUMBER.sub("#", printed):
        return False
    pairs = zip(_numbers(expected), _numbers(printed), strict=True)
    return all(abs(a - b) <= 1e-3 * abs(a) or max(abs(a), abs(b)) < 1e-4 for a, b in pairs)


def _numbers(word: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(word)]


def run_python(text: str, names: dict) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "<document>", "exec"), names)
    return printed.getvalue()


def run_command(text: str) -> str:
    """The programs of this environment, found as they are after it was activated."""
    launches = "torchrun" in text or "mpirun" in text
    variables = active(COLUMNS="100")
    with alone() if launches else contextlib.nullcontext():
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", text], capture_output=True, text=True, env=variables, timeout=300
            )
        except subprocess.TimeoutExpired as ended:
            raise AssertionError(f"$ {text}\nno end after 300 s\n{ended.stdout}\n{ended.stderr}") from None
    assert done.returncode == 0, f"$ {text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_shows_what_happens(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    names: dict = {"__name__": "__main__"}
    played = steps((ROOT / document).read_text())
    assert any(step.kind == "python" for step in played)
    for step in played:
        if step.kind == "python":
            printed = run_python(step.text, names)
        elif step.kind == "console":
            printed = run_command(step.text)
        else:
            Path(step.kind).write_text(step.text)
            continue
        if step.printed is not None:
            message = f"{document}, line {step.line}, promises\n{step.printed}\nand prints\n{printed}"
            assert agree(step.printed, printed), message
    plt.close("all")


@pytest.mark.parametrize(
    ("promised", "printed", "right"),
    [
        ("[ 4 17 31] 118.76", "[ 4 17 31] 118.7596", True),
        ("[ 4 17 31]", "[ 4 17 32]", False),
        ("objective 118.7", "objective 119.0", False),
        ("kept: bmi", "kept: bmi, s5", False),
        ("1.762507e+06", "1.762400e+06", True),
        ("-0.5", "0.5", False),
        ("1,024 samples", "1,024 samples", True),
        ("1,024 samples", "2,048 samples", False),
        ("0.000003", "0.0000021", True),
        ("below 7.5, gap 4.9e-11; done", "below 7.5, gap 0.031; done", True),
        ("iterations 34 in 0.04 s", "iterations 36 in 11.90 s", True),
        ("first\n...\nlast", "first\nmuch\nmore\nlast", True),
        ("first\n...\nlast", "first\nmuch\nmore", False),
        ("first\n...\nmuch\n...", "first\nso\nmuch\nmore", True),
        ("first\n...\nmuch\n...", "first\nmore", False),
        ("", "something", False),
    ],
)
def test_outputs_are_compared_with_care(promised, printed, right):
    assert agree(promised, printed) is right


def test_blocks_are_found_in_order():
    document = """
```python
print(1)
```

    1

```python
# ranks.py
print(2)
```

```console
$ python ranks.py | sort
2
$ psfit fit data.csv \\
    --kappa 3
```

```sh
make test
```
"""
    found = [(step.kind, step.text, step.printed) for step in steps(document)]
    assert found == [
        ("python", "print(1)\n", "1\n"),
        ("ranks.py", "# ranks.py\nprint(2)\n", ""),
        ("console", "python ranks.py | sort\n", "2\n"),
        ("console", "psfit fit data.csv \\\n    --kappa 3\n", None),
    ]


@pytest.mark.parametrize("page", [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_the_files_that_pages_name_exist(page):
    """Paths in backquotes, such as `problem/domain.py` inside the package or `tests/oracles.py` of the project."""
    named = re.findall(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.(?:py|md|toml))`", page.read_text())
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "src/psfit" / path).exists(), path
