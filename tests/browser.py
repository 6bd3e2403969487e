"""Pages in a real browser: Chromium without a window."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")


def run(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page; return the browser's output, with the console's messages in its errors."""
    always = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
    # Containers have little shared memory.
    always += ["--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=2000"]
    return subprocess.run(
        [str(CHROMIUM), *always, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )


def console(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the page itself wrote to the console."""
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def after(page: Path, folder: Path, script: str) -> str:
    """The page's document once a script, appended to a copy of it, has run."""
    copy = folder / f"copy-of-{page.name}"
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    done = run(copy, folder, "--dump-dom")
    assert not console(done)
    return done.stdout
