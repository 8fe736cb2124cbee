"""All that a run writes into its private folder is for its owner alone, whatever the umask."""

import os
import pathlib
import stat

import pytest

from dpbeam.cli import main
from dpbeam.engine.beam.store import RunFolder
from tests.support.commands import select_flags, small_pairs

pytestmark = pytest.mark.usefixtures("quick_pipelines")
PRIVATE = {"folder": 0o700, "file": 0o600}


def modes(folder: str) -> dict[str, set[int]]:
    """Of a folder and all in it, by kind."""
    seen: dict[str, set[int]] = {"folder": set(), "file": set()}
    for path in [pathlib.Path(folder), *pathlib.Path(folder).rglob("*")]:
        state = path.lstat().st_mode
        seen["folder" if stat.S_ISDIR(state) else "file"].add(stat.S_IMODE(state))
    return seen


@pytest.fixture(params=[0, 0o777], ids=["umask 0", "umask 777"])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("more", [["--num_shards=2"], ["--checkpoint=kept", "--passes_per_job=1"]])
def test_of_a_run(more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs, removed, seen = small_pairs(tmp_path), RunFolder.remove, []

    def remove(folder) -> None:
        seen.append((len(os.listdir(folder.path)), modes(folder.path)))
        removed(folder)

    monkeypatch.setattr(RunFolder, "remove", remove)
    argv = ["select", *select_flags(pairs, "out", "temp"), "--method=dp-sips", "--quiet", *more]
    before = os.umask(0)
    try:
        assert main(argv) == 0
    finally:
        os.umask(before)
    [(number, found)] = seen
    assert number > 10 and found == {kind: {mode} for kind, mode in PRIVATE.items()}


def test_of_every_kind_of_file(umask, tmp_path):
    with RunFolder(str(tmp_path)) as run:
        run.store.write_bytes("block", b"1")
        assert run.store.bind("place", b"1")
        run.leave()
        assert modes(run.path) == {kind: {mode} for kind, mode in PRIVATE.items()}
        assert len(os.listdir(run.path)) == 4
