"""The output target: refusals, and no crash at any step leaves output that looks finished."""

import json
import os
import pathlib

import pytest

from dpbeam.errors import InputError
from dpbeam.io import output
from dpbeam.io.output import OutputTarget


def stage(target, shards, text="x"):
    target.prepare()
    for n in range(shards):
        name = f"shard-{n:05d}-of-{shards:05d}.{'parquet' if target.format == 'parquet' else 'txt'}"
        with open(os.path.join(target.staging, name), "w") as file:
            file.write(f"{text}{n}")


def finished(prefix):
    """What a reader who trusts the ledger sees: None, or the shards' contents; fails if they do not fit."""
    folder, stem = os.path.split(prefix)
    if not os.path.exists(f"{prefix}.ledger.json"):
        return None
    with open(f"{prefix}.ledger.json") as file:
        ledger = json.load(file)
    names = sorted(n for n in os.listdir(folder) if n.startswith(f"{stem}-") and "-of-" in n)
    texts = [pathlib.Path(folder, name).read_text() for name in names]
    assert texts == [f"{ledger['text']}{n}" for n in range(ledger["shards"])], "ledger and shards do not fit"
    return texts


def ledger(text, shards):
    return json.dumps({"text": text, "shards": shards})


def commit(prefix, text, shards, **options):
    target = OutputTarget(prefix, **options)
    target.check()
    stage(target, shards, text)
    return target.commit(ledger(text, shards))


def test_commit(tmp_path):
    prefix = f"{tmp_path}/new/out"
    paths = commit(prefix, "a", 2)
    assert paths == [f"{prefix}-0000{n}-of-00002.parquet" for n in range(2)] + [f"{prefix}.ledger.json"]
    assert finished(prefix) == ["a0", "a1"]
    assert sorted(os.listdir(tmp_path / "new")) == sorted(os.path.basename(path) for path in paths)


def test_overwrite(tmp_path):
    prefix = f"{tmp_path}/out"
    commit(prefix, "a", 3)
    (tmp_path / "out-notes.txt").write_text("mine")
    (tmp_path / "out2-00000-of-00001.txt").write_text("another")
    with pytest.raises(InputError) as error:
        OutputTarget(prefix).check()
    assert str(error.value) == (
        f"--output: '{prefix}.ledger.json' exists; pass --overwrite to replace it, or another prefix"
    )
    commit(prefix, "b", 1, overwrite=True, format="text")
    assert finished(prefix) == ["b0"]
    assert sorted(os.listdir(tmp_path)) == [
        "out-00000-of-00001.txt",
        "out-notes.txt",
        "out.ledger.json",
        "out2-00000-of-00001.txt",
    ]


def test_shards_without_a_ledger_are_not_overwritten(tmp_path):
    (tmp_path / "out-00000-of-00002.txt").write_text("left by a crash")
    with pytest.raises(InputError, match=r"out-00000-of-00002.txt' exists; pass --overwrite"):
        OutputTarget(f"{tmp_path}/out").check()


def test_output_that_appears_during_the_run(tmp_path):
    prefix = f"{tmp_path}/out"
    target = OutputTarget(prefix)
    target.check()
    stage(target, 1, "late")
    commit(prefix, "early", 1)
    with pytest.raises(InputError, match=r"has appeared during the run; pass --overwrite to replace it"):
        target.commit(ledger("late", 1))
    assert finished(prefix) == ["early0"]


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as error:
        OutputTarget(f"{tmp_path}/file/out").check()
    assert str(error.value) == (
        f"--output: cannot write '{tmp_path}/file/out': '{tmp_path}/file' is not a folder"
    )
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))
    with pytest.raises(InputError) as error:
        OutputTarget(f"{tmp_path}/a/b/out").check()
    assert str(error.value) == (
        f"--output: cannot write '{tmp_path}/a/b/out': no permission to write in '{tmp_path}'"
    )
    with pytest.raises(InputError, match=r"^--output: cannot look up 'nowhere://x': "):
        OutputTarget("nowhere://x").check()


def test_bad_prefixes():
    for prefix in ("", "dir/"):
        with pytest.raises(InputError) as error:
            OutputTarget(prefix)
        assert str(error.value) == (
            f"--output: '{prefix}' is not a prefix of file names; add a name, for example '{prefix}items'"
        )
    with pytest.raises(InputError, match=r"^--output_format: expected one of parquet, text, got 'csv'$"):
        OutputTarget("x", "csv")


