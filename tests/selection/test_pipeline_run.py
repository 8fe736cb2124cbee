"""Ledgers and accounts of releases in a pipeline: paid once, noise drawn once, whatever dies on the way."""

import errno
import json
import os
import shutil

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam import InputError, RunFolder, SelectionConfig, SelectPartitions, disk
from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.account import COMMITTED, PUBLISHING, RESERVED, RETURNED
from dpbeam.budget.store import Actor, BudgetStore
from dpbeam.cli import main
from dpbeam.engine.beam import account, ledger_file, owner, run_folder
from dpbeam.jobs.charged import resolve
from tests.support import pipelines
from tests.support.pipelines import kept, outcome

PAIRS = [(f"u{user}", f"i{item}") for item, users in ((1, 300), (2, 200), (3, 40)) for user in range(users)]
CONFIG = SelectionConfig(epsilon=1.0, delta=1e-6, method="basic", noisy_weights=True)
BY = Actor.this("tests")


class DiedError(Exception):
    """A worker has died."""


def dies(*_, **__):
    raise DiedError("a worker has died")


def no_links(*_):
    raise PermissionError(errno.EPERM, "no links here")


def select(tmp_path, config=CONFIG, **arguments):
    return SelectPartitions(config, run_folder=str(tmp_path / "temp"), **arguments)


def released(transform, elements=PAIRS):
    return sorted(outcome(lambda pipeline: kept(pipeline | beam.Create(elements) | transform)))


class TestLedgers:
    def test_is_written_and_verifies(self, tmp_path, capsys):
        path = tmp_path / "new folder" / "a.ledger.json"
        assert released(select(tmp_path, ledger=str(path))) and os.listdir(tmp_path / "temp") == []
        written = Ledger.from_json(path.read_text())
        assert written.release.command == "select" and written.release.outputs == () and written.private
        assert main(["verify", str(path)]) == 0
        assert "released in a pipeline" in capsys.readouterr().out
        assert os.stat(path).st_mode & 0o044 == 0o044 & ~os.umask(os.umask(0o022))

    def test_a_job_that_fails_writes_none(self, tmp_path):
        path = tmp_path / "a.json"
        with pytest.raises(Exception, match="empty item"):
            released(select(tmp_path, ledger=str(path)), [*PAIRS, ("u", "")])
        assert not path.exists()

    @pytest.mark.parametrize("held", [False, True])
    def test_another_file_in_its_place_is_kept(self, held, tmp_path):
        path = tmp_path / "a.json"
        path.write_text("another run's")
        with RunFolder(str(tmp_path)) as run:
            arguments = {"run": run} if held else {"run_folder": str(tmp_path / "temp")}
            with pytest.raises(
                InputError, match=r"ledger: '.*a.json' exists; name another file, or remove it"
            ):
                released(SelectPartitions(CONFIG, ledger=str(path), **arguments))
            run.check = lambda: 0  # it has not come to its end
        assert path.read_text() == "another run's" and pipelines._came == []

    def test_one_that_appears_during_the_run_is_kept(self, tmp_path, monkeypatch):
        path = tmp_path / "a.json"
        check = run_folder.check_receipts
        monkeypatch.setattr(
            run_folder, "check_receipts", lambda store: path.write_text("another") and check(store)
        )
        with pytest.raises(InputError, match="has appeared during the run; it is not this run's"):
            released(select(tmp_path, ledger=str(path)))
        assert path.read_text() == "another"

    @pytest.mark.parametrize("links", [True, False])
    def test_it_is_whole_or_not_there(self, links, tmp_path, monkeypatch):
        path = tmp_path / "a.json"
        file = ledger_file.LedgerFile(str(path), "", "select", None)
        if not links:
            monkeypatch.setattr(disk.os, "link", no_links)
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            patched.setattr(disk.os, "fsync", dies)
            file._put_once(b"text")
        assert os.listdir(tmp_path) == []
        file._put_once(b"text")
        file._put_once(b"text")
        assert path.read_bytes() == b"text" and os.listdir(tmp_path) == ["a.json"]

    def test_a_fixed_key_is_named(self, tmp_path):
        path = tmp_path / "a.json"
        released(select(tmp_path, ledger=str(path), insecure_test_key="x"))
        assert not Ledger.from_json(path.read_text()).private

    def test_of_a_folder_that_the_caller_holds(self, tmp_path, monkeypatch):
        monkeypatch.setenv("DPBEAM_FOLDER_KEY", "00" * 32)
        path = tmp_path / "a.json"
        with RunFolder(str(tmp_path), encrypt=True) as run:
            assert released(SelectPartitions(CONFIG, run=run, ledger=str(path), num_shards=2))
            assert os.path.isdir(run.path)
        assert Ledger.from_json(path.read_text()).release.command == "select"


