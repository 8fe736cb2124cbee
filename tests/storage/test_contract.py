"""The promises of files: of this machine, an object store, and the store that docs/how-to/add_a_store.md makes."""

import re

import pytest

from dpbeam import plugins
from dpbeam.cli import main
from dpbeam.storage import FileSystems, lease
from dpbeam.storage.local import LocalFiles
from dpbeam.testing import StoreContract
from tests.support import memory_store
from tests.support.examples import ROOT

PAGE = (ROOT / "docs/how-to/add_a_store.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?class MemoryFiles.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(lease, "BEAT", 0.02)
    monkeypatch.setattr(lease, "_LOOK", 0.01)


def of_the_page() -> dict:
    names: dict = {}
    exec(EXAMPLE, names)
    return names


class TestThisMachine(StoreContract):
    @pytest.fixture(autouse=True)
    def here(self, tmp_path):
        self.place = str(tmp_path)

    def files(self):
        return LocalFiles()


class TestObjects(StoreContract):
    place = "s3://bucket/tests"

    @pytest.fixture(autouse=True)
    def store(self, monkeypatch):
        memory_store.install(monkeypatch)

    def files(self):
        return FileSystems.at(self.place)


class TestOfThePage(of_the_page()["TestMemory"]):
    """As it stands there, and then by a command."""


def test_a_store_of_an_installed_package_serves_a_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(EXAMPLE)
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dpbeam.stores]\nmemory = mine:MemoryFiles\n")
    select = [
        *("select", "--input=memory://b/pairs.csv", "--user_column=u", "--item_column=i", "--epsilon=4"),
        *("--delta=1e-3", "--output=memory://b/out/x", f"--temp_location={tmp_path}", "--output_format=text"),
    ]
    plugins._entries.cache_clear()
    assert main(select) == 2 and "no filesystem is known for memory://" in capsys.readouterr().err
    monkeypatch.syspath_prepend(tmp_path)
    plugins._entries.cache_clear()
    try:
        with FileSystems.put("memory://b/pairs.csv") as file:
            file.write(b"u,i\n" + b"".join(b"%d,often\n" % user for user in range(1000)))
        assert main([*select, "--quiet"]) == 0, capsys.readouterr().err
        assert FileSystems.read("memory://b/out/x-00000-of-00001.txt") == b"often\n"
        assert FileSystems.exists("memory://b/out/x.ledger.json")
    finally:
        plugins._entries.cache_clear()
