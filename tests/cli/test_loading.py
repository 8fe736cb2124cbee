"""What a command loads: nothing that it does not use; and a program that calls it keeps all of its own."""

import subprocess
import sys

import pyarrow.parquet as pq

from dpbeam.cli import main
from dpbeam.cli.loading import UNUSED
from tests.support.instances import popular_table

PROGRAM = """
import sys
from dpbeam.cli import main
code = main()
print(*sys.modules)
sys.exit(code)
"""


def test_a_command_does_without_what_it_does_not_use(tmp_path):
    pq.write_table(popular_table(300, 0), tmp_path / "pairs.parquet")
    flags = [f"--input={tmp_path / 'pairs.parquet'}", "--user_column=user", "--item_column=item", "--quiet"]
    flags += ["--epsilon=2", "--delta=1e-3", f"--output={tmp_path / 'out' / 'x'}", "--output_format=text"]
    argv = [sys.executable, "-c", PROGRAM, "select", *flags]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0 and done.stderr == ""
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "apache_beam" in loaded and not loaded & set(UNUSED)
    assert (tmp_path / "out" / "x-00000-of-00001.txt").read_text()


def test_a_program_that_calls_a_command_loads_what_it_likes(capsys):
    assert main(["--version"]) == 0
    assert not any(type(finder).__module__ == "dpbeam.cli.loading" for finder in sys.meta_path)
    import pandas

    assert pandas.DataFrame({"a": [1]}).shape == (1, 1)
