"""`--set NAME=VALUE`, `settings:` in a config file, `dpbeam methods`, and the two helps."""

import json
import re

import pytest

from dpbeam.cli import COMMANDS
from dpbeam.cli.flags import MAX_FLAGS_IN_HELP
from dpbeam.cli.select import COMMAND, make_parser
from dpbeam.selectors.registry import all_settings, selectors
from tests.support.commands import run

BUDGET = ("--epsilon=1", "--delta=1e-5")


def planned(capsys, *arguments):
    code, out, err = run(capsys, "plan", *BUDGET, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)["parameters"]


class TestSet:
    def test_sets_constants_of_every_type(self, capsys):
        gsu = planned(capsys, "--set", "rounds=4", "--set=gsu_cap=0.3", "--set=gsu_score=false")
        assert (gsu["rounds"], gsu["gsu_cap"], gsu["gsu_score"]) == (4, 0.3, False)
        mad2r = planned(capsys, "--method=mad2r", "--set=budget_split=0.5,0.5", "--set=accounting=basic")
        assert (mad2r["budget_split"], mad2r["accounting"]) == ([0.5, 0.5], "basic")

    def test_the_last_value_of_a_name_counts(self, capsys):
        assert planned(capsys, "--set=rounds=4", "--set=rounds=2")["rounds"] == 2

    def test_a_config_file_maps_names_to_values_and_the_command_line_wins_name_by_name(
        self, capsys, tmp_path
    ):
        first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
        first.write_text("settings:\n  rounds: 4\n  gsu_cap: 0.3\n  gsu_growth: 0.1\n  gsu_score: false\n")
        second.write_text("settings: {gsu_growth: 0.2}\n")
        gsu = planned(capsys, f"--config={first}", f"--config={second}", "--set=gsu_cap=0.2")
        assert (gsu["rounds"], gsu["gsu_cap"], gsu["gsu_growth"]) == (4, 0.2, 0.2)
        assert gsu["gsu_score"] is False

    def test_a_config_file_has_lists(self, capsys, tmp_path):
        (tmp_path / "a.yaml").write_text("method: dp-sips\nsettings:\n  budget_split: [0.4, 0.6]\n")
        assert planned(capsys, f"--config={tmp_path / 'a.yaml'}")["budget_split"] == [0.4, 0.6]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--set=rounds"], "argument --set: expected NAME=VALUE, got 'rounds'"),
            (
                ["--set=ruonds=4"],
                "argument --set: ruonds: no method has such a constant; did you mean rounds?",
            ),
            (["--set=x=4"], "argument --set: x: no method has such a constant; see dpbeam methods"),
            (["--set=rounds=4.5"], "argument --set: rounds: expected an integer, got '4.5'"),
            (["--set=gsu_cap=much"], "argument --set: gsu_cap: expected a number, got 'much'"),
            (["--set=gsu_score=yes"], "argument --set: gsu_score: expected true or false, got 'yes'"),
            (
                ["--set=rounds=3"],
                "--set rounds must be one of 2, 4, 8, 16, or give --set gsu_fractions; got 3",
            ),
            (["--method=mad", "--set=rounds=4"], "--set rounds does not apply to --method=mad; it is of gsu"),
            (["--rounds=4"], "--rounds is no flag: give the constant of gsu as --set rounds=VALUE"),
            (
                ["--no_gsu_score"],
                "--no_gsu_score is no flag: give the constant of gsu as --set gsu_score=VALUE",
            ),
        ],
    )
    def test_refuses(self, capsys, arguments, message):
        code, out, err = run(capsys, "plan", *BUDGET, *arguments)
        assert (code, out, err) == (2, "", f"dpbeam plan: error: {message}\n")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("rounds: 4\n", ":1: --rounds is no flag: give the constant of gsu as --set rounds=VALUE"),
            ("set: [rounds=4]\n", ":1: constants of a method stand under 'settings:' in a file"),
            ("settings: 4\n", ":1: settings must map names of constants to values"),
            ("settings: {rounds: }\n", ":1: settings: rounds has no value"),
            ("settings: {rounds: [a, b]}\n", ":1: settings: rounds takes one value, not a list"),
            ("settings: {x: 1}\n", ": argument --set: x: no method has such a constant; see dpbeam methods"),
        ],
    )
    def test_refuses_a_config_file(self, capsys, tmp_path, text, message):
        (tmp_path / "a.yaml").write_text(text)
        code, out, err = run(capsys, "plan", *BUDGET, f"--config={tmp_path / 'a.yaml'}")
        assert (code, out) == (2, "") and err == f"dpbeam plan: error: {tmp_path / 'a.yaml'}{message}\n"

    def test_commands_without_a_selection_have_none(self, capsys):
        code, _, err = run(capsys, "count", *BUDGET, "--set=rounds=4")
        assert code == 2 and "unknown flag --set" in err


class TestMethods:
    def test_lists_every_constant_of_every_method(self, capsys):
        code, out, _ = run(capsys, "methods")
        assert code == 0
        for name in (*selectors(), *all_settings()):
            assert re.search(rf"^ *{name}\b", out, re.MULTILINE)

    def test_of_one_method(self, capsys):
        code, out, _ = run(capsys, "methods", "gsu")
        assert (
            code == 0 and "gsu_cap" in out and "vote_trips" not in out and "--max_items_per_user 300" in out
        )

    def test_a_default_that_is_listed_can_be_set(self, capsys):
        """All listed defaults, given by --set, change nothing."""
        asked = make_parser().parse
        for name, selector in selectors().items():
            _, out, _ = run(capsys, "methods", name)
            listed = []
            for constant, described in selector.settings_type.described().items():
                (shown,) = re.findall(rf"^ +{constant} +(\S+)", out, re.MULTILINE)
                if described.kind in (int, bool, str) and constant != "vote_quota":
                    listed.append(f"--set={constant}={shown}")
            budget = [*BUDGET, f"--method={name}"]
            told, silent = (
                COMMAND.asked(asked(words)[0]).resolve() for words in ([*budget, *listed], budget)
            )
            assert told == silent

    def test_an_unknown_one(self, capsys):
        code, _, err = run(capsys, "methods", "gus")
        assert code == 2 and err.startswith("dpbeam methods: error: NAME must be one of basic, ")


def check_help(command: str, capsys, monkeypatch) -> None:
    """The help of a command is one screen; all flags are listed by --help_all."""
    monkeypatch.setenv("COLUMNS", "80")
    code, some, _ = run(capsys, command, "--help")
    flags = re.findall(r"^  (?:-h, )?(--\w+)", some, re.MULTILINE)
    assert code == 0 and len(flags) <= MAX_FLAGS_IN_HELP and len(some.splitlines()) <= 60
    code, out, _ = run(capsys, command, "--help_all")
    everything = set(re.findall(r"^  (?:-h, )?(--\w+)", out, re.MULTILINE))
    assert code == 0 and {"--help", "--help_all", "--version", "--verbose"} <= everything
    assert set(flags) <= everything
    more = f"--help_all lists all {len(everything)} flags" in " ".join(some.split())
    assert more == (set(flags) != everything)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command, capsys, monkeypatch):
    check_help(command, capsys, monkeypatch)
