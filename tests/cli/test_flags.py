"""Nothing that is typed vanishes: flags, their values, config files."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpbeam
from dpbeam.cli import COMMANDS, main
from dpbeam.cli.flags import FlagParser
from dpbeam.errors import InputError
from dpbeam.jobs import beam_flags
from dpbeam.jobs.options import Options, flag, switch

BUDGET = ["--epsilon=1", "--delta=1e-5"]
JOB = ["--input", "x.csv", "--output=y", *BUDGET]


def refused(capsys, *arguments) -> str:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and err.count("\n") == 1, (code, out, err)
    return err.removeprefix(f"dpbeam {arguments[0]}: error: ").rstrip("\n")


class JobOptions(Options):
    """Of a command of this test."""

    input: list[str] | None = flag("PATTERN", "what to read", nargs="+", action="extend")
    epsilon: float = flag("EPS", "the budget", needed=True)
    item_column: list[str] | None = flag("NAME", "columns of items")
    insecure_test_key: str | None = flag("HEX", "a fixed key")
    lowercase: bool = switch("map to lower case")


def parser() -> FlagParser[JobOptions]:
    return FlagParser("job", "A job.", JobOptions)


class TestOptions:
    def test_what_is_not_said_has_its_default(self):
        options = JobOptions({"item_column": ["a"]})
        assert (options.input, options.lowercase, options.item_column) == (None, False, ["a"])
        with pytest.raises(InputError, match=r"^--epsilon is required$"):
            _ = options.epsilon

    @pytest.mark.parametrize("name", ["epsilon", "epsilom"])
    def test_no_field_can_be_set(self, name):
        options = JobOptions({"epsilon": 1.0})
        with pytest.raises(AttributeError, match=f"^{name}: "):
            setattr(options, name, 2.0)
        assert options.epsilon == 1.0 and options.said == {"epsilon": 1.0}

    @pytest.mark.parametrize("name", ["epsilom", "noisy_counts"])
    def test_a_name_of_no_flag_is_an_error(self, name):
        with pytest.raises(AttributeError, match=name):
            getattr(JobOptions({"epsilon": 1.0}), name)

    def test_flags_of_all_parts_are_taken_once(self):
        """A class that says a flag anew replaces that of the class it is made from."""

        class Other(JobOptions):
            epsilon: float = flag("EPS", "of another kind", needed=True)

        (action,) = [a for a in FlagParser("job", "A job.", Other)._actions if a.dest == "epsilon"]
        assert action.help == "of another kind" and action.type is float

    def test_every_flag_that_is_named_in_words_is_one(self):
        """What is looked for by name in what was said, which mypy does not see."""
        parsers = [importlib.import_module(module).make_parser() for module, _ in COMMANDS.values()]
        known = {action.dest for parser in parsers for action in parser._actions}
        named = re.compile(r'\bsaid(?:\.get\(|\[)"(\w+)"|"(\w+)" (?:not )?in (?:\w+\.)*said\b')
        seen = set()
        for folder in ("cli", "jobs"):
            for path in (Path(dpbeam.__file__).parent / folder).glob("*.py"):
                seen |= {first or second for first, second in named.findall(path.read_text())}
        assert "release_id" in seen and seen - {"series"} <= known  # a night's series follows from its folder


class TestBeamsFlags:
    def test_the_table_is_that_of_the_installed_beam(self):
        """To renew it: python -m dpbeam.jobs.beam_flags > dpbeam/data/beam_flags.json"""
        if not beam_flags.is_current():
            pytest.skip("another Beam is installed; unknown flags are looked up in it")
        assert beam_flags.table() == beam_flags.table_of_beam()

    def test_a_newer_beam_is_asked_for_what_the_table_lacks(self, monkeypatch):
        monkeypatch.setattr(beam_flags, "is_current", lambda: False)
        monkeypatch.setattr(beam_flags, "table_of_beam", lambda: {"flags": {"brand_new": "integer"}})
        options, beam = parser().parse(["--brand_new=3"])
        assert (options.said, beam) == ({}, ["--brand_new=3"])
        with pytest.raises(InputError, match="--brand_new must be an integer, got 'x'"):
            parser().parse(["--brand_new=x"])

    @pytest.mark.parametrize(
        "typed,passed",
        [
            (["--runner", "FnApiRunner"], ["--runner=FnApiRunner"]),
            (["--streaming"], ["--streaming"]),
            (["--experiments=a", "--experiments", "b"], ["--experiments=a", "--experiments=b"]),
            (["--parallelism=2", "--parallelism=3"], ["--parallelism=3"]),
            (
                ["--execution_mode_for_batch", "BATCH", "--cache_disabled"],
                ["--execution_mode_for_batch=BATCH", "--cache_disabled"],
            ),
        ],
    )
    def test_go_to_beam(self, typed, passed):
        options, beam = parser().parse(["--epsilon=2", *typed, "--lowercase"])
        assert (options.said, beam) == ({"epsilon": 2.0, "lowercase": True}, passed)

    @pytest.mark.parametrize(
        "flags,message",
        [
            (["--direct_num_workers", "abc"], "--direct_num_workers must be an integer, got 'abc'"),
            (["--profile_sample_rate=nan"], "--profile_sample_rate must be a number, got 'nan'"),
            (
                ["--direct_running_mode=fast"],
                "--direct_running_mode must be one of in_memory, multi_threading, multi_processing, got 'fast'",
            ),
            (["--streaming=true"], "--streaming takes no value, got 'true'"),
            (["--streaming", "true"], "unexpected argument 'true'"),
            (["--runner"], "--runner needs a value"),
            (["--runner", "--streaming"], "--runner needs a value"),
            (["--temp_location="], "--temp_location needs a value"),
            (["--runnner=x"], "unknown flag --runnner; did you mean --runner?"),
            (["--max_bundle_size=many"], "--max_bundle_size must be an integer, got 'many'"),
            (["--cache_disable"], "unknown flag --cache_disable; did you mean --cache_disabled?"),
        ],
    )
    def test_are_checked(self, flags, message, capsys):
        if "running_mode" in flags[0] and not beam_flags.is_current():
            pytest.skip("an older Beam takes any mode")
        assert refused(capsys, "select", *JOB, *flags) == message


class TestUnknown:
    @pytest.mark.parametrize("flag", ["--eps=0.1", "--k=5", "-k", "--", "---epsilon=1", "--no_epsilon"])
    def test_select(self, flag, capsys):
        assert "unknown flag" in refused(capsys, "select", *JOB, flag)

    @pytest.mark.parametrize("flag", ["--replace_one", "--eps=1", "--rank=3", "--seed", "--public_items=x"])
    def test_top_k(self, flag, capsys):
        message = refused(capsys, "top-k", *JOB, "--k=3", flag)
        assert "unknown flag" in message or "does not apply to top-k" in message

    @pytest.mark.parametrize("command", ["plan", "clean", "completion"])
    def test_beams_flags_where_no_job_runs(self, command, capsys):
        assert "unknown flag --runner" in refused(capsys, command, "--runner=FnApiRunner")

    @pytest.mark.parametrize(
        "typed,meant",
        [
            ("--eps", "--epsilon"),
            ("--epsilonn", "--epsilon"),
            ("--max-items-per-usr", "--max_items_per_user"),
            ("--flink_mastr", "--flink_master"),
            ("--overwrit", "--overwrite"),
        ],
    )
    def test_the_likely_flag_is_named(self, typed, meant, capsys):
        assert refused(capsys, "select", *JOB, typed).endswith(f"did you mean {meant}?")

    def test_dashes_are_taken_for_underscores(self):
        """Of our flags, of switches and their opposites, and of Beam's; in no value, and not of what is no flag."""
        typed = ["--max-items-per-user=7", "--dry-run", "--no-lowercase", "--temp-location", "a-b"]
        parser = importlib.import_module("dpbeam.cli.select").make_parser()
        options, beam = parser.parse([*JOB, *typed, "--user-column", "user-id", "--result-file=x-y"])
        said = options.said
        assert (said["max_items_per_user"], said["dry_run"], said["lowercase"]) == (7, True, False)
        assert (
            beam == ["--temp_location=a-b"]
            and said["user_column"] == "user-id"
            and said["result_file"] == "x-y"
        )

    def test_a_result_file_named_with_dashes_tells_of_a_wrong_command_line(self, tmp_path, capsys):
        result = tmp_path / "result.json"
        refused(capsys, "select", *JOB, f"--result-file={result}", "--epsilonn=1")
        assert json.loads(result.read_text())["status"] == "refused"
        result.unlink()
        refused(capsys, "select", *JOB, f"--result-file={result}", "--dry-run", "--epsilonn=1")
        assert not result.exists()


