"""Stores of accounts, each test on SQLite and, with --engines, on a PostgreSQL server."""

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

import pytest
import sqlalchemy as sa

from dpbeam.accounting.accountant import account as guarantee
from dpbeam.accounting.events import ComposedEvent, GaussianEvent, PureEvent
from dpbeam.accounting.ledger import Ledger
from dpbeam.budget import store as stores
from dpbeam.budget.account import Charge, OverLimitError, limit_draft
from dpbeam.budget.charges import charge_of, make_limit
from dpbeam.budget.history import compose
from dpbeam.budget.store import Actor, BudgetStore, BudgetStoreError
from dpbeam.errors import InputError
from tests.budget.conftest import STORES, database
from tests.budget.entries import HOLDER, nobody_lives
from tests.support.examples import ROOT

BY = Actor("ann", "host", "test", "dpbeam")

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)


def opened(url: str, *, composition: str = "basic", epsilon: float = 1.0, delta: float = 1e-6) -> BudgetStore:
    store = BudgetStore(url, create=True)
    limit = make_limit(composition, epsilon, delta)
    store.create("logs", lambda account: [account.create(composition), limit_draft(limit)], BY)
    return store


def reserve(
    store: BudgetStore, release_id: str, epsilon: float = 0.1, delta: float = 1e-8, ledger: str = "{}"
):
    charge = Charge(epsilon, delta, relation="r")

    def decide(account):
        return account.reserve(release_id, "digest", charge, HOLDER, ledger, nobody_lives)

    return store.change("logs", decide, BY)


@everywhere
def test_what_is_written_is_read(store_url):
    reserve(opened(store_url), "a")
    account = BudgetStore(store_url).account("logs")
    assert [entry.kind for entry in account.entries] == ["create", "limit", "reserve"]
    last = account.entries[-1]
    assert (last.who, last.host, last.command, last.software) == ("ann", "host", "test", "dpbeam")
    assert last.at.endswith("Z") and len(last.at) == 20
    assert account.releases["a"].charge == Charge(0.1, 1e-8, relation="r")
    assert BudgetStore(store_url).datasets() == ["logs"]
    assert BudgetStore(store_url).ledgers("logs") == {"a": "{}"}


def test_an_entry_that_is_committed_outlives_a_power_cut(tmp_path):
    """EXTRA flushes the folder once the journal is gone; FULL, the default, leaves that to the next transaction."""
    store = opened(f"{tmp_path}/b.db")
    with store._engine.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"


@everywhere
def test_entries_are_only_added(store_url):
    store = opened(store_url)
    reserve(store, "a")
    for statement in (
        "UPDATE dpbeam_budget_entries SET details = '{}'",
        "DELETE FROM dpbeam_budget_entries",
        *(
            [
                "INSERT OR REPLACE INTO dpbeam_budget_entries SELECT * FROM dpbeam_budget_entries WHERE number = 2",
                "REPLACE INTO dpbeam_budget SELECT * FROM dpbeam_budget",
            ]
            if store._lite
            else []
        ),
        "UPDATE dpbeam_budget SET version = 2",
        "DELETE FROM dpbeam_budget",
    ):
        with (
            pytest.raises(sa.exc.DatabaseError, match=r"never changed or removed"),
            store._writing() as connection,
        ):
            connection.exec_driver_sql(statement)
    assert len(store.account("logs").entries) == 3
    source = pathlib.Path(stores.__file__).read_text()
    assert not any(call in source for call in (".update()", ".delete()", "DROP "))


@pytest.mark.engines
def test_a_role_that_runs_jobs_needs_little(postgresql):
    """SELECT and INSERT; it can change nothing, not even without the triggers, and open no store."""
    import psycopg

    url = database(postgresql)
    reserve(opened(url), "a")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("CREATE ROLE runner LOGIN")
        owner.execute("GRANT SELECT, INSERT ON dpbeam_budget, dpbeam_budget_entries TO runner")
        owner.execute("ALTER TABLE dpbeam_budget_entries DISABLE TRIGGER ALL")
    theirs = url.replace("dpbeam@", "runner@")
    reserve(BudgetStore(theirs), "b")
    with psycopg.connect(theirs) as runner, pytest.raises(psycopg.errors.InsufficientPrivilege):
        runner.execute("DELETE FROM dpbeam_budget_entries")
    with psycopg.connect(url) as owner:
        assert owner.execute("SELECT count(*) FROM dpbeam_budget_entries").fetchone() == (4,)


