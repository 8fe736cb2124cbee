"""A power cut: what an account calls published or out is on the disk by then, and what is damaged is not called out."""

import json
import os
import pathlib
import shutil

import pytest

from dpbeam.cli import main
from dpbeam.io import output, sinks
from dpbeam.io.lock import LOCK_SUFFIX
from dpbeam.jobs import charged
from dpbeam.storage import FileSystems, local
from tests.jobs.conftest import RESOLVE, account, create, flags, release, when_run
from tests.support.power import Disk, cut_power, loop_mount

BUDGET = ["--epsilon=1", "--delta=1e-6"]
PAIRS = ["--input=pairs.csv", "--user_column=u", "--item_column=i"]
ACCOUNT = ["--budget=b.db", "--dataset=logs", "--release_id=night"]
RELEASE = [*ACCOUNT, *BUDGET, "--output=new/folder/out", "--quiet"]
#: Of every command that publishes, what it needs besides.
COMMANDS = {
    "select": [*PAIRS, "--method=basic", "--num_output_shards=3"],
    "select --overwrite": [*PAIRS, "--method=basic", "--overwrite"],
    "top-k": [*PAIRS, "--k=2", "--selector=basic"],
    "hitting-set": [*PAIRS, "--k=2", "--selector=basic"],
    "count": [*PAIRS, "--domain=list.txt"],
    "pack": ["--agents=agents.csv", "--supplies=supplies.yaml", "--alpha=0.5", "--allow_small_supply"],
    "series open": ["--folder=f", "--nights=2"],
}


def write_inputs() -> None:
    rows = [f"u{user},i{item}" for user in range(60) for item in range(2)]
    pathlib.Path("pairs.csv").write_text("\n".join(["u,i", *rows]) + "\n")
    pathlib.Path("list.txt").write_text("i0\ni1\n")
    agents = [f"a{n},{n / 60},1" for n in range(60)]
    pathlib.Path("agents.csv").write_text("\n".join(["agent,value,beds", *agents]) + "\n")
    pathlib.Path("supplies.yaml").write_text("beds: 20\n")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs()
    create("logs", "--epsilon=10")
    return tmp_path


class TestOrder:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_what_the_account_says_is_on_the_disk(self, command, here, monkeypatch):
        argv = [*command.removesuffix(" --overwrite").split(), *COMMANDS[command]]
        if "--overwrite" in command:
            assert main([*argv, *RELEASE, "--release_id=before"]) == 0
        disk = Disk(here, monkeypatch)
        assert main([*argv, *RELEASE]) == 0
        assert disk.moments == [("publish", []), ("ledger out.ledger.json", []), ("commit", [])]

    def test_without_an_account(self, here, monkeypatch):
        disk = Disk(here, monkeypatch)
        assert main(["select", *PAIRS, "--method=basic", *BUDGET, "--output=new/out", "--quiet"]) == 0
        assert disk.moments == [("ledger out.ledger.json", [])]
        assert disk.lost("new/out.ledger.json", "new/out-00000-of-00001.parquet") == []

    @pytest.mark.parametrize("more", [[], ["--runner=FnApiRunner"]], ids=["here", "engine"])
    def test_nights(self, more, here, monkeypatch):
        assert main(["series", "open", *COMMANDS["series open"], *RELEASE]) == 0
        disk = Disk(here, monkeypatch)
        assert main(["series", "run", "--folder=f", "--night=1", *PAIRS, "--quiet", *more]) == 0
        assert disk.moments == [("ledger out-1.ledger.json", [])]
        names = ("ledger.json", "released.parquet")
        files = ["new/folder/out-1-00000-of-00001.parquet", *(f"new/folder/out-1.{name}" for name in names)]
        assert disk.lost(*files) == []

    def test_what_a_killed_run_has_renamed(self, place, monkeypatch):
        """It died before it could flush its last names: who tells the account does that."""
        disk = Disk(place, monkeypatch)
        with monkeypatch.context() as killed:
            killed.setattr(output.OutputTarget, "_flush_names", lambda _: None)
            killed.setattr(charged.RunCharge, "_commit", lambda _: None)
            assert main(flags()) == 0
        monkeypatch.setattr(charged, "_GOING", set())
        assert release().state == "publishing" and disk.lost("out.ledger.json") == ["out.ledger.json"]
        assert main(RESOLVE) == 0
        assert disk.moments[-1] == ("commit", [])

    def test_the_model_sees_what_is_not_flushed(self, here, monkeypatch):
        monkeypatch.setattr(local, "flush", lambda path: None)
        disk = Disk(here, monkeypatch)
        assert main(["select", *COMMANDS["select"], *RELEASE]) == 0
        assert [bool(lost) for _, lost in disk.moments] == [False, True, True]

    def test_a_worker_flushes_what_it_writes(self, here, monkeypatch):
        """On a machine of its own nobody else can."""
        os.mkdir("staging")
        disk = Disk(here, monkeypatch)
        path = sinks.stage("staging", 0, 1, "text", lambda file: file.write(b"a"))
        assert disk.contents_kept(path)

    def test_a_result_file(self, here, monkeypatch):
        disk = Disk(here, monkeypatch)
        assert main(["select", *COMMANDS["select"], *RELEASE, "--result_file=r.json"]) == 0
        assert disk.contents_kept("r.json")