class TestFiles:
    def write(self, tmp_path, name, text):
        path = tmp_path / name
        path.write_text(text)
        return f"--config={path}"

    def test_merge_in_order_and_the_command_line_wins(self, tmp_path):
        first = self.write(
            tmp_path,
            "a.yaml",
            "epsilon: 1\ninput: [a, b]\nlowercase: true\nparallelism: 2\nexperiments: [x, y]\n",
        )
        second = self.write(tmp_path, "b.yaml", "epsilon: 2\ninput: c\nparallelism: 3\nstreaming: true\n")
        options, beam = parser().parse([first, "--parallelism=4", second])
        assert options.said == {"epsilon": 2.0, "input": ["c"], "lowercase": True}
        assert sorted(beam) == ["--experiments=x", "--experiments=y", "--parallelism=4", "--streaming"]
        options, beam = parser().parse([second, first, "--epsilon=3", "--no_lowercase"])
        assert options.said == {"epsilon": 3.0, "input": ["a", "b"], "lowercase": False}
        third = self.write(tmp_path, "c.yaml", "streaming: false\n")
        assert "--streaming" not in parser().parse([second, third])[1]

    @pytest.mark.parametrize(
        "text,message",
        [
            ("epsilon: 1\ndelta: 1\n", "unknown flag --delta"),
            ("epsilonn: 1\n", r"a\.yaml:1: unknown flag --epsilonn; did you mean --epsilon\?"),
            (
                "epsilon: 1\nlowercase: true\nepsilon: 0.5\n",
                r"a\.yaml:3: epsilon is there twice, first on line 1",
            ),
            ("epsilon: 1\n--epsilon: 0.5\n", r"a\.yaml:2: epsilon is there twice"),
            ("insecure_test_key: '00'\n", r"a\.yaml:1: insecure_test_key belongs on the command line"),
            ("lowercase: 1\n", "lowercase must be true or false, got 1"),
            ("epsilon: [1, 2]\n", r"a\.yaml:1: epsilon takes one value, not a list"),
            (
                "item_column: yes\n",
                r"a\.yaml:1: yes is true or false to some readers; write true or false, or quote it",
            ),
            ("runner: [a, b]\n", "runner takes one value, not a list"),
            ("parallelism: many\n", r"a\.yaml:1: --parallelism must be an integer, got 'many'"),
            ("epsilon: {a: 1}\n", r"a\.yaml:1: epsilon must be a value or a list of values"),
            ("epsilon:\n", r"a\.yaml:1: epsilon has no value"),
            ("- a\n", r"--config: .*a\.yaml' must map flag names to values"),
            ("a: [\n", r"--config: .*a\.yaml' is not valid YAML, line 2: "),
            ("config: b.yaml\n", r"a\.yaml: a config file cannot name another one \(config\)"),
            ("epsilon: 1\n---\nepsilon: 2\n", r"a\.yaml:2: a second document"),
            ("lowercase: false\nepsilon: [1]\n", r"a\.yaml:2: epsilon takes one value, not a list"),
            ("input: []\n", r"a\.yaml:1: input is an empty list"),
            ("item_column: true\n", r"a\.yaml:1: item_column needs a value, not true"),
            ("help: true\n", r"a\.yaml:1: help belongs on the command line"),
            ("epsilon: 1\nversion: true\n", r"a\.yaml:2: version belongs on the command line"),
        ],
    )
    def test_are_refused(self, text, message, tmp_path):
        with pytest.raises(InputError, match=message):
            parser().parse([self.write(tmp_path, "a.yaml", text)])


