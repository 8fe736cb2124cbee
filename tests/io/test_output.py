"""The output target: refusals, and no crash at any step leaves output that looks finished."""

import json
import os
import pathlib
from dataclasses import replace

import pytest

from dpbeam.cli import main
from dpbeam.engine.beam import owner
from dpbeam.errors import InputError, RunnerError, UnavailableError
from dpbeam.io import output
from dpbeam.io.new_files import ANOTHERS, NewFile
from dpbeam.io.output import OutputTarget, read_ledger, shards_named
from dpbeam.io.output_formats import shard_name
from dpbeam.storage.files import UNAVAILABLE
from tests.support import memory_store
from tests.support.commands import COLUMNS
from tests.support.releases import ledger_of


def stage(target, shards, text="x"):
    target.prepare()
    for n in range(shards):
        name = f"shard-{shard_name(n, shards, target.format)}"
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
    stated = ledger["parameters"]
    expected = [f"{stated['text']}{n}" for n in range(stated["shards"])]
    assert texts == expected, "ledger and shards do not fit"
    return texts


def ledger(text, shards):
    return replace(ledger_of(release=None), parameters={"text": text, "shards": shards})


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


IN_THE_WAY = "is in the way, and no ledger of dpbeam names it; choose another prefix, or remove it yourself"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "name",
    ["out-00000-of-00002.txt", "out-00001-of-00004.csv", "out.ledger.json", "out-00000-of-00001.parquet"],
)
def test_only_what_a_ledger_names_is_overwritten(tmp_path, name, overwrite):
    prefix = f"{tmp_path}/out"
    (tmp_path / name).write_text("{}")
    target = OutputTarget(prefix, overwrite=overwrite)
    with pytest.raises(InputError) as error:
        target.check()
    assert str(error.value) == f"--output: '{tmp_path}/{name}' {IN_THE_WAY}"
    stage(target, 1)
    with pytest.raises(InputError):
        target.commit(ledger("x", 1))
    assert (tmp_path / name).read_text() == "{}"


def test_shards_beside_those_of_a_ledger_are_not_overwritten(tmp_path):
    prefix = f"{tmp_path}/out"
    commit(prefix, "a", 2)
    (tmp_path / "out-00000-of-00003.parquet").write_text("mine")
    with pytest.raises(InputError, match=rf"out-00000-of-00003.parquet' {IN_THE_WAY}"):
        commit(prefix, "b", 1, overwrite=True)


@pytest.mark.parametrize("foreign", [None, "out-00000-of-00003.parquet", "out-00000-of-00001.csv"])
def test_a_ledger_that_names_no_files(tmp_path, foreign):
    """Written by an earlier version: it stands for one whole set of shards, and for nothing where there is more."""
    prefix = f"{tmp_path}/out"
    commit(prefix, "old", 2)
    (tmp_path / "out.ledger.json").write_text(ledger("old", 2).to_json())
    if foreign is None:
        commit(prefix, "new", 1, overwrite=True)
        assert finished(prefix) == ["new0"]
        return
    (tmp_path / foreign).write_text("mine")
    with pytest.raises(InputError, match=IN_THE_WAY):
        commit(prefix, "new", 1, overwrite=True)
    assert (tmp_path / foreign).read_text() == "mine" and len(os.listdir(tmp_path)) == 4


