"""Stores of accounts that are damaged, or that let nobody in: one line and exit code 2, of every verb and of a run."""

import os
import pwd
import shutil
import socket
import sqlite3

import pytest

from dpbeam.budget.store import Actor, BudgetStore
from dpbeam.cli import main
from dpbeam.errors import InputError
from tests.budget.conftest import database, postgresql  # noqa: F401  (fixture)
from tests.budget.test_store import opened
from tests.jobs.conftest import account, create, flags, place, release, when_run  # noqa: F401  (fixture)

LIMIT = ["--epsilon=2", "--delta=1e-6"]
VERBS = {
    "show": [],
    "show all": [],
    "history": [],
    "limit": LIMIT,
    "resolve": ["--release_id=night"],
}
EVERY = (*VERBS, "run")
ENTRIES = "UPDATE dpbeam_budget_entries SET"
# Of the account: create, limit, reserve, publish, commit.
DAMAGE = {
    "no table of entries": "DROP TABLE dpbeam_budget_entries",
    "no column": "ALTER TABLE dpbeam_budget_entries DROP COLUMN command",
    "no version": "DELETE FROM dpbeam_budget",
    "two stores": "INSERT INTO dpbeam_budget VALUES (2, 'other')",
    "another version": "UPDATE dpbeam_budget SET version = 7",
    "a name of the store that is no text": "UPDATE dpbeam_budget SET store = x'00'",
    "an entry that is missing": "DELETE FROM dpbeam_budget_entries WHERE number = 3",
    "a number that is none": f"{ENTRIES} number = 'x' WHERE number = 5",
    "an unknown kind": f"{ENTRIES} kind = 'approve' WHERE number = 5",
    "details cut short": f"{ENTRIES} details = '{{\"composition' WHERE number = 1",
    "details that are no object": f"{ENTRIES} details = '[]' WHERE number = 5",
    "details of another encoding": f"{ENTRIES} details = CAST(x'ff22' AS TEXT) WHERE number = 3",
    "details nested too deeply": f"{ENTRIES} details = replace(hex(zeroblob(60000)), '00', '[') WHERE number = 3",
    "an operator that is no text": f"{ENTRIES} who = x'00' WHERE number = 4",
    "a cost below zero": f"{ENTRIES} details = json_set(details, '$.charge.epsilon', -5) WHERE number = 3",
    "a cost that is a text": f"{ENTRIES} details = json_set(details, '$.charge.epsilon', '0.1') WHERE number = 3",
    "a cost that is null": f"{ENTRIES} details = json_set(details, '$.charge.delta', NULL) WHERE number = 3",
    "a cost that is no number": f"{ENTRIES} details = replace(details, '0.6', 'NaN') WHERE number = 3",
    "a cost of unknown fields": f"{ENTRIES} details = json_set(details, '$.charge.x', 1) WHERE number = 3",
    "no holder": f"{ENTRIES} details = json_remove(details, '$.holder') WHERE number = 3",
    "a holder without a process": f"{ENTRIES} details = json_set(details, '$.holder.pid', 'x') WHERE number = 3",
    "an unknown composition": f'{ENTRIES} details = \'{{"composition": "rdp"}}\' WHERE number = 1',
    "a limit below zero": f"{ENTRIES} details = json_set(details, '$.amounts.delta', -1) WHERE number = 2",
    "a limit without an amount": f"{ENTRIES} details = json_remove(details, '$.amounts.epsilon') WHERE number = 2",
    "a limit of no days": f"{ENTRIES} details = json_set(details, '$.days', 'x') WHERE number = 2",
    "a limit of an unknown period": f"{ENTRIES} details = json_set(details, '$.period', 'moon') WHERE number = 2",
    "a state that does not follow": f"{ENTRIES} kind = 'return' WHERE number = 5",
    "a reservation twice": f"{ENTRIES} kind = 'reserve', details = (SELECT details FROM dpbeam_budget_entries "
    "WHERE number = 3) WHERE number = 4",
    "a reservation of nothing": f"{ENTRIES} release_id = NULL WHERE number = 3",
    "a release that is not there": f"{ENTRIES} release_id = 'other' WHERE number = 4",
}
#: What only some verbs look at.
IN_PART = {
    "no place of the output": (
        f"{ENTRIES} details = '{{\"output\": {{}}}}' WHERE number = 4",
        ("resolve", "run"),
    ),
    "a ledger that is none": (f"{ENTRIES} ledger = '{{' WHERE number = 4", ("history",)),
    "a ledger of another kind": (f"{ENTRIES} ledger = '[]' WHERE number = 4", ("history",)),
    "no ledger": (f"{ENTRIES} ledger = NULL", ("history",)),
}