@everywhere
def test_two_who_knew_the_same_cannot_both_append(store_url, monkeypatch):
    """Even without the lock, the entry's number is taken once."""
    store = opened(store_url)
    monkeypatch.setattr(BudgetStore, "_lock", lambda *_: None)

    def late(account):
        draft = account.reserve("a", "digest", Charge(0.9, 1e-8), HOLDER, "{}", nobody_lives)
        rows = {"dataset": "logs", "number": 3, "at": "", "kind": "limit", "details": "{}", **vars(BY)}
        with store._engine.connect() as other:  # as if somebody had come in between
            if store._lite:
                with pytest.raises(sa.exc.OperationalError, match=r"locked"):
                    other.exec_driver_sql("PRAGMA busy_timeout = 10")
                    other.execution_options(dpbeam_writes=True).execute(stores._entries.insert(), rows)
                raise BudgetStoreError("SQLite locks the file")
            other.execute(stores._entries.insert(), rows)
            other.commit()
        return draft

    with pytest.raises(BudgetStoreError):
        store.change("logs", late, BY)


@everywhere
def test_a_refusal_leaves_nothing(store_url):
    store = opened(store_url)
    reserve(store, "a", 0.9)
    with pytest.raises(OverLimitError):
        reserve(store, "b", 0.2)
    assert len(store.account("logs").entries) == 3
    with pytest.raises(InputError, match=r"there is an account of dataset 'logs' already"):
        opened(store_url)


@everywhere
def test_an_account_is_opened_whole(store_url):
    """With its limit, or not at all."""
    store = BudgetStore(store_url, create=True)
    with pytest.raises(InputError):
        store.create(
            "x", lambda account: [account.create("basic"), limit_draft(make_limit("basic", -1, 0))], BY
        )
    assert store.datasets() == []
    with pytest.raises(
        InputError, match=r"there is no account of dataset 'x' in '.*'; open it: dpbeam budget create"
    ):
        store.account("x")


@everywhere
def test_a_newer_store_is_refused(store_url, monkeypatch):
    monkeypatch.setattr(stores, "VERSION", 2)
    opened(store_url)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"has version 2, this dpbeam knows version 1"):
        BudgetStore(store_url)


_RESERVER = """
import sys, threading
from dpbeam.budget.account import Charge, OverLimitError
from dpbeam.budget.store import Actor, BudgetStore
url, process, threads, epsilon = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
store, answers = BudgetStore(url), []
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
def one(n):
    arguments = (f"{process}-{n}", "digest", Charge(epsilon, 1e-8), {"host": "", "pid": n}, "{}", lambda holder: False)
    try:
        store.change("logs", lambda account: account.reserve(*arguments), Actor.this("test"))
        answers.append("reserved")
    except OverLimitError:
        answers.append("refused")
    except BaseException as error:
        answers.append(repr(error))
threads = [threading.Thread(target=one, args=(n,)) for n in range(threads)]
[t.start() for t in threads]; [t.join() for t in threads]
print(*answers, sep="\\n")
"""


