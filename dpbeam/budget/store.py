"""Where accounts are kept: one table of entries that are only ever added, in SQLite or PostgreSQL.

Whoever appends to an account holds its lock from before it reads the entries until its own is committed: in SQLite the
write lock of the file (BEGIN IMMEDIATE, waiting up to a minute), in PostgreSQL an advisory lock of the dataset. The
entry's number is part of the primary key, so two writers that knew the same entries could not both append, even
without the lock. Triggers refuse UPDATE, DELETE and TRUNCATE. In PostgreSQL a role that runs jobs needs SELECT and
INSERT alone.

No connection is held while a job runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import sqlite3
import unicodedata
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError, SQLAlchemyError

from dpbeam.budget.account import DAMAGED, Account, Draft, Entry
from dpbeam.errors import BudgetError, SettingError, SetupError, StoreError, visible
from dpbeam.version import __version__

VERSION = 1
#: How long a writer waits for the others.
WAIT_SECONDS = 60
_LONGEST_NAME = 200
_LOCK_SPACE = 0x64706265  # "dpbe": the upper half of the numbers of our advisory locks

_tables = sa.MetaData()
_store = sa.Table(
    "dpbeam_budget",
    _tables,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("store", sa.String(32), nullable=False),
)
_entries = sa.Table(
    "dpbeam_budget_entries",
    _tables,
    sa.Column("dataset", sa.String(_LONGEST_NAME), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.String(20), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("release_id", sa.String(_LONGEST_NAME)),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("software", sa.Text, nullable=False),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("ledger", sa.Text),
)
_READ = [column for column in _entries.columns if column.name not in ("dataset", "ledger")]

_REFUSED = "entries of dpbeam are never changed or removed"
_PROTECT = {
    "sqlite": [
        f"CREATE TRIGGER {{table}}_{verb} BEFORE {verb.upper()} ON {{table}} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        for verb in ("update", "delete")
    ]
    + [  # INSERT OR REPLACE removes without asking the others
        "CREATE TRIGGER {table}_insert BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION dpbeam_budget_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$",
        "CREATE TRIGGER {table}_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION dpbeam_budget_append_only()",
    ],
}
_SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}

#: What a database says where the same command meets the same refusal again: SQLite, and PostgreSQL that lets nobody in.
_FOR_GOOD = (
    "file is not a database",
    "readonly database",
    "database disk image is malformed",
    "unable to open",
    "no such table",
    "no such column",
    "could not decode",
    "does not exist",
    "is not permitted to log in",
    "authentication failed",
    "no pg_hba.conf entry",
)
#: Classes of SQLSTATE, of whom PostgreSQL has let in: no such role or password, no such database, no right or no table.
_STATES_FOR_GOOD = ("28", "3D", "3F", "42")

Decide = Callable[[Account], "Draft | None"]


class BudgetStoreError(RuntimeError):
    """The store cannot be reached, or does not answer."""


@dataclass(frozen=True)
class Actor:
    """Who changes an account: user, machine, command and version of the software. Nothing about data."""

    who: str
    host: str
    command: str
    software: str

    @classmethod
    def this(cls, command: str) -> Actor:
        """The user of this process, as the system knows it: the environment may say anything."""
        try:
            who = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # a container without that user
            who = f"uid {os.getuid()}"
        return cls(visible(who), visible(socket.gethostname()), command, f"dpbeam {__version__}")


class BudgetStore:
    """Accounts in one database.

    Args:
      url: a path, `sqlite:///PATH` or `postgresql://...`.
      create: make what is missing.

    Raises:
      InputError: no URL of a store, no store there, or one of another version.
      BudgetStoreError: it cannot be reached.
    """

    def __init__(self, url: str, *, create: bool = False):
        self._url = checked_url(url)
        self.place = self._url.render_as_string(hide_password=True)
        self._lite = self._url.get_backend_name() == "sqlite"
        if self._lite:
            _check_file(str(self._url.database), create)
        self._engine = self._connected()
        with _store_errors(self.place):
            self.id = self._open(create)

    def _connected(self) -> sa.Engine:
        # No pool: a job takes hours between two statements.
        wait = {"timeout": WAIT_SECONDS} if self._lite else {"connect_timeout": WAIT_SECONDS // 2}
        engine = sa.create_engine(self._url, poolclass=sa.NullPool, connect_args=wait)
        if self._lite:
            sa.event.listen(engine, "connect", _connect)
            sa.event.listen(engine, "begin", _begin)
        return engine

    def _open(self, create: bool) -> str:
        if create:
            with self._writing() as connection:
                self._lock(connection, "")
                if not sa.inspect(connection).has_table(_store.name):
                    self._make(connection)
        with self._engine.begin() as connection:
            if not sa.inspect(connection).has_table(_store.name):
                raise StoreError(
                    f"--budget: '{self.place}' holds no budget store; make one: dpbeam budget create"
                )
            rows = connection.execute(sa.select(_store.c.version, _store.c.store)).all()
        if len(rows) != 1 or not isinstance(rows[0].store, str):
            raise StoreError(
                f"--budget: '{self.place}' does not name its version and itself once: restore a backup"
            )
        version, store = rows[0]
        if version != VERSION:
            raise StoreError(
                f"--budget: the store in '{self.place}' has version {version}, this dpbeam knows version {VERSION}"
            )
        return str(store)

    def _make(self, connection: sa.Connection) -> None:
        _tables.create_all(connection)
        for table in _tables.sorted_tables:
            same = " AND ".join(f"{column.name} = NEW.{column.name}" for column in table.primary_key)
            for statement in _PROTECT[self._url.get_backend_name()]:
                connection.exec_driver_sql(statement.format(table=table.name, same=same))
        connection.execute(_store.insert().values(version=VERSION, store=uuid.uuid4().hex))

    def _writing(self) -> contextlib.AbstractContextManager[sa.Connection]:
        return self._engine.execution_options(dpbeam_writes=True).begin()

    def _lock(self, connection: sa.Connection, dataset: str) -> None:
        if not self._lite:  # SQLite has the whole file locked by now
            key = sa.literal(_LOCK_SPACE << 32 | zlib.crc32(dataset.encode()), sa.BigInteger)
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))

    def datasets(self) -> list[str]:
        """All accounts, by name."""
        with _store_errors(self.place), self._engine.begin() as connection:
            return _names(connection)

    def twins(self, dataset: str) -> list[str]:
        """Accounts whose names people take for this one: they differ from it in case, or in width of letters."""
        return _twins(dataset, self.datasets())

    def account(self, dataset: str) -> Account:
        """The account of a dataset as it is now.

        Raises:
          InputError: there is none, or can be none of that name.
        """
        check_name("--dataset", dataset)
        with _store_errors(self.place), self._engine.begin() as connection:
            account = self._read(connection, dataset)
        return self._existing(account)

    def _existing(self, account: Account) -> Account:
        if not account.exists:
            twins = "".join(f", but one of '{name}'" for name in self.twins(account.dataset)[:1])
            raise BudgetError(
                f"--dataset: there is no account of dataset '{account.dataset}' in '{self.place}'{twins}; open it: "
                "dpbeam budget create"
            )
        return account

    def _read(self, connection: sa.Connection, dataset: str) -> Account:
        rows = sa.select(*_READ).where(_entries.c.dataset == dataset).order_by(_entries.c.number)
        account = Account(dataset, [])
        for row in connection.execute(rows).mappings():
            try:
                account.take(_entry(row))
            except DAMAGED:
                raise StoreError(
                    f"--budget: '{self.place}': entry {len(account.entries) + 1} of dataset '{dataset}' is not what "
                    "dpbeam writes: restore a backup of the store, or use the dpbeam that wrote it"
                ) from None
        return account

    def ledgers(self, dataset: str) -> dict[str, str]:
        """The ledger of every release id: that of what was published, otherwise of the latest reservation."""
        wanted = sa.select(_entries.c.release_id, _entries.c.ledger).where(
            _entries.c.dataset == dataset, _entries.c.ledger.is_not(None)
        )
        with _store_errors(self.place), self._engine.begin() as connection:
            return {
                str(key): str(text) for key, text in connection.execute(wanted.order_by(_entries.c.number))
            }

    def create(self, dataset: str, drafts: Callable[[Account], list[Draft]], by: Actor) -> Account:
        """Open an account.

        Args:
          drafts: all of its first entries, of which it has all or none.

        Raises:
          InputError: there is one, or one that people would take for it.
        """
        check_name("--dataset", dataset)
        return self._append(dataset, drafts, by, new=True)

    def change(self, dataset: str, decide: Decide, by: Actor) -> Account:
        """Append what `decide` says of the account as nobody else changes it; the account thereafter.

        Raises: InputError where there is no account; as `decide` does; BudgetStoreError.
        """
        check_name("--dataset", dataset)

        def drafts(account: Account) -> list[Draft]:
            draft = decide(self._existing(account))
            return [] if draft is None else [draft]

        return self._append(dataset, drafts, by)

    def _append(
        self, dataset: str, drafts: Callable[[Account], list[Draft]], by: Actor, *, new: bool = False
    ) -> Account:
        with _store_errors(self.place), self._writing() as connection:
            if new:
                self._lock(connection, "")  # no other name comes meanwhile
                for twin in _twins(dataset, _names(connection)):
                    raise BudgetError(
                        f"--dataset: there is an account of dataset '{twin}', and '{dataset}' differs from it in case "
                        "or width of letters alone: runs on one dataset could be charged to both; take that account, "
                        "or another name"
                    )
            self._lock(connection, dataset)
            account = self._read(connection, dataset)
            for draft in drafts(account):
                if draft.release_id is not None:
                    check_name("--release_id", draft.release_id)
                entry = Entry(
                    len(account.entries) + 1,
                    _now(),
                    draft.kind,
                    draft.release_id,
                    **vars(by),
                    details=draft.details,
                )
                account.take(entry)
                details = json.dumps(dict(draft.details), sort_keys=True, allow_nan=False)
                row = {**vars(entry), "dataset": dataset, "details": details, "ledger": draft.ledger}
                connection.execute(_entries.insert(), row)
            return account


def check_name(flag: str, name: str) -> None:
    """Refuse a name that is empty, long, or not printable.

    Raises:
      InputError: naming the flag.
    """
    if not name or len(name) > _LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise SettingError(f"{flag} must be 1 to {_LONGEST_NAME} printable characters, got {name[:50]!r}")


def _names(connection: sa.Connection) -> list[str]:
    names = sa.select(_entries.c.dataset).where(_entries.c.number == 1).order_by(_entries.c.dataset)
    return [str(name) for name in connection.execute(names).scalars()]


def _twins(dataset: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name != dataset and _folded(name) == _folded(dataset)]


def _folded(name: str) -> str:
    """The same for names that differ in case or in width of letters."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _entry(row: sa.RowMapping) -> Entry:
    """Raises errors of DAMAGED."""
    details = json.loads(row["details"])
    texts = [value for name, value in row.items() if name not in ("number", "release_id")]
    if not isinstance(details, dict) or not all(isinstance(text, str) for text in texts):
        raise TypeError("not an entry")
    return Entry(**{**row, "details": details})