def test_check_leaves_no_trace(tmp_path):
    OutputTarget(f"{tmp_path}/a/b/out").check()
    assert os.listdir(tmp_path) == []


def test_relative_prefix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commit("out", "a", 1)
    assert sorted(os.listdir()) == ["out-00000-of-00001.parquet", "out.ledger.json"]
    with pytest.raises(InputError, match=r"'out.ledger.json' exists"):
        OutputTarget("out").check()


def test_abort(tmp_path):
    target = OutputTarget(f"{tmp_path}/out")
    stage(target, 2)
    target.abort()
    target.abort()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "names",
    [[], ["00000-of-00002"], ["00000-of-00001", "00000-of-00002", "00001-of-00002"], ["00001-of-00001"]],
)
def test_a_set_of_shards_that_is_not_whole(tmp_path, names):
    target = OutputTarget(f"{tmp_path}/out")
    target.prepare()
    for name in names:
        with open(os.path.join(target.staging, f"shard-{name}.parquet"), "w"):
            pass
    with pytest.raises(RuntimeError, match=r"does not hold one whole set of shards"):
        target.commit("{}")
    assert finished(f"{tmp_path}/out") is None


def test_staging_of_two_runs_is_apart():
    assert OutputTarget("x").staging != OutputTarget("x").staging


class Crash(BaseException):
    """Ends the process where a test says so."""


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_crash_at_any_step(tmp_path, monkeypatch, overwrite):
    """Every filesystem call of commit fails once, before and after it has worked."""
    steps = 0
    while True:
        prefix = f"{tmp_path}/{steps}/out"
        os.makedirs(os.path.dirname(prefix))
        if overwrite:
            commit(prefix, "old", 3)
        target = OutputTarget(prefix, overwrite=overwrite)
        stage(target, 2, "new")
        crashed = crash_at(monkeypatch, steps, target)
        # Old and whole (nothing touched yet), new and whole, or nothing that looks finished.
        assert finished(prefix) in (None, ["new0", "new1"], ["old0", "old1", "old2"])
        if not crashed:
            assert finished(prefix) == ["new0", "new1"]
            break
        # A second run may always replace what is left.
        commit(prefix, "again", 1, overwrite=True)
        assert finished(prefix) == ["again0"]
        steps += 1
    assert steps >= (18 if overwrite else 8)


def crash_at(monkeypatch, step, target):
    """Commit, and crash at filesystem change number `step` // 2: before it (even) or after (odd)."""
    from apache_beam.io.filesystems import FileSystems

    calls = 0

    def crashing(original):
        def call(*args, **kwargs):
            nonlocal calls
            number, calls = calls, calls + 1
            if number == step // 2 and step % 2 == 0:
                raise Crash
            result = original(*args, **kwargs)
            if number == step // 2:
                raise Crash
            return result

        return call

    with monkeypatch.context() as patch:
        for name in ("delete", "rename", "create"):
            patch.setattr(FileSystems, name, crashing(getattr(FileSystems, name)))
        # A crash does not clean up behind itself.
        patch.setattr(output, "delete_quietly", crashing(output.delete_quietly))
        patch.setattr("dpbeam.io.files.delete_quietly", lambda paths: None)
        try:
            target.commit(ledger("new", 2))
        except Crash:
            return True
    return False


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_full_disk_at_any_step_of_commit(tmp_path, monkeypatch, overwrite):
    """A write that fails leaves older output whole, a move that fails leaves nothing: never shards without a ledger."""
    from apache_beam.io.filesystems import FileSystems

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    for step, name in enumerate(["create", "rename", "rename", "rename", "rename"]):
        prefix = f"{tmp_path}/{step}/out"
        os.makedirs(os.path.dirname(prefix))
        if overwrite:
            commit(prefix, "old", 3)
        target = OutputTarget(prefix, overwrite=overwrite)
        stage(target, 2, "new")
        original, calls = getattr(FileSystems, name), []

        def nth(*args, original=original, calls=calls, step=step, **kwargs):
            calls.append(args)
            return full() if len(calls) == max(step, 1) else original(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(FileSystems, name, nth)
            with pytest.raises(OSError, match="No space left"):
                target.commit(ledger("new", 2))
        target.abort()
        left = finished(prefix)
        assert left == (["old0", "old1", "old2"] if overwrite and step <= 1 else None)
        if left is None:
            assert os.listdir(os.path.dirname(prefix)) == []
