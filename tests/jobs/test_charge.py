"""Runs that are charged to an account: before they read, once for a release id, and never for nothing."""

import contextlib
import glob
import importlib
import itertools
import json
import os
import pathlib
import shutil
import sqlite3
import sys

import pytest

from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.account import Charge, windows
from dpbeam.budget.store import Actor, BudgetStore, BudgetStoreError
from dpbeam.cli import COMMANDS, main, select
from dpbeam.engine.beam import owner
from dpbeam.io import output
from dpbeam.jobs import charged, running
from dpbeam.storage import FileSystems
from dpbeam.storage.processes import Owner
from tests.jobs import conftest
from tests.jobs.conftest import (
    ACCOUNT,
    CHECK,
    RESOLVE,
    SHARDS,
    account,
    create,
    draw,
    flags,
    kinds,
    release,
    when_run,
)
from tests.support.hub_programs import Tally

ROOT = pathlib.Path(__file__).resolve().parents[2]
BY = Actor("ann", "host", "test", "dpbeam")
DEAD = {"host": Owner.this_process().host, "pid": 2**22 + 1, "started": "1", "run": "x"}


def left() -> float:
    return float(account().touched(Charge(0.1, 0.0))[0].left["epsilon"])


def shards() -> dict[str, bytes]:
    return {path: pathlib.Path(path).read_bytes() for path in glob.glob("out-*.parquet")}


def leaves_what_kill_leaves(patch) -> None:
    """The next run: a reservation of a process that is gone."""
    patch.setattr(charged, "asdict", lambda owner: {k: v for k, v in DEAD.items() if k != "run"})
    patch.setattr(charged.RunCharge, "failed", lambda *_, **__: None)


def dead_reservation() -> None:
    with pytest.MonkeyPatch.context() as patch:
        leaves_what_kill_leaves(patch)
        patch.setattr(running, "run_and_wait", lambda *_: 1 / 0)
        assert main(flags()) == 1
    for path in glob.glob("out.staging-*"):
        shutil.rmtree(path)
    assert release().state == "reserved"


def fails_at(function, number: int, error: Exception):
    """Fails instead of that one of its calls, counted from 1."""
    calls = itertools.count(1)

    def wrapped(*args, **values):
        if next(calls) == number:
            raise error
        return function(*args, **values)

    return wrapped


def no_answer(patch, number: int) -> None:
    """Of the account, when it is to be changed for the `number`-th time."""
    change = charged.BudgetStore.change
    patch.setattr(
        charged.BudgetStore, "change", fails_at(change, number, BudgetStoreError("--budget: no answer"))
    )


class TestRun:
    def test_reserved_before_and_committed_after(self, place, monkeypatch):
        seen = []
        when_run(monkeypatch, lambda: (seen.append(release().state), draw()))
        assert main(flags("--result_file=r.json")) == 0
        assert seen == ["reserved"] and release().state == "committed" and left() == 0.4
        mark = {"store": BudgetStore("b.db").id, "dataset": "logs", "release_id": "night", "entry": 3}
        ledger = Ledger.from_json(pathlib.Path("out.ledger.json").read_text())
        assert ledger.parameters["account"] == mark
        assert json.loads(pathlib.Path("r.json").read_text())["budget"] == mark
        assert kinds() == ["reserve", "publish", "commit"]
        assert {entry.command for entry in account().entries[2:]} == {"select"}
        assert Ledger.from_json(BudgetStore("b.db").ledgers("logs")["night"]).epsilon == 0.6

    def test_nothing_of_the_data_is_recorded(self, place):
        pathlib.Path("pairs.csv").write_text("u,i\nSECRETUSER,SECRETITEM\n")
        assert main(flags()) == 0
        assert b"SECRET" not in pathlib.Path("b.db").read_bytes()

    def test_a_program_that_the_engine_cannot_run_is_not_charged(self, place, monkeypatch):
        """Where a plan does not look at it, the command does."""
        made = Tally(("blocks", "shards"), {1}, {})
        monkeypatch.setattr(type(select.COMMAND), "program", lambda *_: made)
        assert main(flags()) == 1
        assert kinds() == [] and left() == 1.0

    def test_past_the_limit_nothing_starts(self, place, monkeypatch, capsys):
        assert main(flags()) == 0
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        before = sorted(os.listdir())
        assert main([*flags("--output=out2"), "--release_id=b"]) == 2
        expected = (
            "the limit of dataset 'logs' would be passed: this run needs epsilon 0.6, and 0.4 of 1 is left"
        )
        assert capsys.readouterr().err == f"dpbeam select: error: --budget: {expected}\n"
        assert sorted(os.listdir()) == before and "b" not in account().releases

    @pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt(), RuntimeError("x")])
    def test_what_was_not_released_is_given_back(self, error, place, monkeypatch):
        def fails():
            assert left() == 0.4
            raise error

        when_run(monkeypatch, fails)
        assert main(flags()) == 1
        assert release().state == "returned" and left() == 1.0
        assert not glob.glob("out*")
        when_run(monkeypatch, draw)
        assert main(flags()) == 0
        assert left() == 0.4

    def test_what_cannot_be_staged_is_given_back(self, place, monkeypatch):
        when_run(monkeypatch, lambda: None)  # no shards
        assert main(flags()) == 1
        assert release().state == "returned" and not glob.glob("out*")

    def test_every_command_that_releases_is_charged(self):
        releasing = []
        for name, (module, _) in COMMANDS.items():
            known = importlib.import_module(module).make_parser()._option_string_actions
            if "--insecure_test_key" in known:
                releasing.append(name)
                assert {"--budget", "--dataset", "--release_id", "--budget_period"} <= set(known)
        assert {"select", "top-k"} <= set(releasing)


