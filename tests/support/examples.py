"""Examples of the documents: code blocks after the comment `<!-- run -->`, to be run as a reader would.

A block, indented or fenced, is Python if its fence says so or if it parses as Python, else it is for the shell.
`<!-- run on ENGINE -->` marks one that needs an engine of tests/engines, `<!-- not run: REASON -->` one that cannot run
in a test, and `<!-- output -->` what the block above prints, where `...` stands for anything.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import gzip
import io
import os
import re
import shlex
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from markdown_it import MarkdownIt

from dpbeam.cli import main

ROOT = Path(__file__).resolve().parents[2]
_MARK = re.compile(r"<!--\s*(run(?: on [\w-]+)?|output|not run: .+?)\s*-->")


@dataclass(frozen=True)
class Block:
    """A code block: its first line in the document, `python` or `shell`, its text, and the mark above it or None."""

    line: int
    language: str
    code: str
    mark: str | None


def _language(info: str, code: str) -> str:
    if info.strip():
        return "python" if info.split()[0] in ("python", "py") else "shell"
    try:
        ast.parse(code)
    except SyntaxError:
        return "shell"
    return "python"


def blocks(text: str) -> list[Block]:
    """All code blocks of a Markdown text, in order.

    Raises:
      ValueError: a comment speaks of running but is no mark, no code block follows a mark, or an output follows no
        block that runs.
    """
    examples: list[Block] = []
    mark: str | None = None
    for token in MarkdownIt().parse(text):
        if token.type in ("code_block", "fence") and token.map:
            if mark == "output" and not (examples and examples[-1].mark in ("run", "output")):
                raise ValueError(f"line {token.map[0] + 1}: an output, and no block above it that runs")
            examples.append(
                Block(token.map[0] + 1, _language(token.info, token.content), token.content, mark)
            )
            mark = None
            continue
        if mark:
            raise ValueError(f"no code block follows <!-- {mark} -->")
        if token.type == "html_block" and re.match(r"<!--\s*((not\s)?\s*run|output)\b", token.content):
            known = _MARK.fullmatch(token.content.strip())
            if not known:
                raise ValueError(
                    f"neither <!-- run --> nor <!-- not run: REASON --> nor <!-- output -->: {token.content.strip()}"
                )
            mark = known[1]
    if mark:
        raise ValueError(f"no code block follows <!-- {mark} -->")
    return examples


def prints(expected: str, printed: str) -> bool:
    """Whether a program printed what a document shows: white space counts once, `...` stands for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, printed, flags)


def dpbeam_commands(code: str) -> list[list[str]] | None:
    """The arguments of each line's `dpbeam`; None if anything in the code is for a shell."""
    commands = []
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quote that goes over several lines
            return None
        if any(set(word) <= set("();<>|&") for word in words) or re.search(r"[$`~]", line):
            return None
        if words and words[0] != "dpbeam":
            return None
        commands += [words[1:]] if words else []
    return commands


@contextlib.contextmanager
def _working_in(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch("tempfile.tempdir", environment["TMPDIR"]),
            mock.patch("os.sched_getaffinity", lambda _: {0}, create=True),  # experiments start no processes
        ):
            yield
    finally:
        os.chdir(before)


def _run_python(code: str) -> int:
    """Exit code of a program, in a module `__main__` of its own."""
    module, ours = types.ModuleType("__main__"), sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        exec(compile(code, "<example>", "exec"), vars(module))
    except (Exception, SystemExit):
        traceback.print_exc()
        return 1
    finally:
        sys.modules["__main__"] = ours
    return 0


class Workspace:
    """A folder as the documents assume it: the sources' folders, data, `dpbeam` on the PATH.

    logs/*.parquet: columns user_id and query, 2,000 users. corpus/*.txt.gz: 2,000 lines of the bundled sample.
    market: 20,000 agents that want five resources.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("configs", "docs", "dpbeam", "lab", "scripts"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "logs").mkdir()
        (folder / "corpus").mkdir()
        rng = np.random.default_rng(9)
        user = np.repeat(np.arange(2_000), 8)
        query = (2_000 ** rng.random(len(user))).astype(int)
        for part in range(2):
            table = pa.table(
                {"user_id": user[part::2], "query": pa.array([f"query {i}" for i in query[part::2].tolist()])}
            )
            pq.write_table(table, folder / "logs" / f"2026-11-0{part + 1}.parquet")
        with gzip.open(ROOT / "dpbeam" / "data" / "wordnet_glosses.txt.gz", "rb") as sample:
            lines = sample.read().splitlines(keepends=True)[:2_000]
        (folder / "corpus" / "glosses.txt.gz").write_bytes(gzip.compress(b"".join(lines), 1))
        (folder / "market").mkdir()
        agents = {"agent": [f"agent {n}" for n in range(20_000)], "value": rng.random(20_000)}
        demands = {f"r{n}": rng.random(20_000) for n in range(5)}
        pq.write_table(pa.table(agents | demands), folder / "market" / "agents.parquet")
        (folder / "market" / "supplies.yaml").write_text("".join(f"{name}: 2000\n" for name in demands))
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, command in {"python": "", "python3": "", "dpbeam": " -m dpbeam.cli"}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{command} "$@"\n')
            (programs / name).chmod(0o755)
        (folder / ".venv" / ".installed-budget").touch()
        (folder / "tmp").mkdir()
        # Scripts install into the folder's own .venv, whatever DPBEAM_VENV says of that of the tests.
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "DPBEAM_VENV"},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder / "tmp"),
        }

    def run(
        self, block: Block, seconds: float = 120, *, apart: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run one block to its end; the shell stops at the first command that fails.

        Python and lines of `dpbeam` alone run in this process, which saves them the start of Python and the import of
        Beam, but with `apart`.
        """
        if block.language == "python" and not apart:
            return self._run_here([functools.partial(_run_python, block.code)])
        if commands := not apart and dpbeam_commands(block.code):
            return self._run_here([functools.partial(main, argv) for argv in commands])
        argv = ["bash", "-euo", "pipefail", "-c", block.code]
        if block.language == "python":
            argv = [sys.executable, "-c", block.code]
        return subprocess.run(
            argv,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )

    def _run_here(self, programs: list[Callable[[], int]]) -> subprocess.CompletedProcess[str]:
        streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
        code = 0
        with (
            _working_in(self.folder, self.environment),
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
        ):
            for program in programs:
                code = code or program()
        out, err = (stream.buffer.getvalue().decode() for stream in streams)
        return subprocess.CompletedProcess(["dpbeam"], code, out, err)
