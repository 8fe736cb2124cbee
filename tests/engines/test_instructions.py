"""numpy sorts by AVX2 where AVX-512 is slow, and BLAS has one thread: said before numpy is imported, in commands and
workers, unless the environment says otherwise."""

import os
import subprocess
import sys

import pytest

from dpbeam.runners import instructions
from dpbeam.runners.instructions import AVX512, BLAS_THREADS, VARIABLE, stores_slowly, variables


def described(vendor: str, family: int, *flags: str) -> str:
    """As Linux describes two processors of one kind."""
    one = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 17\nflags\t\t: fpu {' '.join(flags)}\nbugs\t\t:\n"
    return f"processor\t: 0\n{one}\nprocessor\t: 1\n{one}\n"


ZEN4 = described("AuthenticAMD", 25, "avx2", "avx512f", "avx512vl")
OTHERS = {
    "zen3": described("AuthenticAMD", 25, "avx2"),
    "zen5": described("AuthenticAMD", 26, "avx2", "avx512f"),
    "intel": described("GenuineIntel", 6, "avx2", "avx512f"),
    "intel of that number": described("GenuineIntel", 25, "avx512f"),
    "arm": "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n",
    "nothing": "",
}


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in (VARIABLE, BLAS_THREADS):
        monkeypatch.delenv(name, raising=False)


def test_one_generation_stores_slowly():
    assert stores_slowly(ZEN4)


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_does(name):
    assert not stores_slowly(OTHERS[name])


def test_what_the_user_says_stays(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(ZEN4)
    monkeypatch.setattr(instructions, "_CPU_INFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(sys, "platform", "linux")
    one = {BLAS_THREADS: "1"}
    assert variables() == {VARIABLE: AVX512, **one}
    monkeypatch.setenv(VARIABLE, "")
    assert variables() == one
    monkeypatch.setenv(BLAS_THREADS, "3")
    assert variables() == {}
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv(BLAS_THREADS)
    monkeypatch.setattr(instructions, "_CPU_INFO", str(tmp_path / "missing"))
    assert variables() == one


# At the first import of numpy, what the environment says, and whether numpy heeds it.
_PROGRAM = """
import importlib.abc, os, runpy, sys

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == "numpy":
            said.append([os.environ.get(name) for name in {variables!r}])

said = []
sys.meta_path.insert(0, Watch())
sys.platform = "linux"
from dpbeam.runners import instructions
instructions._CPU_INFO = {path!r}
sys.argv = {argv!r}
try:
    runpy.run_module({module!r}, run_name="__main__")
except SystemExit:
    pass
import numpy
from numpy._core import _multiarray_umath
print(*said[0], [name for name in {names!r}.split() if _multiarray_umath.__cpu_features__.get(name)])
"""


@pytest.mark.parametrize(
    "module,argv",
    [
        ("dpbeam.cli", ["dpbeam", "plan", "--method=mad", "--epsilon=1", "--delta=1e-5"]),
        ("pipelines.select_items", ["select_items", "--method=mad", "--epsilon=-1"]),
        ("dpbeam.runners", ["dpbeam-worker"]),
    ],
)
def test_commands_and_workers_tell_numpy_before_it_is_imported(module, argv, tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(ZEN4)
    program = _PROGRAM.format(
        variables=(VARIABLE, BLAS_THREADS), path=str(path), argv=argv, module=module, names=AVX512
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ})
    assert done.stdout.splitlines()[-1] == f"{AVX512} 1 []", done.stderr