class TestAgain:
    def test_a_release_that_is_out_stays_as_it_is(self, place, monkeypatch, capsys):
        assert main(flags()) == 0
        before, entries = shards(), len(account().entries)
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        os.remove("pairs.csv")  # not even the input is looked at
        assert main(flags("--result_file=r.json", quiet=False)) == 0
        out = capsys.readouterr().out
        assert "release 'night' of dataset 'logs' is out already" in out
        assert shards() == before and len(account().entries) == entries
        outcome = json.loads(pathlib.Path("r.json").read_text())
        assert (outcome["items_released"], outcome["outputs"]) == (SHARDS, sorted(before))

    def test_its_output_may_have_gone_elsewhere(self, place):
        assert main(flags()) == 0
        for path in glob.glob("out*"):
            os.remove(path)
        for _ in range(2):
            assert main(flags("--result_file=r.json")) == 0
        assert not glob.glob("out*")
        outcome = json.loads(pathlib.Path("r.json").read_text())
        assert (outcome["status"], outcome["exit_code"], outcome["release_id"]) == (
            "already_released",
            0,
            "night",
        )
        assert (outcome["outputs"], outcome["ledger"], outcome["items_released"]) == ([], None, None)
        assert outcome["charge"] == {"epsilon": 0.6, "delta": 1e-6}

    @pytest.mark.parametrize(
        "change", [["--epsilon=0.3"], ["--output=out2"], ["--on_null=drop"], ["--input=p2.csv"]]
    )
    def test_a_release_id_is_bound_to_its_settings(self, change, place, capsys):
        assert main(flags()) == 0
        assert main(flags(*change)) == 2
        assert (
            "--release_id: 'night' of dataset 'logs' is committed for other settings"
            in capsys.readouterr().err
        )

    def test_how_it_runs_may_change(self, place, capsys):
        assert main(flags()) == 0
        assert main(flags("--num_shards=3", "--overwrite", "--temp_location=/tmp")) == 0
        assert len(account().releases) == 1 and account().releases["night"].last.number == 5

    def test_a_retry_takes_over_what_a_dead_run_reserved(self, place, capsys):
        dead_reservation()
        assert main(flags(quiet=False)) == 0
        assert "taken over; nothing is charged again" in capsys.readouterr().out
        assert kinds() == ["reserve", "takeover", "publish", "commit"]
        assert left() == 0.4

    def test_a_run_under_way_is_left_alone(self, place, monkeypatch, capsys):
        def work():
            for argv in (flags(), RESOLVE):
                assert main(argv) == 1  # it will not stay so
            draw()

        when_run(monkeypatch, work)
        assert main(flags()) == 0
        err = capsys.readouterr().err
        assert err.count("'night' is being released by process") == err.count("which still runs") == 2
        assert left() == 0.4

    def test_one_that_was_taken_over_publishes_nothing(self, place, monkeypatch, capsys):
        """A run that was believed dead and is not."""

        def work():
            draw()
            store, now = BudgetStore("b.db"), release()
            arguments = ("night", now.digest, now.charge, DEAD, "{}", lambda holder: False)
            store.change("logs", lambda account: account.reserve(*arguments), BY)

        when_run(monkeypatch, work)
        assert main(flags()) == 1
        assert (
            "was taken over or given back while the run was under way; nothing was published"
            in capsys.readouterr().err
        )
        assert release().state == "reserved" and release().holder == DEAD
        assert not glob.glob("out*")

    def test_a_failed_run_of_this_process_may_be_given_again(self, place, monkeypatch):
        with monkeypatch.context() as broken:
            no_answer(broken, 2)
            when_run(broken, lambda: 1 / 0)
            assert main(flags()) == 1  # and could not give back
        assert release().state == "reserved"
        assert main(flags()) == 0
        assert left() == 0.4


