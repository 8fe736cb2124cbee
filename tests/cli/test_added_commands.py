"""Commands that other distributions add: by an entry point, and what is said where they are not installed."""

import re

import pytest

import dpbeam.cli
from dpbeam.cli import ADDED_BY, COMMANDS, commands, main


class Entry:
    """An entry point of the group."""

    def __init__(self, added: dict[str, tuple[str, str]]):
        self.load = lambda: added


@pytest.fixture
def installed(monkeypatch):
    """The entry points that are installed: none until a test adds one."""
    entries: list[Entry] = []
    monkeypatch.setattr(dpbeam.cli, "entry_points", lambda *, group: entries)
    return entries


@pytest.mark.parametrize("command", ADDED_BY)
def test_what_is_not_installed_says_what_to_install(command, installed, capsys):
    for words in ([command], [command, "--help"], [command, "--epsilon=1"]):
        assert main(words) == 2
        assert capsys.readouterr().err == (
            f"dpbeam {command}: error: this command needs the lab: pip install dpbeam-lab\n"
        )


def test_help_and_completion_list_what_is_installed(installed, capsys):
    assert main(["--help"]) == main(["completion", "bash"]) == 0
    assert not re.search(r"^  tune |_shtab_dpbeam_tune", capsys.readouterr().out, re.M)
    installed.append(Entry({"tune": ("dpbeam.cli.clean", "of somebody")}))
    assert main(["--help"]) == main(["completion", "bash"]) == 0
    assert len(re.findall(r"^  tune  .*of somebody$|_shtab_dpbeam_tune", capsys.readouterr().out, re.M)) >= 2


def test_an_added_command_runs_and_replaces_none(installed, capsys):
    installed.append(Entry({"tune": ("dpbeam.cli.clean", "x"), "plan": ("dpbeam.cli.clean", "y")}))
    assert commands()["plan"] == COMMANDS["plan"] and commands()["tune"][0] == "dpbeam.cli.clean"
    assert main(["tune", "--help"]) == 0
    assert "dpbeam clean" in capsys.readouterr().out
    assert main(["tun"]) == 2
    assert "did you mean tune?" in capsys.readouterr().err


def test_its_own_commands_look_for_no_others(monkeypatch, capsys):
    monkeypatch.setattr(dpbeam.cli, "entry_points", None)
    assert main(["plan", "--epsilon=1", "--delta=1e-5"]) == 0