#: Command lines that are refused, and what is said of them.
REFUSALS = [
    (["select", *JOB, "--frobnicate"], "unknown flag"),
    (["select", "--input=x", "--output=y", "--epsilon=0", "--delta=1e-5"], "--epsilon must be"),
    (["select", *JOB, "--users_at_least=0"], "--users_at_least must be at least 1"),
    (["select", *JOB, "--insecure_test_key="], "--insecure_test_key must be hexadecimal"),
    (["top-k", *JOB, "--k=3", "--frobnicate"], "unknown flag"),
    (["select", *JOB, "--histogram=x"], "unknown flag --histogram"),
    (["select", *JOB, "--lineage_file=x"], "unknown flag --lineage_file"),
    (["select", *JOB, "--input_names=full"], "unknown flag --input_names"),
    (["select", *JOB, "--input_digests=x"], "unknown flag --input_digests"),
    (["select", *JOB, "--budget_cohort=x"], "unknown flag --budget_cohort"),
    (["top-k", *JOB, "--k=3", "--histogram=x"], "unknown flag --histogram"),
    (["top-k", *JOB, "--k=3", "--public_domain"], "unknown flag --public_domain"),
    (
        ["top-k", "--input=x", "--output=y", "--k=1", "--epsilon=1", "--delta=2"],
        "--delta must lie",
    ),
    (["plan", "--epsilon=nan", "--delta=1e-5"], "--epsilon must be"),
    (["select", *JOB, "--method=foo"], "--method must be one of"),
    (["select", *JOB, "--method=mad2r", "--preset=best"], "--preset must be one of published"),
    (["select", *JOB, "--method=basic", "--set=rounds=3"], "--set rounds does not apply to --method=basic"),
    (["top-k", *JOB, "--k=3", "--selector=foo"], "--selector must be one of"),
    (
        ["hitting-set", *JOB, "--k=3", "--selector=basic", "--set=rounds=3"],
        "does not apply to --selector=basic",
    ),
    (["check", "--frobnicate"], "unknown flag"),
]