class TestCutShort:
    """The account says that the release is being published, and the process is gone."""

    def cut_short(self, monkeypatch, at: int) -> dict[str, bytes]:
        """Dies of a full disk at the `at`-th rename; what was in place by then."""
        with monkeypatch.context() as broken:
            broken.setattr(
                FileSystems,
                "rename",
                fails_at(FileSystems.rename, at, OSError(28, "No space left on device")),
            )
            assert main(flags()) == 1
        assert release().state == "publishing" and left() == 0.4
        return shards()

    @pytest.mark.parametrize("at", [1, 2, 3])
    def test_a_retry_finishes_with_the_same_noise(self, at, place, monkeypatch, capsys):
        seen = self.cut_short(monkeypatch, at)
        assert len(seen) == at - 1
        assert "give the same command again to finish release 'night'" in capsys.readouterr().err
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        assert main(flags("--result_file=r.json")) == 0
        assert seen.items() <= shards().items() and len(shards()) == SHARDS
        assert (
            release().state == "committed"
            and json.loads(pathlib.Path("r.json").read_text())["items_released"] == 2
        )
        assert sorted(glob.glob("out*")) == [*sorted(shards()), "out.ledger.json"]

    def test_resolve_finishes_it_too(self, place, monkeypatch, capsys):
        self.cut_short(monkeypatch, 2)
        assert main(RESOLVE) == 0
        assert "release 'night' of dataset 'logs' is out: its output is complete" in capsys.readouterr().out
        assert len(shards()) == SHARDS and release().state == "committed"
        assert main(RESOLVE) == 0 and "nothing to do" in capsys.readouterr().out

    @pytest.mark.parametrize("at", [1, 2, 3])
    def test_clean_leaves_what_is_staged_to_the_retry(self, at, place, monkeypatch, capsys):
        self.cut_short(monkeypatch, at)
        [folder] = glob.glob("out.staging-*")
        owner.unmark(folder)  # this process lives
        assert main(["clean", "--output=out", f"--temp_location={place}", "--quiet"]) == 0
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        capsys.readouterr()
        assert main(flags()) == 0 and "a killed run left" not in capsys.readouterr().err
        assert sorted(glob.glob("out*")) == [*sorted(shards()), "out.ledger.json"] and len(shards()) == SHARDS

    @pytest.mark.parametrize("at", [1, 2])
    @pytest.mark.parametrize("end", [flags("--output=out.parquet"), RESOLVE], ids=["retry", "resolve"])
    def test_one_file_is_finished_too(self, at, end, place, monkeypatch, capsys):
        """A retry under the prefix alone is another run."""
        monkeypatch.setattr(conftest, "SHARDS", 1)
        when_run(monkeypatch, draw)
        with monkeypatch.context() as broken:
            broken.setattr(
                FileSystems,
                "rename",
                fails_at(FileSystems.rename, at, OSError(28, "No space left on device")),
            )
            assert main(flags("--output=out.parquet")) == 1
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        assert main(flags()) == 2 and "--release_id" in capsys.readouterr().err
        assert main(end) == 0 and release().state == "committed"
        assert sorted(glob.glob("out*")) == ["out.ledger.json", "out.parquet"]
        assert main(["verify", "out.ledger.json", "--contents"]) == 0
        assert main(flags("--output=out.parquet", "--result_file=r.json")) == 0
        assert json.loads(pathlib.Path("r.json").read_text())["outputs"] == ["out.parquet"]
        pathlib.Path("out.parquet").write_bytes(b"other")
        assert main(flags("--output=out.parquet")) == 2
        assert "out.parquet' is not what was published" in capsys.readouterr().err

    def test_a_dry_run_changes_nothing(self, place, monkeypatch, capsys):
        seen = self.cut_short(monkeypatch, 2)
        assert main(flags("--dry_run")) == 0
        assert "a run finishes it and pays nothing" in capsys.readouterr().out
        assert shards() == seen and release().state == "publishing"

    def test_what_is_gone_is_never_drawn_again(self, place, monkeypatch, capsys):
        self.cut_short(monkeypatch, 2)
        for folder in glob.glob("out.staging-*"):
            for path in glob.glob(f"{folder}/*"):
                os.remove(path)
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        for argv in (flags(), RESOLVE):
            assert main(argv) == 2
            assert "neither its output" in capsys.readouterr().err
        assert release().state == "publishing" and left() == 0.4

    def test_the_output_of_another_attempt_is_not_taken_for_it(self, place, monkeypatch, capsys):
        self.cut_short(monkeypatch, 1)
        (staged,) = glob.glob("out.staging-*/ledger.json")
        values = json.loads(pathlib.Path(staged).read_text())
        values["parameters"]["account"]["entry"] += 1
        pathlib.Path("out.ledger.json").write_text(json.dumps(values))
        os.remove(staged)
        assert main(flags()) == 2
        assert release().state == "publishing"

    def test_an_account_that_does_not_answer_at_the_end(self, place, monkeypatch, capsys):
        """The output is out: 0, and counted; told later."""
        with monkeypatch.context() as broken:
            no_answer(broken, 3)
            assert main(flags()) == 0
        assert "its account could not be told: --budget: no answer" in capsys.readouterr().err
        assert release().state == "publishing" and left() == 0.4
        before = shards()
        assert main(flags()) == 0
        assert release().state == "committed" and shards() == before

    def test_an_account_that_does_not_answer_before_publishing(self, place, monkeypatch):
        """Nothing is out, and the account denies it: given back."""
        with monkeypatch.context() as broken:
            no_answer(broken, 2)
            assert main(flags()) == 1
        assert release().state == "returned" and not glob.glob("out*")

    def test_an_answer_that_was_lost(self, place, monkeypatch, capsys):
        """The entry is there though its answer is not: what was staged stays, and is finished."""
        change = charged.BudgetStore.change

        def lost(self, dataset, decide, by):
            account = change(self, dataset, decide, by)
            if account.entries[-1].kind == "publish":
                raise BudgetStoreError("--budget: connection lost")
            return account

        with monkeypatch.context() as broken:
            broken.setattr(charged.BudgetStore, "change", lost)
            assert main(flags()) == 1
        assert release().state == "publishing" and not shards()
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        assert main(flags()) == 0
        assert len(shards()) == SHARDS


