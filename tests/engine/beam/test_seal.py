"""Encryption of the private folder: what is in it, what is refused, and that nothing else changes."""

import glob
import os
import pathlib
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.cli import main
from dpbeam.engine import seal
from dpbeam.engine.beam import owner, store
from dpbeam.engine.beam.messages import FILE_PREFIX
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.seal import FOLDER_KEY, Seal, SealError
from dpbeam.errors import InputError
from dpbeam.jobs import running
from dpbeam.jobs.beam_flags import SECRET_VARIABLES
from dpbeam.randomness import RunKey

pytestmark = pytest.mark.usefixtures("quick_pipelines")
KEY = "0123456789abcdef" * 4
#: How names of files begin that every attempt gives anew.
OF_AN_ATTEMPT = (FILE_PREFIX, "receipts-")
RUN_KEY = RunKey(bytes(range(32)), insecure=True)
FEW = settings(max_examples=60, deadline=None)


@pytest.fixture(autouse=True)
def folder_key(monkeypatch):
    monkeypatch.setenv(FOLDER_KEY, KEY)


def sealed(name: str, offset: int, data: bytes, key: RunKey = RUN_KEY) -> bytes:
    return b"".join(Seal(key).pieces(name, offset, data))


class TestSeal:
    @FEW
    @given(data=st.binary(max_size=100), offset=st.integers(0, 2**63), segment=st.integers(1, 40))
    def test_what_was_written_is_read(self, data, offset, segment):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(seal, "SEGMENT", segment)
            assert Seal(RUN_KEY).open("a", offset, sealed("a", offset, data)) == data

    @FEW
    @given(data=st.binary(max_size=60), bit=st.integers(0, 10**6), segment=st.sampled_from([16, 1 << 30]))
    def test_a_flipped_bit_is_refused(self, data, bit, segment):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(seal, "SEGMENT", segment)
            changed = bytearray(sealed("a", 0, data))
            changed[bit // 8 % len(changed)] ^= 1 << bit % 8
            with pytest.raises(SealError, match="is not what the run wrote"):
                Seal(RUN_KEY).open("a", 0, bytes(changed))

    @pytest.mark.parametrize(
        "change",
        [
            ("b", 0, lambda data: data),  # another file's place
            ("a", 1, lambda data: data),  # another place in the file
            ("a", 0, lambda data: data[:-1]),
            ("a", 0, lambda data: data[: 16 + 28]),  # a whole segment is left, and no last one
            ("a", 0, lambda data: data[16 + 28 :]),
            ("a", 0, lambda data: data[16 + 28 : 2 * (16 + 28)] + data[: 16 + 28] + data[2 * (16 + 28) :]),
            ("a", 0, lambda data: data + b"x"),
            ("a", 0, lambda data: b""),
        ],
    )
    def test_what_was_moved_or_cut_is_refused(self, change, monkeypatch):
        monkeypatch.setattr(seal, "SEGMENT", 16)
        name, offset, changed = change
        data = sealed("a", 0, bytes(40))
        with pytest.raises(SealError):
            Seal(RUN_KEY).open(name, offset, changed(data))

    def test_another_run_opens_nothing_and_nothing_is_written_twice_alike(self):
        data = sealed("a", 0, b"text")
        with pytest.raises(SealError):
            Seal(RunKey.fresh()).open("a", 0, data)
        assert data != sealed("a", 0, b"text")


class TestFolderKey:
    def test_no_flag_may_carry_it(self):
        assert FOLDER_KEY in SECRET_VARIABLES  # tests/cli/test_flags.py goes through them

    @pytest.mark.parametrize("text", ["", "secret", KEY[:-1], KEY + "00", "z" * 64])
    def test_what_is_no_key_is_named_and_not_shown(self, text, monkeypatch):
        monkeypatch.setenv(FOLDER_KEY, text)
        with pytest.raises(InputError) as error:
            seal.folder_key()
        assert str(error.value) == f"--encrypt_intermediates: {FOLDER_KEY} must be 64 hexadecimal digits"

    def test_the_runs_key_opens_in_its_own_folder_under_the_same_key_alone(self, tmp_path, monkeypatch):
        with (
            RunFolder(str(tmp_path), RUN_KEY, encrypt=True) as folder,
            RunFolder(str(tmp_path), RunKey.fresh(), encrypt=True) as other,
        ):
            kept = pathlib.Path(folder.path, "key")
            assert RUN_KEY.secret_bytes() not in kept.read_bytes()
            assert folder.store.run_key().secret_bytes() == RUN_KEY.secret_bytes()
            with monkeypatch.context() as patch:
                patch.setenv(FOLDER_KEY, "f" * 64)
                with pytest.raises(InputError, match="is not that of its launcher"):
                    folder.store.run_key()
                patch.delenv(FOLDER_KEY)
                with pytest.raises(InputError, match="launcher and workers need the same"):
                    folder.store.run_key()
            # Nor may who writes in the store put another run's key there, or one of his own.
            for planted in (pathlib.Path(other.path, "key").read_bytes(), RunKey.fresh().secret_bytes(), b""):
                kept.write_bytes(planted)
                with pytest.raises(InputError, match="or the private folder was changed"):
                    folder.store.run_key()

    def test_a_job_carries_the_path_and_no_key(self, tmp_path, monkeypatch):
        with RunFolder(str(tmp_path), RUN_KEY, encrypt=True) as folder:
            folder.store.write_bytes("a", b"text")
            assert folder.store.read_bytes("a") == b"text"
            stored = pickle.dumps(folder.store)
            assert vars(folder.store) == {
                "path": folder.path,
                "encrypted": True,
                "durable": False,
                "in_memory": False,
            }
            for secret in (RUN_KEY.secret_bytes(), bytes.fromhex(KEY), KEY.encode()):
                assert secret not in stored
            # A worker without the folder key says what it lacks.
            monkeypatch.delenv(FOLDER_KEY)
            store._seal_of.cache_clear()
            with pytest.raises(InputError, match=f"{FOLDER_KEY} is not in the environment"):
                pickle.loads(stored).read_bytes("a")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> pathlib.Path:
    """Items so long that messages lie in the folder too; of random bytes, which no compression hides."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.parquet"
    rng = np.random.default_rng(7)
    names = [rng.bytes(150) for _ in range(600)]
    user = np.repeat(np.arange(1_500), 12)
    item = (600 ** rng.random(len(user))).astype(int)
    table = {"user": user, "item": pa.array([names[i] for i in item], pa.binary())}
    pq.write_table(pa.table(table), path)
    return path


def command(pairs: pathlib.Path, folder: pathlib.Path, *more: str) -> list[str]:
    return [
        *("select", f"--input={pairs}", "--user_column=user", "--item_column=item", "--method=mad2r"),
        *("--epsilon=1", "--delta=1e-6", "--num_shards=2", "--insecure_test_key=5ea1", "--quiet"),
        *(f"--output={folder}/out", f"--temp_location={folder}/temp", *more),
    ]


def released(folder: pathlib.Path) -> dict[str, bytes]:
    return {os.path.basename(path): pathlib.Path(path).read_bytes() for path in glob.glob(f"{folder}/out-*")}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Every file of the private folders as they were at the end of their run: name -> bytes."""
    files: dict[str, bytes] = {}
    remove = RunFolder.remove

    def keep(folder: RunFolder) -> None:
        if os.path.isdir(folder.path):
            files.clear()
            files.update({path.name: path.read_bytes() for path in pathlib.Path(folder.path).iterdir()})
        remove(folder)

    monkeypatch.setattr(RunFolder, "remove", keep)
    return files


def test_the_folder_of_a_run_shows_nothing_and_the_output_is_the_same(pairs, tmp_path, kept):
    items = pq.read_table(pairs, columns=["item"]).column("item").to_pylist()
    parts = {item[50:70] for item in items}

    def shown() -> set[str]:
        return {name for name, data in kept.items() if any(part in data for part in parts)}

    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
    assert main(command(pairs, tmp_path / "open")) == 0
    assert shown(), "a folder that is not encrypted shows items"
    names = {name for name in kept if not name.startswith(OF_AN_ATTEMPT)}
    assert len(names) < len(kept), "no messages lay in files"
    assert main(command(pairs, tmp_path / "closed", "--encrypt_intermediates")) == 0
    assert released(tmp_path / "closed") == released(tmp_path / "open") != {}
    assert {name for name in kept if not name.startswith(OF_AN_ATTEMPT)} == names
    assert shown() == set()
    run = Seal(RunKey.insecure_fixed("5ea1"))
    for name, data in kept.items():
        if name == "key":
            assert data.startswith(b"dpbeam run key, encrypted\n")
        elif name != owner.FILE and not name.startswith(FILE_PREFIX):
            assert run.open(name, 0, data) and data.count(0) < len(data) / 16, name
    secret = RunKey.insecure_fixed("5ea1").secret_bytes()
    assert not any(
        part in data for part in (secret, bytes.fromhex(KEY), KEY.encode()) for data in kept.values()
    )


class TestGoingOn:
    """A run with checkpoints that fails after its first jobs."""

    @pytest.fixture
    def begun(self, pairs, tmp_path, monkeypatch):
        """The command of a run that has failed, and its folder."""
        argv = command(pairs, tmp_path, f"--checkpoint={tmp_path}/kept", "--passes_per_job=1")
        argv.append("--encrypt_intermediates")
        ran: list[int] = []
        run = running.run_and_wait

        def fails(*args):
            if len(ran) == 2:
                raise OSError(28, "No space left on device")
            ran.append(1)
            return run(*args)

        with monkeypatch.context() as broken:
            broken.setattr(running, "run_and_wait", fails)
            assert main(argv) == 1
        (folder,) = (tmp_path / "kept").iterdir()
        return argv, folder

    def test_it_gives_what_one_run_gives(self, begun, pairs, tmp_path):
        argv, _ = begun
        (tmp_path / "whole").mkdir()
        assert main(command(pairs, tmp_path / "whole")) == 0
        assert main(argv) == 0
        files, whole = released(tmp_path), released(tmp_path / "whole")
        assert {k: v for k, v in files.items() if k.endswith("parquet")} == {
            k: v for k, v in whole.items() if k.endswith("parquet")
        }
        assert list((tmp_path / "kept").iterdir()) == []

    def test_it_goes_on_under_its_own_terms_alone(self, begun, tmp_path, monkeypatch, capsys):
        argv, folder = begun
        assert main(argv[:-1]) == 2
        assert "holds a run with other settings" in capsys.readouterr().err
        monkeypatch.setenv(FOLDER_KEY, "f" * 64)
        store._seal_of.cache_clear()
        assert main(argv) == 2
        assert "holds a run with other settings" in capsys.readouterr().err
        assert folder.is_dir() and released(tmp_path) == {}
        with pytest.raises(InputError, match=FOLDER_KEY):
            RunFolder.resume(str(folder), encrypted=True)

    @pytest.mark.parametrize("change", ["flip", "swap"])
    def test_changed_files_end_it_without_output(self, change, begun, tmp_path, capsys):
        argv, folder = begun
        blocks = sorted(folder.glob("shard-*")) or sorted(folder.glob("block-*"))
        assert len(blocks) >= 2
        if change == "flip":
            for path in blocks:
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)
        else:
            aside = folder / "aside"
            first, second = (
                path for path in blocks if path.name.split("-")[2:] == blocks[0].name.split("-")[2:]
            )
            shutil.move(first, aside)
            shutil.move(second, first)
            shutil.move(aside, second)
        assert main(argv) == 1
        assert "is not what the run wrote" in capsys.readouterr().err
        assert released(tmp_path) == {}


class TestFlags:
    def test_without_a_key_nothing_starts(self, pairs, tmp_path, monkeypatch, capsys):
        monkeypatch.delenv(FOLDER_KEY)
        assert main(command(pairs, tmp_path, "--encrypt_intermediates")) == 2
        assert FOLDER_KEY in capsys.readouterr().err
        assert not (tmp_path / "temp").exists() and released(tmp_path) == {}

    def test_a_pipe_is_refused(self, tmp_path, capsys):
        pipe = tmp_path / "pairs.csv"
        os.mkfifo(pipe)
        assert main(command(pipe, tmp_path, "--input_format=csv", "--encrypt_intermediates")) == 2
        assert "--encrypt_intermediates: what comes through a pipe" in capsys.readouterr().err

    def test_it_is_off_unless_asked_for(self, tmp_path):
        with RunFolder(str(tmp_path)) as folder:
            assert not folder.store.encrypted
            folder.store.write_bytes("a", b"text")
            assert pathlib.Path(folder.path, "a").read_bytes() == b"text"
        assert not RunStore("x").encrypted
