"""What a command loads: nothing that it does not use; and a program that calls it keeps all of its own."""

import json
import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.cli.loading import LATE, UNUSED, importing
from dpbeam.signals import interrupting
from tests.support.instances import popular_table

PROGRAM = """
import sys
from dpbeam.cli import main
for _ in range(2):
    assert main() == 0
    sys.argv.pop()
    print(*(name for name, module in sys.modules.items() if type(module).__name__ != "_LazyModule"))
"""


def test_a_command_does_without_what_it_does_not_use(tmp_path):
    pq.write_table(popular_table(300, 0), tmp_path / "pairs.parquet")
    flags = [f"--input={tmp_path / 'pairs.parquet'}", "--user_column=user", "--item_column=item", "--quiet"]
    flags += [
        "--epsilon=2",
        "--delta=1e-3",
        "--users_at_least=100",
        f"--output={tmp_path / 'out' / 'x'}",
        "--output_format=text",
    ]
    argv = [sys.executable, "-c", PROGRAM, "select", *flags, "--dry_run"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0 and done.stderr == ""
    planned, loaded = (set(line.split()) for line in done.stdout.splitlines())
    assert "apache_beam" in planned <= loaded and not loaded & set(UNUSED)
    assert not {name.partition(".")[0] for name in loaded} & {"pandas", "boto3", "azure", "hdfs"}
    assert not planned & {*LATE, "pyparsing"}  # which is of httplib2
    assert (tmp_path / "out" / "x-00000-of-00001.txt").read_text()


LATER = """
import sys
from dpbeam.cli.loading import LATE, be_a_command
be_a_command()
import numpy, scipy.special
from apache_beam.internal import http_client
waiting = [type(sys.modules[name]).__name__ for name in LATE]
print(*waiting, http_client.httplib2.Http.__name__, numpy.f2py.get_include()[-3:])
"""


def test_what_waits_is_there_when_it_is_asked_for():
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["_LazyModule", "_LazyModule", "Http", "src"], done.stderr


def test_a_program_that_calls_a_command_loads_what_it_likes(capsys):
    assert main(["--version"]) == 0
    assert not any(type(finder).__module__ == "dpbeam.cli.loading" for finder in sys.meta_path)
    import pandas

    assert pandas.DataFrame({"a": [1]}).shape == (1, 1)


STOPPED_WHILE_IMPORTING = """
import os, signal, sys
from dpbeam.cli import main

class Stop:
    def find_spec(self, name, *_):
        if name == sys.argv[1] and sys.argv[2]:
            os.kill(os.getpid(), int(sys.argv[2]))
            sys.argv[2] = ""

sys.meta_path.insert(0, Stop())
code = main(sys.argv[3:])
sys.exit(code)
"""


def test_stopped_while_modules_load(tmp_path):
    """Beam takes a second to import; whoever stops the run then still gets its result."""
    (tmp_path / "pairs.csv").write_text("user,item\na,b\n")
    flags = ["--input=pairs.csv", "--user_column=user", "--item_column=item", "--epsilon=1", "--delta=1e-5"]
    argv = [sys.executable, "-c", STOPPED_WHILE_IMPORTING, "apache_beam.transforms", str(int(signal.SIGTERM))]
    argv += ["select", *flags, "--output=out/x", "--result_file=r.json"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (1, "dpbeam select: error: interrupted\n")
    outcome = json.loads((tmp_path / "r.json").read_text())
    assert (outcome["status"], outcome["exit_code"], outcome["error"]) == ("failed", 1, "interrupted")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.csv", "r.json"]


def test_a_signal_waits_for_imports(monkeypatch):
    monkeypatch.delitem(sys.modules, "dpbeam.jobs.job", raising=False)
    seen = []
    with interrupting(), pytest.raises(KeyboardInterrupt), importing():
        os.kill(os.getpid(), signal.SIGTERM)
        seen.append("to the end")
    assert seen