class TestAtOnce:
    """No time is asserted: what takes it is not imported."""

    def test_a_refusal_imports_neither_beam_nor_numpy(self):
        """One process for all: what one of them imports, those behind it would show too."""
        code = (
            "import json, sys; from dpbeam.cli import main; "
            "codes = [int(main(argv)) for argv in json.loads(sys.argv[1])]; "
            "print(codes, [m for m in ('apache_beam', 'numpy', 'scipy', 'pyarrow') if m in sys.modules])"
        )
        known = beam_flags.is_current()  # otherwise Beam is asked
        refused = [row for row in REFUSALS if known or not row[1].startswith("unknown flag")]
        argv = [sys.executable, "-c", code, json.dumps([arguments for arguments, _ in refused])]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == f"{[2] * len(refused)} []", done.stdout + done.stderr
        for line, (_, message) in zip(done.stderr.splitlines(), refused, strict=True):
            assert message in line


@pytest.mark.parametrize("name", sorted(beam_flags.SECRETS))
def test_credentials_are_no_flags(name, capsys, tmp_path):
    """Engines store and show the flags of a job; in a config file they would be one."""
    (tmp_path / "c.yaml").write_text(f"{name}: hush\n")
    for typed in (f"--{name}=hush", f"--config={tmp_path}/c.yaml"):
        assert main(["select", "--input=x.csv", "--output=y", typed]) == 2
        told = capsys.readouterr().err
        assert f"--{name}: credentials are not taken as flags" in told and "hush" not in told


@pytest.mark.parametrize("variable", beam_flags.SECRET_VARIABLES)
def test_no_flag_hands_credentials_to_workers(variable, capsys):
    for value in (
        f'{{"command": "w", "env": {{"{variable}": "hush"}}}}',
        f"process_variables={variable}=hush",
    ):
        name = "environment_config" if value.startswith("{") else "environment_option"
        for typed in ([f"--{name}={value}"], [f"--{name}", value]):
            assert main(["select", "--input=x.csv", "--output=y", *typed]) == 2
            told = capsys.readouterr().err
            assert (
                f"--{name} names {variable}: credentials do not go with a job" in told and "hush" not in told
            )
