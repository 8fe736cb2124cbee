"""`--result_file`: it tells how the run ended, in public words, and never of an earlier one."""

import json
import os
import pathlib

import pytest

from dpbeam.cli import main
from dpbeam.jobs import charged
from dpbeam.jobs.exit_codes import ExitCode
from tests.jobs.conftest import ACCOUNT, account, draw, flags, kinds, when_run

FILE = "--result_file=r.json"
WHY = "is refused; the run's stderr says why"


def result(path: str = "r.json") -> dict:
    return json.loads(pathlib.Path(path).read_text())


@pytest.fixture
def fields(place) -> set[str]:
    """Those of a run that has released."""
    assert (
        main(
            [*flags("--result_file=first.json"), "--release_id=first", "--output=out_first", "--epsilon=0.1"]
        )
        == 0
    )
    return set(result("first.json"))


class TestEnds:
    def test_released_and_again(self, place, monkeypatch):
        assert main(flags(FILE)) == 0
        first = result()
        assert (first["status"], first["exit_code"], first["error"]) == ("released", 0, None)
        assert (first["dataset"], first["release_id"]) == ("logs", "night")
        assert first["charge"] == {"epsilon": 0.6, "delta": 1e-6}
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        assert main(flags(FILE)) == 0
        assert result() == {**first, "status": "already_released"}

    def test_out_since_it_was_looked_at(self, place, monkeypatch):
        """Two runs of one release begin at once; the other is through before this one reserves."""
        reserve = charged.RunCharge.reserve

        def late(self, ledger):
            monkeypatch.setattr(charged.RunCharge, "reserve", reserve)
            assert main(flags()) == 0
            reserve(self, ledger)

        monkeypatch.setattr(charged.RunCharge, "reserve", late)
        assert main(flags(FILE)) == 0
        assert result()["status"] == "already_released" and result()["items_released"] == 2
        assert kinds() == ["reserve", "publish", "commit"]

    @pytest.mark.parametrize(
        "error,told",
        [
            (RuntimeError("SECRET"), "RuntimeError; the run's stderr says more"),
            (OSError(28, "SECRET"), "OSError; the run's stderr says more"),
            (KeyboardInterrupt(), "interrupted"),
            (ValueError("dpbeam.errors.InputError: SECRET.csv:3: bad"), f"the input {WHY}"),
            (
                ValueError("Trace:\ndpbeam.errors.DataError: --item_column: SECRET.csv has no"),
                f"--item_column {WHY}",
            ),
        ],
    )
    def test_a_run_that_fails(self, error, told, place, monkeypatch, fields):
        def fails():
            assert not os.path.exists("r.json")
            raise error

        when_run(monkeypatch, fails)
        code = main(flags(FILE))
        outcome = result()
        assert code == (2 if "refused" in told else 1)
        assert (outcome["status"], outcome["exit_code"]) == ({1: "failed", 2: "refused"}[code], code)
        assert outcome["error"] == told and outcome["meaning"] == ExitCode(code).meaning
        assert set(outcome) == fields and "SECRET" not in str(outcome)
        assert (outcome["outputs"], outcome["ledger"], outcome["charge"]) == ([], None, None)
        when_run(monkeypatch, draw)
        assert main(flags(FILE)) == 0  # a retry needs no --overwrite
        assert result()["status"] == "released"

    def test_no_budget(self, place, fields):
        assert main(flags(FILE, epsilon="0.95")) == 2
        outcome = result()
        assert outcome["status"] == "refused" and set(outcome) == fields
        assert outcome["error"].startswith("--budget: the limit of dataset 'logs' would be passed")

    def test_another_run_of_the_release_lives(self, place, monkeypatch):
        def work():
            assert main(flags(FILE)) == 1
            assert result()["status"] == "failed" and "which still runs" in result()["error"]
            draw()

        when_run(monkeypatch, work)
        assert main(flags(FILE)) == 0
        assert result()["status"] == "released"

    @pytest.mark.parametrize("wrong", ["--epsilom=1", "--epsilon=x", "--epsilon=-1", "--method=nonesuch"])
    def test_a_wrong_flag(self, wrong, place):
        assert main(flags(FILE, wrong)) == 2
        assert result()["status"] == "refused" and result()["error"]
        assert main(flags(FILE)) == 0
        assert main(flags(FILE, wrong)) == 2  # of the release that is out: no older result is left to be read
        assert result()["status"] == "refused"

    def test_a_dry_run_leaves_it_alone(self, place):
        assert main(flags(FILE, "--dry_run")) == 0
        assert main(flags(FILE, "--dry_run", "--epsilon=2")) == 2
        assert not os.path.exists("r.json")


