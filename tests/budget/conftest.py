"""Stores of accounts for tests: SQLite everywhere, and with --engines a PostgreSQL server of our own.

The server is that of Debian's package `postgresql`, run in a temporary folder by a user without privileges, reachable
by a socket alone. Where it is not installed the tests are skipped with a line that says so; where CI is set they fail.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_until

STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.engines)]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of a server without tables, its database named in the caller's `{}`."""
    programs = _programs()
    if programs is None:
        message = "PostgreSQL is not installed: apt-get install postgresql"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    user = _user()
    # Short: the path of a socket has at most 107 bytes.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dpbeam-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        data = folder / "data"
        made = [programs / "initdb", "-D", data, "-U", "dpbeam", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(made, check=True, user=user, cwd=folder, capture_output=True)
        log = undo.enter_context(open(folder / "log", "wb"))
        settings = [
            f"unix_socket_directories={folder}",
            "listen_addresses=",
            "max_connections=300",
            "fsync=off",
        ]
        argv = [programs / "postgres", "-D", data, *(word for each in settings for word in ("-c", each))]
        server = subprocess.Popen(argv, user=user, cwd=folder, stdout=log, stderr=log)
        undo.callback(server.wait)
        undo.callback(server.terminate)
        # Its socket is there a moment before it lets anybody in.
        ready = [programs / "pg_isready", "-q", "-h", folder]
        wait_until(lambda: subprocess.run(ready).returncode == 0, 60, "PostgreSQL")
        yield f"postgresql://dpbeam@/{{}}?host={folder}"


@pytest.fixture
def store_url(request, tmp_path) -> str:
    """URL of a store that is not there yet; parametrise it indirectly with STORES."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/budget.db"
    server = request.getfixturevalue("postgresql")
    return database(server)


def database(server: str) -> str:
    """URL of a fresh database."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.format(name)


def _programs() -> pathlib.Path | None:
    """The folder of the server's programs: on the PATH, or where Debian puts them."""
    initdb = shutil.which("initdb")
    folders = [pathlib.Path(initdb).resolve().parent] if initdb else []
    folders += sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def _user() -> str | None:
    """The server refuses to run as root: somebody else, None for whoever runs the tests."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