class TestStaged:
    """What an attempt has staged when it is killed is a release: nobody else reads it, and never are there two."""

    def killed(self, monkeypatch) -> str:
        """Dies when all is staged, just before it publishes; the staging folder."""
        with monkeypatch.context() as patch:
            leaves_what_kill_leaves(patch)
            no_answer(patch, 2)
            assert main(flags()) == 1
        (folder,) = glob.glob("out.staging-*")
        assert len(os.listdir(folder)) == SHARDS + 2  # its process and the ledger
        return os.path.abspath(folder)

    def test_nobody_else_reads_it_and_everybody_the_output(self, place, monkeypatch):
        before = os.umask(0o022)
        try:
            folder = self.killed(monkeypatch)
            assert os.stat(folder).st_mode & 0o777 == 0o700
            assert main(flags()) == 0
        finally:
            os.umask(before)
        modes = {os.stat(path).st_mode & 0o777 for path in (*shards(), "out.ledger.json")}
        assert modes == {0o644} and len(shards()) == SHARDS

    def test_a_takeover_removes_it_before_it_draws(self, place, monkeypatch):
        staged = []
        when_run(monkeypatch, lambda: (staged.extend(glob.glob("out.staging-*/shard-*")), draw()))
        folder = self.killed(monkeypatch)
        assert staged == []
        assert main(flags()) == 0
        assert staged == [] and not os.path.exists(folder)
        assert kinds() == ["reserve", "takeover", "publish", "commit"]

    def test_what_cannot_be_removed_ends_it(self, place, monkeypatch, capsys):
        folder = self.killed(monkeypatch)
        when_run(monkeypatch, lambda: pytest.fail("drew a second release"))
        with monkeypatch.context() as patch:
            patch.setattr(charged.owner, "remove", lambda path: path)
            assert main(flags()) == 2
        err = capsys.readouterr().err
        assert f"'{folder}' holds what an earlier attempt of 'night' has staged, and cannot be removed" in err
        assert "the same command removes what was staged and goes on with it" in err
        assert release().state == "reserved" and left() == 0.4
        when_run(monkeypatch, draw)
        assert main(flags()) == 0 and not os.path.exists(folder)

    def test_it_is_not_given_back_while_it_is_there(self, place, monkeypatch, capsys):
        folder = self.killed(monkeypatch)
        assert main(RESOLVE) == 2
        err = capsys.readouterr().err
        assert (
            f"'night' was not published, but what it has staged is in '{folder}': give its command again"
            in err
        )
        assert release().state == "reserved" and left() == 0.4
        owner.unmark(folder)  # this process lives
        clean = ["clean", "--output=out", f"--temp_location={place}"]
        assert main(clean) == 0 and os.path.exists(folder)
        [line] = [line for line in capsys.readouterr().out.splitlines() if os.path.basename(folder) in line]
        assert "may have paid for the release" in line and "left as it is, --force removes it" in line
        assert main([*clean, "--force", "--quiet"]) == 0
        assert main(RESOLVE) == 0
        assert release().state == "returned" and left() == 1.0

    def test_a_failed_run_whose_output_stays_keeps_its_reservation(self, place, monkeypatch, capsys):
        when_run(monkeypatch, lambda: (draw(), 1 / 0))
        monkeypatch.setattr(output, "remove_folder", lambda path: path)
        assert main(flags()) == 1
        assert glob.glob("out.staging-*/shard-*") and release().state == "reserved" and left() == 0.4