@pytest.fixture
def store(tmp_path):
    path = str(tmp_path / "budget.db")
    assert (
        main(
            ["budget", "create", f"--budget={path}", "--dataset=d", "--epsilon=2", "--delta=1e-5", "--quiet"]
        )
        == 0
    )
    return BudgetStore(path)


def charged(tmp_path, release_id="r", **more):
    budget = {"budget": str(tmp_path / "budget.db"), "dataset": "d", "release_id": release_id}
    return select(tmp_path, **{**budget, **more})


def state(store, release_id="r"):
    return store.account("d").releases[release_id].state


def entries(store):
    return [entry.kind for entry in store.account("d").entries[2:]]


class TestAccounts:
    def test_a_run_is_paid(self, tmp_path, store):
        path = tmp_path / "a.json"
        assert released(charged(tmp_path, ledger=str(path)))
        assert entries(store) == ["reserve", "publish", "commit"]
        values = json.loads(path.read_text())
        assert values["release"]["release_id"] == "r"
        assert values["parameters"]["account"] == {
            "store": store.id, "dataset": "d", "release_id": "r", "entry": 3
        }  # fmt: skip
        assert main(["verify", str(path), "--quiet"]) == 0
        assert main(["budget", "history", f"--budget={tmp_path}/budget.db", "--dataset=d"]) == 0

    def test_without_room_nothing_is_made_or_read(self, tmp_path, store, monkeypatch):
        monkeypatch.setattr(run_folder._MakeFolder, "make", dies)
        with pytest.raises(
            InputError, match=r"^budget: the limit of dataset 'd' would be passed: this run needs"
        ) as error:
            released(charged(tmp_path, config=SelectionConfig(3.0, 1e-6)))
        assert "\n" not in str(error.value)
        assert entries(store) == [] and pipelines._came == []

    @pytest.mark.parametrize(
        "more,message",
        [
            ({"dataset": "e"}, "^dataset: there is no account of dataset 'e'"),
            ({"budget": "missing.db"}, "^budget: there is no budget store '.*missing.db'"),
        ],
    )
    def test_no_such_account(self, more, message, tmp_path, store):
        with pytest.raises(InputError, match=message):
            released(charged(tmp_path, **more))
        assert entries(store) == []

    def test_a_release_that_is_out_draws_nothing(self, tmp_path, store, monkeypatch):
        assert released(charged(tmp_path))
        monkeypatch.setattr(run_folder._MakeFolder, "make", dies)
        with pytest.raises(InputError, match=r"^release_id: 'r' of dataset 'd' is out already"):
            released(charged(tmp_path))
        with pytest.raises(
            InputError, match=r"^release_id: 'r' of dataset 'd' is committed for other settings"
        ):
            released(charged(tmp_path, config=SelectionConfig(0.5, 1e-6)))
        assert entries(store) == ["reserve", "publish", "commit"]

    def test_a_taken_ledger_costs_nothing(self, tmp_path, store):
        (tmp_path / "a.json").write_text("another's")
        with pytest.raises(InputError, match=r"^ledger: "):
            released(charged(tmp_path, ledger=str(tmp_path / "a.json")))
        assert entries(store) == []


