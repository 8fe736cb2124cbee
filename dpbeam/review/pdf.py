"""A page printed to PDF by Chromium, where there is one: as a browser shows it, and tagged for screen readers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from dpbeam.errors import InputError

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chromium-headless-shell",
)
_SECONDS = 120


def find_chromium() -> str | None:
    """The first Chromium on the PATH; the environment's DPBEAM_CHROMIUM goes before."""
    named = os.environ.get("DPBEAM_CHROMIUM")
    return next((path for name in filter(None, (named, *_NAMES)) if (path := shutil.which(name))), None)


def print_to_pdf(page: str) -> bytes:
    """The PDF of a page.

    Raises:
      InputError: there is no Chromium, or it fails.
    """
    program = find_chromium()
    if program is None:
        raise InputError(
            "--pdf needs Chromium on the PATH, or in DPBEAM_CHROMIUM; print the page from any browser instead"
        )
    with tempfile.TemporaryDirectory(prefix="dpbeam-pdf-") as folder:
        source, target = Path(folder, "page.html"), Path(folder, "page.pdf")
        source.write_text(page, encoding="utf-8")
        command = [
            program,
            "--headless",
            *chromium_flags(folder),
            "--no-pdf-header-footer",
            f"--print-to-pdf={target}",
            source.as_uri(),
        ]
        try:
            subprocess.run(
                command, check=True, capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
            )
            return target.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError(f"--pdf: '{program}' cannot print the page: {type(error).__name__}") from None


def chromium_flags(folder: str) -> list[str]:
    """For a run that leaves nothing behind and asks nothing of the network.

    The superuser has no sandbox of Chromium's to be in; the page runs no script, and its policy loads nothing.
    """
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    quiet = ["--disable-gpu", "--disable-extensions", "--disable-background-networking", "--no-first-run"]
    return [*sandbox, *quiet, "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile"]