@pytest.fixture
def in_memory():
    """A folder whose files never wait for a disk, if there is one: locks are the same there."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield folder


@everywhere
def test_a_hundred_at_once_never_overspend(store_url, in_memory):
    """Two processes of fifty threads reserve 0.02 each of a limit of 1, all at the same time: fifty get it."""
    if store_url.startswith("sqlite"):
        store_url = f"{in_memory}/budget.db"
    store = opened(store_url, delta=1e-4)
    argv = [sys.executable, "-c", _RESERVER, store_url]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*argv, str(n), "50", "0.02"], env=environment, **pipes) for n in range(2)]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [
        line for process in running for line in process.communicate(timeout=120)[0].split("\n") if line
    ]
    assert sorted(answers) == ["refused"] * 50 + ["reserved"] * 50
    account = store.account("logs")
    assert len(account.releases) == 50 and account.touched(Charge(0.1, 0.0))[0].left["epsilon"] == 0


class TestPlaces:
    def test_a_path_is_a_file_of_sqlite(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        opened("budget.db")
        assert BudgetStore("sqlite:///budget.db").place == f"sqlite:///{tmp_path}/budget.db"
        assert BudgetStore(str(tmp_path / "budget.db")).datasets() == ["logs"]

    @pytest.mark.parametrize(
        "url, message",
        [
            ("", "--budget: the name of the store is empty"),
            (
                "mysql://host/x",
                "--budget: 'mysql' is not supported; take a path, sqlite:///PATH or postgresql://...",
            ),
            ("sqlite://", "--budget: a store of SQLite is a file: sqlite:///PATH"),
            ("postgresql://host:port/x", "--budget: this is no URL of a database"),
            (
                "missing.db",
                "--budget: there is no budget store '.*missing.db'; make one: dpbeam budget create",
            ),
            (".", "--budget: '.*' is a folder; give the name of a file"),
        ],
    )
    def test_what_is_no_store(self, url, message, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError, match=rf"^{message}"):
            BudgetStore(url)
        assert os.listdir(tmp_path) == []

    def test_a_folder_that_is_missing(self, tmp_path):
        with pytest.raises(InputError, match=r"--budget: '.*/no' is no folder"):
            BudgetStore(f"{tmp_path}/no/b.db", create=True)

    def test_other_files(self, tmp_path):
        (tmp_path / "text").write_text(
            "no database, but long enough to be looked at by a reader of pages\n" * 20
        )
        with pytest.raises(InputError, match=r"--budget: 'sqlite:////.*/text': file is not a database"):
            BudgetStore(str(tmp_path / "text"))
        sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE x (y)")
        with pytest.raises(InputError, match=r"--budget: '.*other.db' holds no budget store; make one"):
            BudgetStore(str(tmp_path / "other.db"))

    def test_passwords_stay_unsaid(self):
        with pytest.raises(BudgetStoreError) as caught:
            BudgetStore("postgresql://ann:secret@127.0.0.1:1/x")
        assert "secret" not in str(caught.value) and "ann:***@127.0.0.1" in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("name", ["", " x", "x\n", "x" * 201, "a\x00b"])
    def test_names(self, name, tmp_path):
        with pytest.raises(InputError, match=r"^--dataset must be 1 to 200 printable characters"):
            BudgetStore(str(tmp_path / "b.db"), create=True).create(name, lambda account: [], BY)


class TestHistory:
    def ledger(self, sigma: float = 10.0, epsilon: float = 1.0, relation: str = "add/remove one user") -> str:
        event = ComposedEvent("gaussian", (GaussianEvent(sigma),))
        delta = guarantee(event, epsilon).delta
        return Ledger(
            "m", epsilon, max(delta, 1e-12), "gaussian", event, neighbouring_relation=relation
        ).to_json()

    def test_releases_compose(self, tmp_path):
        store = opened(str(tmp_path / "b.db"), epsilon=10.0, delta=1e-4)
        for n in range(9):
            reserve(store, f"r{n}", 1.0, 1e-12, self.ledger())
        store.change("logs", lambda account: account.give_back("r8", 11), BY)
        account = store.account("logs")
        composition = compose(account, account.releases.values(), store.ledgers("logs"))
        assert (composition.releases, composition.epsilon, float(composition.delta)) == (8, 8, 8e-12)
        together = guarantee(
            ComposedEvent("gaussian", (GaussianEvent(10 / 8**0.5),)), composition.tight_epsilon
        )
        assert composition.tight_delta == 1e-4 and together.delta == pytest.approx(1e-4, rel=1e-5)
        assert composition.private

    def test_nothing_composes_to_nothing(self, tmp_path):
        account = opened(str(tmp_path / "b.db")).account("logs")
        composition = compose(account, [], {})
        assert (composition.releases, composition.epsilon, composition.delta, composition.tight_epsilon) == (
            0,
            0,
            0,
            None,
        )

    def test_charges_of_ledgers(self):
        ledger = Ledger.from_json(self.ledger())
        assert charge_of(ledger, "basic").rho is None
        charge = charge_of(ledger, "zcdp")
        assert charge.rho == pytest.approx(1 / 200) and charge.rho > 1 / 200
        assert (charge.outside_delta, charge.cohort, charge.relation) == (0.0, "", "add/remove one user")
        pure = Ledger("m", 0.5, 0.0, "pure", ComposedEvent("pure", (PureEvent(0.5),)))
        assert charge_of(pure, "zcdp").amounts("zcdp")["rho"] == pytest.approx(0.125)

    def test_a_ledger_that_was_tampered_with_is_refused(self, tmp_path):
        store = opened(str(tmp_path / "b.db"))
        values = {**json.loads(self.ledger()), "delta": 1e-30}
        reserve(store, "a", ledger=json.dumps(values))
        account = store.account("logs")
        with pytest.raises(ValueError, match=r"costs delta .*, the budget is"):
            compose(account, account.releases.values(), store.ledgers("logs"))