def no_room(*_, **__):
    raise OSError(28, "No space left on device")


class TestInTheWay:
    """What a run may replace."""

    def test_the_result_of_another_release_stays(self, place, capsys):
        assert main(flags(FILE, epsilon="0.1")) == 0
        before = result()
        other = [*flags(FILE, epsilon="0.1"), "--release_id=other", "--output=out2"]
        assert main(other) == 2
        assert "'r.json' exists and tells of another release; pass --overwrite" in capsys.readouterr().err
        assert result() == before and "other" not in account().releases
        assert main([*other, "--no_such_flag"]) == 2 and result() == before

    def test_overwritten_results_never_tell_of_the_run_before(self, place, monkeypatch):
        uncharged = [word for word in flags(FILE, "--overwrite") if word not in ACCOUNT]
        assert main(uncharged) == 0 and result()["status"] == "released"
        when_run(monkeypatch, lambda: (os.path.exists("r.json") and pytest.fail("left"), 1 / 0))
        assert main(uncharged) == 1 and result()["status"] == "failed"
        assert main([*uncharged[:-1], "--overwrite", "--epsilon=no"]) == 2 and result()["status"] == "refused"

    @pytest.mark.parametrize("text", ["{}", "[1]", "not json", '{"command": "x"}', ""])
    def test_a_file_of_somebody_else_is_never_touched_by_a_failure(self, text, place, monkeypatch, capsys):
        pathlib.Path("r.json").write_text(text)
        assert main(flags(FILE)) == 2
        assert "'r.json' exists; pass --overwrite" in capsys.readouterr().err
        when_run(monkeypatch, lambda: 1 / 0)
        assert main(flags(FILE, "--overwrite")) == 1
        assert main(flags(FILE, "--overwrite", "--nonsense")) == 2
        assert pathlib.Path("r.json").read_text() == text
        when_run(monkeypatch, draw)
        assert main(flags(FILE, "--overwrite")) == 0 and result()["status"] == "released"

    @pytest.mark.parametrize(
        "name", ["pairs.csv", "out.ledger.json", "out-00000-of-00002.parquet", "pairs.csv/r.json", "."]
    )
    def test_a_name_that_is_taken(self, name, place):
        before = {path: pathlib.Path(path).read_bytes() for path in os.listdir() if os.path.isfile(path)}
        for more in ([], ["--overwrite"], ["--overwrite", "--no_such_flag"]):
            assert main(flags(f"--result_file={name}", *more)) == 2
        assert {p: pathlib.Path(p).read_bytes() for p in before} == before and set(os.listdir()) == set(
            before
        )
        assert "night" not in account().releases

    def test_a_disk_that_is_full_leaves_no_old_result(self, place, monkeypatch, capsys):
        assert main(flags(FILE)) == 0
        with monkeypatch.context() as full:
            full.setattr("dpbeam.io.new_files.NewFile._put", no_room)
            assert main(flags(FILE)) == 0
        assert "warning: --result_file: cannot write 'r.json': No space left" in capsys.readouterr().err
        assert not [path for path in os.listdir() if path.startswith("r.json")]


def test_its_folder_is_made(place):
    assert main(flags("--result_file=new/folder/r.json")) == 0
    assert result("new/folder/r.json")["status"] == "released"


def test_a_file_named_in_a_config(place):
    pathlib.Path("c.yaml").write_text("result_file: r.json\n")
    assert main(flags("--config=c.yaml", epsilon="5")) == 2
    assert result()["status"] == "refused"
    assert main(flags("--config=c.yaml")) == 0
    assert result()["status"] == "released"


def test_trouble_with_the_file_changes_no_exit_code(place, monkeypatch, capsys):
    assert main(flags(FILE)) == 0
    with monkeypatch.context() as broken:
        broken.setattr("dpbeam.jobs.result.describe", lambda *_, **__: 1 / 0)
        assert main(flags(FILE)) == 0
        assert main(flags(FILE, "--epsilon=no")) == 2
    assert capsys.readouterr().err.count("warning: how the run ended could not be written down") == 2