@pytest.mark.parametrize("link", ["same", "symlink", "hard link"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_input_is_never_overwritten(tmp_path, link, overwrite):
    """`--output d/logs --overwrite` over inputs d/logs-*.parquet deleted them; here even our own earlier output."""
    prefix = f"{tmp_path}/logs"
    commit(prefix, "a", 4)
    link_path = shard = f"{prefix}-00002-of-00004.parquet"
    if link != "same":
        link_path = f"{tmp_path}/other"
        (os.symlink if link == "symlink" else os.link)(shard, link_path)
    target = OutputTarget(prefix, overwrite=overwrite)
    with pytest.raises(InputError) as error:
        target.check([f"{tmp_path}/none", link_path])
    message = f"--output: '{shard}' is an input of this run; choose another prefix"
    assert str(error.value) == message
    stage(target, 1)
    with pytest.raises(InputError, match="is an input of this run"):
        target.commit(ledger("b", 1))
    assert finished(prefix) == ["a0", "a1", "a2", "a3"]
    with pytest.raises(InputError, match=r"logs.ledger.json' is an input of this run"):
        OutputTarget(prefix, overwrite=True).check([f"{prefix}.ledger.json"])


def test_other_files_of_a_run_are_no_inputs_and_no_output(tmp_path):
    (tmp_path / "in.csv").write_text("")
    target = OutputTarget(f"{tmp_path}/out")
    target.check([f"{tmp_path}/in.csv"], {"--not_private_counts": f"{tmp_path}/counts.json"})
    for path, problem in (
        (f"{tmp_path}/./in.csv", "is an input of this run; name another file"),
        (f"{tmp_path}/./out.ledger.json", "is a file of --output; name another one"),
        (f"{tmp_path}/out-00000-of-00001.parquet", "is a file of --output; name another one"),
    ):
        with pytest.raises(InputError) as error:
            target.check([f"{tmp_path}/in.csv"], {"--not_private_counts": path})
        assert str(error.value) == f"--not_private_counts: '{path}' {problem}"


def test_folders_are_no_prefixes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "d").mkdir()
    for prefix in (".", "..", "d", str(tmp_path), "~"):
        shown = str(tmp_path) if prefix == "~" else prefix
        with pytest.raises(InputError) as error:
            OutputTarget(prefix)
        assert str(error.value) == f"--output: '{shown}' is a folder; add a name, for example '{shown}/items'"
    for prefix in ("~/x", f"file://{tmp_path}/x"):
        assert OutputTarget(prefix).prefix == f"{tmp_path}/x"


@pytest.mark.parametrize("stem", ["*", "out*", "o?t", "[o]ut", "out[1-"])
def test_wildcards_in_a_local_prefix_are_plain_characters(tmp_path, stem):
    """Beam's local filesystem takes them for wildcards when it deletes: older output of other prefixes went too."""
    for other in ("out", "out1"):
        commit(f"{tmp_path}/{other}", "other", 2)
    (tmp_path / "out.staging-mine").mkdir()
    before = set(os.listdir(tmp_path))
    prefix = f"{tmp_path}/{stem}"
    commit(prefix, "a", 2)
    commit(prefix, "b", 1, overwrite=True)
    added = {f"{stem}-00000-of-00001.parquet", f"{stem}.ledger.json"}
    assert set(os.listdir(tmp_path)) == before | added
    target = OutputTarget(prefix, overwrite=True)
    stage(target, 1)
    target.abort()
    assert set(os.listdir(tmp_path)) == before | added


def test_the_ledger_names_the_output(tmp_path):
    prefix = f"{tmp_path}/out"
    commit(prefix, "a", 3, format="csv")
    stored = read_ledger(prefix)
    assert stored["parameters"]["output"] == {"format": "csv", "shards": 3}
    assert shards_named(prefix, stored) == [f"{prefix}-0000{n}-of-00003.csv" for n in range(3)]
    for broken in ({"shards": 3}, {"shards": "3", "format": "csv"}, {"shards": 1, "format": "exe"}, 3):
        assert shards_named(prefix, {"parameters": {"output": broken}}) == []
    assert read_ledger(f"{tmp_path}/none") is None


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
    with pytest.raises(
        InputError, match=r"^--output_format: expected one of parquet, text, csv, jsonl, got 'tsv'$"
    ):
        OutputTarget("x", "tsv")


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
    with pytest.raises(RunnerError, match=r"does not hold one whole set of shards"):
        target.commit(ledger_of())
    assert finished(f"{tmp_path}/out") is None


def test_a_staging_folder_on_a_store_names_its_process_or_is_refused(monkeypatch):
    store = memory_store.install(monkeypatch)
    target = OutputTarget("s3://bucket/x")
    target.prepare()
    assert any(url.endswith(owner.FILE) for url in store.objects)

    def away(kind, url):
        if kind == "put":
            raise OSError(UNAVAILABLE, "the store does not answer")

    store.watch = away
    with pytest.raises(
        UnavailableError, match=r"^--output: cannot write 's3://bucket/y': the store does not answer"
    ):
        OutputTarget("s3://bucket/y").prepare()


def test_a_staging_folder_that_cannot_be_looked_into_may_hold_output(tmp_path, monkeypatch):
    """That of another user, say."""
    target = OutputTarget(str(tmp_path / "x"))
    assert not output.holds_output(target.staging)
    target.prepare()
    assert not output.holds_output(target.staging)
    pathlib.Path(target.staging, "shard-00000-of-00001.txt").touch()
    assert output.holds_output(target.staging)

    def closed(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(output.os, "listdir", closed)
    assert output.holds_output(target.staging)


@pytest.mark.parametrize(
    "prefix, temp, below",
    [
        ("s3://b/out/x", "s3://b/temp", True),
        ("s3://b/out/x", "s3://b/temp/", True),
        ("s3://b/out/x", "s3://b2/temp", False),
        ("s3://b/out/x", "/tmp", False),
        ("hdfs://n:1/out/x", "hdfs://n:1/temp", False),  # which closes folders itself
        ("/b/out/x", "/b/temp", False),
    ],
)
def test_what_a_store_cannot_close_is_staged_where_runs_lie(prefix, temp, below):
    target = OutputTarget(prefix)
    beside = target.staging
    target.stage_below(temp)
    assert target.staging.startswith("s3://b/temp/dpbeam-staging-") if below else target.staging == beside
    assert target.staging[-16:] == beside[-16:]


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
        assert not os.path.exists(f"{prefix}.commit.json")
        beside = {name for name in os.listdir(os.path.dirname(prefix)) if ".staging-" not in name}
        assert beside == {"out-00000-of-00001.parquet", "out.ledger.json"}
        steps += 1
    assert steps >= (24 if overwrite else 12)


def crash_at(monkeypatch, step, target):
    """Commit, and crash at filesystem change number `step` // 2: before it (even) or after (odd)."""
    from dpbeam.storage import FileSystems

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
        for owner, name in (*((FileSystems, name) for name in ("rename", "put", "delete")), (os, "replace")):
            patch.setattr(owner, name, crashing(getattr(owner, name)))
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
    from dpbeam.storage import FileSystems

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    # Two small files are written, the ledger and the names of what is about to change; then three files are moved.
    writes = [(where, name, n) for where, name in ((FileSystems, "put"), (os, "replace")) for n in (1, 2)]
    for step, (where, name, fails_at) in enumerate(
        [*writes, *((FileSystems, "rename", n) for n in (1, 2, 3))]
    ):
        prefix = f"{tmp_path}/{step}/out"
        os.makedirs(os.path.dirname(prefix))
        if overwrite:
            commit(prefix, "old", 3)
        target = OutputTarget(prefix, overwrite=overwrite)
        stage(target, 2, "new")
        original, calls = getattr(where, name), []

        def nth(*args, original=original, calls=calls, fails_at=fails_at, **kwargs):
            calls.append(args)
            return full() if len(calls) == fails_at else original(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(where, name, nth)
            with pytest.raises(OSError, match="No space left"):
                target.commit(ledger("new", 2))
        target.abort()
        left = finished(prefix)
        assert left == (["old0", "old1", "old2"] if overwrite and step < len(writes) else None)
        if left is None:
            assert os.listdir(os.path.dirname(prefix)) == []


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_another_process_finishes_what_was_cut_short(at, old, tmp_path, monkeypatch):
    """With what was staged, whatever was in place: shards, further files, and older output beside them."""
    prefix = str(tmp_path / "out")

    def staged(text: str) -> OutputTarget:
        target = OutputTarget(prefix, "text", overwrite=True, extras=("more.bin",))
        target.prepare()
        for number in range(2):
            pathlib.Path(target.staging, f"shard-{number:05}-of-00002.txt").write_text(text)
        pathlib.Path(target.staged_extra("more.bin")).write_text(text)
        target.stage(ledger_of(release=None))
        return target

    if old:
        staged("old").finish()
    first = staged("new")
    renamed = []

    def limited(source, final):
        renamed.append(final)
        if len(renamed) == at:
            raise OSError(28, "No space left on device")
        os.rename(source, final)

    with monkeypatch.context() as broken:
        broken.setattr("dpbeam.storage.FileSystems.rename", limited)
        with pytest.raises(OSError):
            first.finish()
    assert first.can_finish and not os.path.exists(first.ledger_path)
    second = OutputTarget(prefix, "text", overwrite=True, extras=("more.bin",))
    second.staging = first.staging
    paths = second.finish()
    assert paths == [f"{prefix}-00000-of-00002.txt", f"{prefix}-00001-of-00002.txt", f"{prefix}.ledger.json"]
    assert {pathlib.Path(path).read_text() for path in [*paths[:-1], f"{prefix}.more.bin"]} == {"new"}
    assert len(os.listdir(tmp_path)) == 4


class TestNames:
    def refused(self, prefix: str) -> str:
        with pytest.raises(InputError) as error:
            OutputTarget(prefix)
        return str(error.value)

    def test_that_are_no_text(self):
        assert self.refused("caf\udce9/x") == "--output: 'caf\udce9/x' is not valid UTF-8; give another name"

    def test_that_are_too_long(self, tmp_path):
        """Those of its files are longer, while they are written too."""
        longest = f"{tmp_path}/{'n' * 205}"
        commit(longest, "a", 2)
        assert finished(longest) == ["a0", "a1"]
        begin = f"--output: '{tmp_path}/"[:71]
        for prefix in (f"{longest}n", f"{tmp_path}/{'d' * 256}/x"):
            message = self.refused(prefix)
            assert message.startswith(begin) and message.endswith("it passes the 255 bytes of a name")
        assert self.refused(f"{tmp_path}/{'é' * 103}").endswith("it passes the 255 bytes of a name")

    @pytest.mark.parametrize("name", ["n", "nn", "n" * 60, "n" * 150])
    def test_whose_paths_are_too_long(self, name, tmp_path):
        limit = os.pathconf("/", "PC_PATH_MAX")
        folder, length = str(tmp_path), limit - 1 - 110 - 2 * len(name)
        while len(folder) < length - 202:
            folder += f"/{'d' * 100}"
        folder += f"/{'d' * (length - len(folder) - 1)}"
        commit(f"{folder}/{name}", "a", 1)
        assert self.refused(f"{folder}d/{name}").endswith(f"it passes the {limit} bytes of a path")

    @pytest.mark.parametrize(
        "command", [["select", "--input=x.csv"], ["series", "open", "--folder=f", "--nights=12"]]
    )
    def test_are_refused_before_anything_else(self, command, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        for name in ("caf\udce9", "x" * (206 if command[0] == "select" else 203)):
            assert (
                main(
                    [
                        *command,
                        *(COLUMNS if command[0] == "select" else []),
                        "--epsilon=1",
                        "--delta=1e-6",
                        f"--output={name}",
                    ]
                )
                == 2
            )
            err = capsys.readouterr().err
            assert f"dpbeam {command[0]}: error: --output: '" in err and err.count("\n") == 1
        assert os.listdir() == []


class TestAnothersRelease:
    """In a folder such as /tmp, where only the owner of a file may replace it."""

    @pytest.fixture
    def sticky(self, tmp_path, monkeypatch):
        commit(f"{tmp_path}/out", "a", 1)
        (tmp_path / "counts.json").write_text("{}")
        monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
        tmp_path.chmod(0o1777)
        return tmp_path

    def test_is_refused_before_the_work(self, sticky):
        with pytest.raises(InputError) as error:
            OutputTarget(f"{sticky}/out", overwrite=True).check()
        assert str(error.value) == f"--output: '{sticky}/out.ledger.json' {ANOTHERS}"
        file = NewFile(f"{sticky}/counts.json", "--not_private_counts")
        with pytest.raises(InputError) as error:
            file.check(overwrite=True)
        assert str(error.value) == f"--not_private_counts: '{sticky}/counts.json' {ANOTHERS}"

    def test_of_ones_own_or_in_ones_own_folder_is_replaced(self, sticky, monkeypatch):
        sticky.chmod(0o777)
        OutputTarget(f"{sticky}/out", overwrite=True).check()
        sticky.chmod(0o1777)
        for user in (0, os.stat(sticky).st_uid):
            monkeypatch.setattr(os, "geteuid", lambda user=user: user)
            OutputTarget(f"{sticky}/out", overwrite=True).check()