def checked_url(url: str) -> sa.URL:
    """The URL for the driver that we use; a path becomes one of SQLite."""
    if not url:
        raise SettingError("--budget: the name of the store is empty")
    try:
        url.encode()
    except UnicodeEncodeError:
        raise SettingError("--budget: the name of the store is not valid UTF-8") from None
    if "://" not in url:
        return sa.URL.create("sqlite", database=os.path.abspath(os.path.expanduser(url)))
    try:
        database = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingError(
            "--budget: this is no URL of a database; expected a path, sqlite:///PATH or postgresql://..."
        ) from None
    if database.drivername not in _SCHEMES:
        raise SettingError(
            f"--budget: '{database.drivername}' is not supported; take a path, sqlite:///PATH or postgresql://..."
        )
    if database.drivername == "sqlite":
        if not database.database or database.database == ":memory:" or database.database.startswith("file:"):
            raise SettingError("--budget: a store of SQLite is a file: sqlite:///PATH")
        return database.set(database=os.path.abspath(database.database))
    return database.set(drivername=_SCHEMES[database.drivername])


def _check_file(path: str, create: bool) -> None:
    """SQLite would make an empty file where there is none."""
    if os.path.isdir(path):
        raise StoreError(f"--budget: '{path}' is a folder; give the name of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreError(f"--budget: '{path}' is no file")
    if not create and not os.path.exists(path):
        raise StoreError(f"--budget: there is no budget store '{path}'; make one: dpbeam budget create")
    if create and not os.path.isdir(os.path.dirname(path)):
        raise StoreError(f"--budget: '{os.path.dirname(path)}' is no folder")


def _connect(raw: sqlite3.Connection, _: object) -> None:
    raw.isolation_level = None  # the driver would begin transactions by itself, and too late
    # The default does not flush the removal of the journal. A power cut may bring it back, and then SQLite undoes the
    # last transaction, after which something was published.
    raw.execute("PRAGMA synchronous = EXTRA")


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("dpbeam_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.contextmanager
def _store_errors(place: str) -> Iterator[None]:
    """Trouble of the database in one line that names the place, without its password."""
    try:
        yield
    except IntegrityError as error:
        raise BudgetStoreError(
            f"--budget: another run changed '{place}' at the same time: {_reason(error)}"
        ) from None
    except DatabaseError as error:
        state = str(getattr(error.orig, "sqlstate", None))
        if state.startswith(_STATES_FOR_GOOD) or any(text in str(error.orig).lower() for text in _FOR_GOOD):
            raise StoreError(f"--budget: '{place}': {_reason(error)}") from None
        raise BudgetStoreError(f"--budget: '{place}': {_reason(error)}") from None
    except SQLAlchemyError as error:
        raise BudgetStoreError(f"--budget: '{place}': {type(error).__name__}") from None
    except ImportError as error:
        raise SetupError(f"--budget: '{place}' needs {error.name}; install dpbeam[budget]") from None


def _reason(error: DatabaseError) -> str:
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return lines[0] if lines else type(error.orig).__name__