class TestDeadJobs:
    """A job dies at some step; then the same release id comes again."""

    def test_before_anything_leaves(self, tmp_path, store, monkeypatch, capsys):
        """It stays reserved; a retry goes on in the same folder, with the same noise, and pays nothing more."""
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            patched.setattr(run_folder, "check_receipts", dies)
            released(charged(tmp_path))
        assert state(store) == RESERVED and pipelines._came == []
        (folder,) = (tmp_path / "temp").iterdir()
        key = (folder / owner.KEY).read_bytes()
        account = [f"--budget={tmp_path}/budget.db", "--dataset=d"]
        assert main(["budget", "show", *account]) == 0
        assert f"reserved: release 'r', a pipeline in the folder '{folder}'" in capsys.readouterr().out
        run = RunFolder(str(tmp_path))
        with pytest.raises(InputError, match=r"^release_id: 'r' was begun in the folder .*: drop run, and"):
            budget = {"budget": str(tmp_path / "budget.db"), "dataset": "d", "release_id": "r"}
            released(SelectPartitions(CONFIG, run=run, **budget))
        run.remove()
        keys = []
        monkeypatch.setattr(run_folder, "remove_run", lambda path: keys.append((path, _key(path))))
        assert released(charged(tmp_path))
        assert keys == [(str(folder), key)] and entries(store) == ["reserve", "publish", "commit"]

    def test_before_anything_leaves_and_its_folder_is_gone(self, tmp_path, store, monkeypatch):
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            patched.setattr(run_folder, "check_receipts", dies)
            released(charged(tmp_path))
        assert main(["clean", f"--temp_location={tmp_path}/temp", "--quiet"]) == 0
        assert len(os.listdir(tmp_path / "temp")) == 1  # nobody knows whether it lives
        assert main(["clean", f"--temp_location={tmp_path}/temp", "--force", "--quiet"]) == 0
        assert os.listdir(tmp_path / "temp") == []
        assert released(charged(tmp_path))
        assert entries(store) == ["reserve", "takeover", "publish", "commit"]

    @pytest.mark.usefixtures("beams_runner")
    @pytest.mark.parametrize(
        ("step", "sizes"), [("write", {"num_shards": 2}), ("commit", {}), ("remove_run", {"num_shards": 2})]
    )
    def test_when_some_has_left(self, step, sizes, tmp_path, store, monkeypatch):
        """What leaves again is the same, with the same noise; it is paid once, and the ledger is written once."""
        arguments = {**sizes, "ledger": str(tmp_path / "a.json")}
        places = {"write": ledger_file.LedgerFile, "commit": account.PipelineCharge, "remove_run": run_folder}
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            patched.setattr(places[step], step, dies)
            released(charged(tmp_path, **arguments))
        seen = sorted(pipelines._came)
        if step == "remove_run":  # it was out
            with pytest.raises(InputError, match="is out already"):
                released(charged(tmp_path, **arguments))
        else:
            assert state(store) == PUBLISHING and seen
            assert released(charged(tmp_path, **arguments)) == seen
            assert os.listdir(tmp_path / "temp") == []
        assert entries(store) == ["reserve", "publish", "commit"]
        assert main(["verify", str(tmp_path / "a.json"), "--quiet"]) == 0

    def test_when_some_has_left_and_the_folder_is_gone(self, tmp_path, store, monkeypatch):
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            patched.setattr(account.PipelineCharge, "commit", dies)
            released(charged(tmp_path))
        shutil.rmtree(tmp_path / "temp")
        with pytest.raises(InputError, match="would draw other noise for what may have been seen"):
            released(charged(tmp_path))
        assert state(store) == PUBLISHING and pipelines._came == []
        assert "counts as out" in resolve(store, "d", "r", BY)
        assert state(store) == COMMITTED and "nothing to do" in resolve(store, "d", "r", BY)

    def test_other_data_are_refused(self, tmp_path, store, monkeypatch):
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            patched.setattr(account.PipelineCharge, "commit", dies)
            released(charged(tmp_path))
        with pytest.raises(InputError, match="the noise of this run belongs to other data or settings"):
            released(charged(tmp_path), PAIRS[1:])
        assert pipelines._came == []

    def test_resolved_while_it_runs_nothing_leaves(self, tmp_path, store, monkeypatch):
        check = run_folder.check_receipts

        def meanwhile(run):
            assert resolve(store, "d", "r", BY) == "was never published: its budget is given back"
            return check(run)

        monkeypatch.setattr(run_folder, "check_receipts", meanwhile)
        with pytest.raises(Exception, match="was taken over or given back while the run was under way"):
            released(charged(tmp_path))
        assert state(store) == RETURNED and pipelines._came == []

    def test_each_stage_again(self, tmp_path, store, monkeypatch):
        """An engine makes the first and the last two stages again, after they have come to their end."""
        for fn in (run_folder._MakeFolder, run_folder._Check, run_folder._End):
            process = fn.process

            def again(self, element, process=process):
                for _ in range(2):
                    came = list(process(self, element) or [])
                return came

            monkeypatch.setattr(fn, "process", again)
        assert released(charged(tmp_path, ledger=str(tmp_path / "a.json")))
        assert entries(store) == ["reserve", "publish", "commit"] and os.listdir(tmp_path / "temp") == []


