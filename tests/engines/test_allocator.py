"""Freed memory is used again without the kernel; in processes of their own, for it concerns a whole process."""

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, threading
from dpbeam.runners.allocator import keep_freed_memory

def work():
    for _ in range(10):
        held = [b"x" * ({megabytes} << 20) for _ in range({arrays})]
        del held

assert not {told} or keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=work)
thread.start() if {apart} else work()
thread.join() if {apart} else None
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**values: object) -> int:
    command = [sys.executable, "-c", _FAULTS.format(**values)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such thresholds")
@pytest.mark.parametrize(("megabytes", "arrays", "apart"), [(40, 1, False), (8, 16, True)])
def test_an_array_of_the_size_of_a_freed_one_costs_no_page_faults(megabytes, arrays, apart):
    one = {"megabytes": megabytes, "arrays": arrays, "apart": apart}
    assert faults(told=True, **one) < faults(told=False, **one) / 4


_KEPT = """
from dpbeam.runners.allocator import give_back, keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) >> 8  # pages of 4 kB -> MiB

assert keep_freed_memory()
held = [b"x" * (4 << 20) for _ in range(100)]
last = b"x" * (1 << 20)  # lies above them
del held
before = resident()
give_back()
print(before, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such thresholds")
def test_what_is_free_goes_back_when_it_is_told():
    """400 MiB below something that stays."""
    command = [sys.executable, "-c", _KEPT]
    before, after = map(
        int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    )
    assert before > 400 > 100 > after
