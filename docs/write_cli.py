"""Write cli.md, the reference of the command line, from the commands themselves: ``python docs/write_cli.py``."""

from pathlib import Path
from typing import Any

from typer.main import get_command

from psfit.cli import app
from psfit.cli.examples import EXAMPLES

PAGE = Path(__file__).parent / "cli.md"
HEAD = """# Command line

`psfit COMMAND --help` shows the same. From a file to a report and predictions:

```sh
psfit inspect sales.csv --target price
psfit fit sales.csv --target price --kappa 8 --categories group --missing fill --out model.psfit
psfit score model.psfit test.csv
psfit report model.psfit test.csv --out report.html
psfit predict model.psfit new.csv --out predictions.csv
```

`psfit path sales.csv --target price --cv 5 --out model.psfit` chooses kappa by cross-validation.
Under torchrun or mpirun only the first rank prints: text, one JSON object with `--json`, nothing with `--quiet`.
`--config file.toml` reads options from a file; `psfit --install-completion` installs completion for the shell.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | an error, which is printed |
| 2 | wrong usage |
| 130, 143 | stopped by Ctrl-C or SIGTERM, with the best answer so far: `fit` and `path` write it, a choice prints it |
"""


def write_page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for name, command in get_command(app).commands.items():
        parts.append(f"## psfit {name}\n\n{' '.join(command.help.split())}\n")
        # A group has commands of its own.
        for part, own in getattr(command, "commands", {}).items():
            parts += [f"### psfit {name} {part}\n\n{' '.join(own.help.split())}\n", _write_options(own)]
        if not hasattr(command, "commands"):
            parts.append(_write_options(command))
        parts.append("```sh\n" + "\n".join(EXAMPLES[name.replace("-", "_")]) + "\n```\n")
    return "\n".join(parts)


def _write_options(command: Any) -> str:
    """The table of a command's options."""
    rows = ["| option | meaning |", "|---|---|"]
    for parameter in command.params:
        if parameter.name == "help":
            continue
        names = " ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
        if parameter.param_type_name == "argument":
            names = f"`{parameter.name.upper()}`"
        choices = [getattr(one, "value", one) for one in getattr(parameter.type, "choices", ())]
        said = (parameter.help or "").replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
        said += f" One of {', '.join(f'`{one}`' for one in choices)}." if choices else ""
        rows.append(f"| {names} | {said} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(write_page())