class TestResolve:
    def test_a_reservation_of_a_dead_run_is_given_back(self, place, capsys):
        dead_reservation()
        assert main(RESOLVE) == 0
        assert "was never published: its budget is given back" in capsys.readouterr().out
        assert left() == 1.0
        assert main(RESOLVE) == 0
        assert main([*RESOLVE, "--release_id=other"]) == 2
        assert "knows no release 'other'" in capsys.readouterr().err


class TestCheckpoint:
    def fails(self, monkeypatch, number: int) -> None:
        """Real jobs, of which only the first `number` end well."""
        from dpbeam.runners.job import run_and_wait

        ran = []

        def limited(*args):
            if len(ran) >= number:
                raise OSError(28, "No space left on device")
            ran.append(1)
            return run_and_wait(*args)

        monkeypatch.setattr(running, "run_and_wait", limited)
        monkeypatch.setattr(running.RunFolder, "check", CHECK)

    def test_a_run_that_can_go_on_keeps_its_reservation(self, place, monkeypatch, capsys):
        more = ["--checkpoint=kept", "--passes_per_job=1", "--method=dp-sips"]
        self.fails(monkeypatch, 0)
        assert main(flags(*more)) == 1
        assert release().state == "returned"  # nothing to go on from
        self.fails(monkeypatch, 1)
        assert main(flags(*more)) == 1
        assert "the reservation of release 'night' stays" in capsys.readouterr().err
        assert release().state == "reserved" and left() == 0.4
        self.fails(monkeypatch, 9)
        assert main(flags(*more)) == 0
        assert kinds()[2:] == ["reserve", "takeover", "publish", "commit"]