def budget(verb: str, store: str = "b.db") -> int:
    dataset = [] if verb == "show all" else ["--dataset=logs"]
    return main(["budget", verb.split()[0], f"--budget={store}", *dataset, *VERBS[verb], "--quiet"])


def refused(capsys, verb: str, *, store: str = "b.db") -> str:
    """The one line of a verb, or of a run."""
    capsys.readouterr()
    assert (main(flags(f"--budget={store}")) if verb == "run" else budget(verb, store)) == 2, verb
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Error" not in err, (verb, err)
    return err


def test_damaged(place, monkeypatch, capsys):  # noqa: F811
    assert main(flags()) == 0
    when_run(monkeypatch, lambda: pytest.fail("ran"))
    os.rename("b.db", "whole.db")
    damages = {name: (statement, EVERY) for name, statement in DAMAGE.items()} | IN_PART
    for name, (statement, verbs) in damages.items():
        shutil.copy("whole.db", "b.db")
        with sqlite3.connect("b.db") as raw:
            for (trigger,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                raw.execute(f"DROP TRIGGER {trigger}")
            raw.execute(statement)
        raw.close()
        for verb in verbs:
            assert ": error: --budget: " in refused(capsys, verb) or verb == "run", name
        for verb in set(VERBS) - set(verbs):
            assert budget(verb) == 0, name


@pytest.mark.engines
class TestPostgresql:
    """A server that lets nobody in, not to this database, or not to the tables."""

    def stores(self, server: str) -> dict[str, str]:
        import psycopg

        url = database(server)
        opened(url)
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("CREATE ROLE stranger LOGIN")
            owner.execute("CREATE ROLE nologin")
        return {
            "does not exist": url.replace("dpbeam@", "nobody_here@"),
            "is not permitted to log in": url.replace("dpbeam@", "nologin@"),
            'database "missing" does not exist': server.format("missing"),
            "permission denied for table": url.replace("dpbeam@", "stranger@"),
        }

    def test_refused(self, postgresql, place, capsys):  # noqa: F811
        for reason, url in self.stores(postgresql).items():
            for verb in EVERY:
                err = refused(capsys, verb, store=url)
                assert "error: --budget: 'postgresql" in err and reason in err
        capsys.readouterr()
        stranger = database(postgresql).replace("dpbeam@", "stranger@")
        assert main(["budget", "create", f"--budget={stranger}", "--dataset=x", *LIMIT]) == 2
        assert "permission denied for schema public" in capsys.readouterr().err


class TestNames:
    @pytest.mark.parametrize("name", ["Logs", "LOGS", "\uff4c\uff4f\uff47\uff53", "lo\u0067\u017f"])
    def test_a_name_that_people_take_for_another_is_refused(self, name, place, capsys):  # noqa: F811
        capsys.readouterr()
        assert main(["budget", "create", "--budget=b.db", f"--dataset={name}", *LIMIT]) == 2
        assert (
            f"error: --dataset: there is an account of dataset 'logs', and '{name}' differs"
            in capsys.readouterr().err
        )
        assert BudgetStore("b.db").datasets() == ["logs"]
        for argv in (["budget", "show", "--budget=b.db", f"--dataset={name}"], flags(f"--dataset={name}")):
            assert main(argv) == 2
            assert f"there is no account of dataset '{name}' in 'sqlite:///" in (
                err := capsys.readouterr().err
            )
            assert "', but one of 'logs'; open it" in err

    def test_older_accounts_stay_and_are_named(self, place, monkeypatch, capsys):  # noqa: F811
        with monkeypatch.context() as patch:
            patch.setattr("dpbeam.budget.store._folded", lambda name: name)
            create("Logs", "--epsilon=1")
        create("other", "--epsilon=1")
        warning = "there is an account of dataset 'Logs' beside that of 'logs', and their names differ"
        for argv in (flags(), ["budget", "show", "--budget=b.db", "--dataset=logs"]):
            capsys.readouterr()
            assert main(argv) == 0
            assert capsys.readouterr().err.count(warning) == 1
        assert release().state == "committed"
        assert main(["budget", "show", "--budget=b.db", "--dataset=other"]) == 0
        assert capsys.readouterr().err == ""


class TestOperator:
    ESCAPE = "\x1b[31mroot"

    def test_is_the_one_whom_the_system_knows(self, place, monkeypatch):  # noqa: F811
        for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
            monkeypatch.setenv(name, self.ESCAPE)
        monkeypatch.setattr(socket, "gethostname", lambda: "host\x1b")
        assert main(flags()) == 0
        entries = account().entries
        assert {entry.who for entry in entries} == {pwd.getpwuid(os.getuid()).pw_name}
        assert {entry.host for entry in entries[2:]} == {"host\\x1b"}

    def test_may_have_no_name(self, monkeypatch):
        monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
        assert Actor.this("test").who == f"uid {os.getuid()}"

    def test_older_entries_do_not_command_the_terminal(self, place, capsys):  # noqa: F811
        store = BudgetStore("b.db")
        by = Actor(self.ESCAPE, "host\x1b]0;x\x07", "com\x1bmand", "dpbeam")
        store.change(
            "logs", lambda account: account.reserve("x", "d", *_reservation(), lambda holder: False), by
        )
        capsys.readouterr()
        assert (
            main(["budget", "history", "--budget=b.db", "--dataset=logs", "--json"]) == 2
        )  # its ledger is none
        with sqlite3.connect("b.db") as raw:
            raw.execute(
                "INSERT INTO dpbeam_budget_entries SELECT dataset, 4, at, 'return', release_id, who, host, "
                "command, software, '{}', NULL FROM dpbeam_budget_entries WHERE number = 3"
            )
        raw.close()
        capsys.readouterr()
        for more in ([], ["--json"]):
            assert main(["budget", "history", "--budget=b.db", "--dataset=logs", *more]) == 0
            out = capsys.readouterr().out
            assert "\x1b" not in out and "\x07" not in out and "[31mroot" in out


def _reservation() -> tuple:
    from dpbeam.budget.account import Charge
    from tests.budget.entries import HOLDER

    return Charge(0.1, 1e-8, relation="r"), HOLDER, "{}"


def test_the_last_day_of_all(place, capsys):  # noqa: F811
    for period in ("day", "week", "month", "quarter", "year"):
        create(period, "--epsilon=1", f"--period={period}")
        assert main(flags(f"--dataset={period}", "--budget_period=9999-12-31", f"--output=out-{period}")) == 0
        show = [
            "budget",
            "show",
            "--budget=b.db",
            f"--dataset={period}",
            "--budget_period=9999-12-31",
            "--json",
        ]
        capsys.readouterr()
        assert main(show) == 0 and "9999-12-31" in capsys.readouterr().out


def test_an_error_names_the_entry(place, capsys):  # noqa: F811
    with sqlite3.connect("b.db") as raw:
        raw.execute(
            "INSERT INTO dpbeam_budget_entries VALUES ('logs', 3, '', 'x', NULL, '', '', '', '', '{}', NULL)"
        )
    raw.close()
    with pytest.raises(InputError) as error:
        BudgetStore("b.db").account("logs")
    assert str(error.value) == (
        f"--budget: 'sqlite:///{place}/b.db': entry 3 of dataset 'logs' is not what dpbeam writes: restore a backup of "
        "the store, or use the dpbeam that wrote it"
    )