def _key(path):
    with open(os.path.join(path, owner.KEY), "rb") as file:
        return file.read()


class TestArguments:
    @pytest.mark.parametrize(
        "more,message",
        [
            ({"budget": "x.db"}, "budget needs dataset"),
            ({"budget": "x.db", "dataset": "d"}, "budget needs release_id"),
            ({"dataset": "d"}, "dataset is of an account of budget: say budget too, or drop it"),
            ({"ledger": 3}, "ledger must be"),
            (
                {"budget": "x.db", "dataset": "d", "release_id": "r", "insecure_test_key": "k"},
                "budget: what comes out under a fixed test key is NOT PRIVATE and is not charged",
            ),
        ],
    )
    def test_that_do_not_go_together(self, more, message):
        with pytest.raises(InputError, match=message):
            SelectPartitions(CONFIG, **more)

    @pytest.mark.parametrize(
        "more,message",
        [
            ({"release_id": ""}, "release_id must be 1 to 200 printable characters"),
            ({"budget_period": "May"}, "budget_period: expected a day"),
            ({"budget": "postgresql://me:secret@host/db"}, "budget: the URL holds a password"),
            ({"budget": "mysql://host/db"}, "^budget: 'mysql' is not supported"),
        ],
    )
    def test_that_no_account_takes(self, more, message):
        transform = SelectPartitions(CONFIG, **{"budget": "x.db", "dataset": "d", "release_id": "r", **more})
        with pytest.raises(InputError, match=message) as error:
            _ = beam.Pipeline() | beam.Create(PAIRS) | transform
        assert "secret" not in str(error.value)

    @pytest.mark.parametrize(
        "more,message",
        [
            (
                {"budget": "x.db", "dataset": "d", "release_id": "r"},
                "budget: 'x.db' is a file of SQLite on this machine",
            ),
            (
                {"ledger": "a.json"},
                "ledger: 'a.json' is a path on this machine, which the workers do not reach",
            ),
            ({"run_folder": "temp"}, "run_folder: 'temp' is a path on this machine"),
        ],
    )
    def test_files_that_workers_do_not_reach(self, more, message):
        options = PipelineOptions(
            ["--runner=FlinkRunner", "--flink_master=another-host:8081", "--environment_type=DOCKER"]
        )
        with pytest.raises(InputError, match=message):
            _ = beam.Pipeline(options=options) | beam.Create(PAIRS) | SelectPartitions(CONFIG, **more)
        reached = {
            "ledger": "s3://bucket/a.json",
            "budget": "postgresql://host/db",
            "dataset": "d",
            "release_id": "r",
        }
        transform = SelectPartitions(CONFIG, run_folder="s3://bucket/temp", **reached)
        _ = beam.Pipeline(options=options) | beam.Create(PAIRS) | transform