def empty(path: str) -> None:
    os.truncate(path, 0)


class TestDamaged:
    """Files as an unflushed disk leaves them: there, and empty."""

    @pytest.mark.parametrize("name", ["out.ledger.json", "out-00001-of-00002.parquet"])
    def test_what_is_out_and_damaged_is_refused(self, name, place, monkeypatch, capsys):
        assert main(flags()) == 0
        copy = pathlib.Path(name).read_bytes()
        empty(name)
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        for argv in (flags(), RESOLVE):
            capsys.readouterr()
            assert main(argv) == 2
            out, err = capsys.readouterr()
            assert out == "" and err.count("\n") == 1
            assert f"error: --release_id: 'night' is out since {release().last.at}, but '" in err
            assert f"{name}' is not what was published: put a copy there, or remove it" in err
        assert len(account().entries) == 5
        pathlib.Path(name).write_bytes(copy)
        assert main(flags()) == main(RESOLVE) == 0
        os.remove(name)  # which may have been moved
        assert main(flags()) == main(RESOLVE) == 0

    def test_the_output_of_a_later_release_is_its_own(self, place, monkeypatch):
        create("other", "--epsilon=1")
        assert main(flags()) == 0
        assert main([*flags("--overwrite"), "--dataset=other"]) == 0
        empty("out-00001-of-00002.parquet")
        assert main(flags()) == 0
        assert main(flags("--dataset=other")) == 2

    def cut_short(self, monkeypatch, at: int) -> None:
        """Dies at the `at`-th rename of the commit."""
        with monkeypatch.context() as broken:
            renames = iter(range(1, 9))
            rename = FileSystems.rename

            def dies(source: str, target: str) -> None:
                if next(renames) == at:
                    raise OSError(5, "Input/output error")
                rename(source, target)

            broken.setattr(FileSystems, "rename", dies)
            assert main(flags()) == 1
        assert release().state == "publishing"

    def test_staged_files_that_are_damaged_are_not_there(self, place, monkeypatch, capsys):
        self.cut_short(monkeypatch, 2)
        (folder,) = place.glob("out.staging-*")
        shutil.copytree(folder, "kept")
        when_run(monkeypatch, lambda: pytest.fail("ran"))
        for name in ("shard-00001-of-00002.parquet", "ledger.json"):
            empty(folder / name)
            for argv in (flags(), RESOLVE):
                assert main(argv) == 2
                assert "neither its output" in capsys.readouterr().err
            assert release().state == "publishing" and not os.path.exists("out.ledger.json")
            shutil.copy(f"kept/{name}", folder)
        os.rename(folder / "shard-00001-of-00002.parquet", "elsewhere")
        assert main(flags()) == 2
        os.rename("elsewhere", folder / "shard-00001-of-00002.parquet")
        assert main(flags()) == 0 and release().state == "committed"

    def test_a_damaged_output_is_not_called_complete(self, place, monkeypatch, capsys):
        with monkeypatch.context() as broken:
            broken.setattr("dpbeam.jobs.charged.RunCharge._commit", lambda _: None)
            assert main(flags()) == 0
        assert release().state == "publishing"
        monkeypatch.setattr(charged, "_GOING", set())
        copy = pathlib.Path("out-00000-of-00002.parquet").read_bytes()
        empty("out-00000-of-00002.parquet")
        assert main(RESOLVE) == 2 and release().state == "publishing"
        pathlib.Path("out-00000-of-00002.parquet").write_bytes(copy)
        assert main(RESOLVE) == 0 and release().state == "committed"


@pytest.mark.engines  # needs the right to mount
class TestPowerCut:
    """On ext4: what the disk below holds when the command has just ended."""

    @pytest.mark.parametrize("command", ["select", "pack", "series"])
    def test_a_paid_release_is_kept(self, command, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_inputs()
        paid = ["--budget=disk/b.db", *ACCOUNT[1:]]
        with loop_mount(tmp_path) as place:
            limit = ["--dataset=logs", "--epsilon=10", "--delta=1e-4", "--quiet"]
            assert main(["budget", "create", "--budget=disk/b.db", *limit]) == 0
            if command == "series":
                runs = [
                    ["series", "open", "--folder=disk/f", "--nights=2", *paid, *BUDGET, "--output=disk/o/x"],
                    ["series", "run", "--folder=disk/f", "--night=1", *PAIRS],
                ]
                ledgers = ["disk/o/x.ledger.json", "disk/o/x-1.ledger.json"]
            else:
                runs = [[command, *COMMANDS[command], *paid, *BUDGET, "--output=disk/o/x"]]
                ledgers = ["disk/o/x.ledger.json"]
            for argv in runs:
                assert main([*argv, "--quiet"]) == 0
            before = {path: path.read_bytes() for path in (place / "o").iterdir()}
            cut_power(place)
            assert {path: path.read_bytes() for path in before} == before  # beside what was to be removed
            for argv in runs:
                assert main([*argv, "--quiet"]) == 0
            assert main(["verify", "--contents", "--quiet", *ledgers]) == 0
            (place / "o" / f"x{LOCK_SUFFIX}").unlink(missing_ok=True)  # its removal need not survive
            assert {path: path.read_bytes() for path in (place / "o").iterdir()} == before
            assert json.loads((place / "o" / "x.ledger.json").read_text())["parameters"]["account"]