class TestUncharged:
    def test_test_keys_cost_nothing_unless_asked(self, place, capsys):
        argv = flags("--insecure_test_key=ab", quiet=False)
        assert main(argv) == 0
        assert "not charged to dataset 'logs'" in capsys.readouterr().out
        assert account().releases == {} and '"account":' not in pathlib.Path("out.ledger.json").read_text()
        assert main([*argv, "--charge_test_key", "--overwrite"]) == 0
        assert left() == 0.4

    def test_a_dry_run_says_what_it_would_cost(self, place, monkeypatch, capsys):
        argv = flags("--dry_run", quiet=False)
        assert main(argv) == 0
        expected = "epsilon 0.6, delta 1e-06 would be charged, which leaves epsilon 0.4, delta 9e-06"
        assert (
            f"account of dataset 'logs': {expected}\n" in capsys.readouterr().out and account().releases == {}
        )
        assert main([*flags("--dry_run"), "--epsilon=1.5"]) == 2
        assert "this run needs epsilon 1.5, and 1 of 1 is left" in capsys.readouterr().err
        dead_reservation()
        assert main(argv) == 0
        assert "a run pays nothing more" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "drop, more, message",
        [
            ("--budget", [], "--dataset is of an account of budget: give --budget too, or drop it"),
            ("--dataset", [], "--budget needs --dataset: whose account is charged"),
            ("--release_id", [], "--budget needs --release_id: a name of this release that a retry repeats"),
            ("", ["--budget=no.db"], "--budget: there is no budget store '"),
            ("", ["--dataset=other"], "--dataset: there is no account of dataset 'other' in 'sqlite:///"),
            ("", ["--release_id= "], "--release_id must be 1 to 200 printable characters"),
            ("", ["--budget_cohort=x"], "unknown flag --budget_cohort"),
            ("", ["--budget_period=May"], "--budget_period: expected a day such as 2026-01-31, got 'May'"),
        ],
    )
    def test_flags(self, drop, more, message, place, capsys):
        argv = [word for word in flags() if not drop or not word.startswith(f"{drop}=")]
        assert main([*argv, *more]) == 2
        assert f"dpbeam select: error: {message}" in capsys.readouterr().err
        assert not glob.glob("out*") and not os.path.exists("no.db")

    def test_sqlalchemy_is_needed_by_accounts_alone(self, place, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "dpbeam.jobs.charged", None)
        assert main(flags()) == 2
        assert "--budget needs" in capsys.readouterr().err
        assert main([word for word in flags() if word not in ACCOUNT]) == 0


class TestZCDP:
    def test_a_run_is_charged_its_rho(self, place, capsys):
        create("z", "--epsilon=2", "--composition=zcdp")
        for n in range(4):
            assert main(flags(f"--release_id=r{n}", "--dataset=z", "--overwrite")) == 0, n
        account = BudgetStore("b.db").account("z")
        (standing,) = account.touched(account.releases["r0"].charge)
        assert 0 < standing.left["rho"] < standing.limit.amounts["rho"]
        # Four of epsilon 0.6: basic composition would have refused the fourth.
        assert sum(r.charge.epsilon for r in account.releases.values()) > 2


class TestRenewal:
    def test_an_account_of_version_1_0_0_with_cohorts(self, place, capsys):
        """It has charged 0.6 to the even users, 0.3 to all and 1 to the odd ones, of 1 and 2."""
        os.remove("b.db")
        with contextlib.closing(sqlite3.connect("b.db")) as connection:
            connection.executescript((ROOT / "tests" / "budget" / "cohorts-1.0.0.sql").read_text())
        assert main(["budget", "show", "--budget=b.db", "--dataset=logs", "--json"]) == 0
        budgets = json.loads(capsys.readouterr().out)["budgets"]
        shown = [(row["cohort"], row["spent"]["epsilon"], row["left"]["epsilon"]) for row in budgets]
        assert shown == [("even", 0.9, 0.1), ("odd", 1.3, 0.7)]
        assert main(["budget", "history", "--budget=b.db", "--dataset=logs", "--quiet"]) == 0
        assert main(flags(epsilon="0.2")) == 2
        assert "of dataset 'logs' of cohort 'even' would be passed" in capsys.readouterr().err
        assert main(flags("--delta=1e-8", epsilon="0.1")) == 0
        account = BudgetStore("b.db").account("logs")
        assert [float(s.left["epsilon"]) for s in windows(account)] == [0.0, 0.6]
        argv = ["budget", "limit", "--budget=b.db", "--dataset=logs", "--epsilon=9", "--delta=1e-6"]
        assert main(argv) == 2
        assert "--dataset: the account of 'logs' has limits of cohorts" in capsys.readouterr().err
        assert main(flags("--release_id=evens", epsilon="0.6")) == 2
        assert "--release_id" in capsys.readouterr().err, "another run has it"

    def test_periods(self, place, capsys):
        create("p", "--epsilon=1", "--period=month")

        def run(name: str, *more: str) -> int:
            return main(flags("--dataset=p", f"--release_id={name}", "--overwrite", *more))

        assert run("a") == 2 and "--budget_period" in capsys.readouterr().err
        assert run("a", "--budget_period=2026-01-31") == 0
        assert run("b", "--budget_period=2026-01-01") == 2
        assert "of dataset 'p' for 2026-01-01:2026-01-31 would be passed" in capsys.readouterr().err
        assert run("b", "--budget_period=2026-02-01") == 0
        assert run("b", "--budget_period=2026-03-01") == 2  # another period is another release
