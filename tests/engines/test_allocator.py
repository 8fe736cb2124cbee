"""Freed memory is used again without the kernel; in processes of their own, for it concerns a whole process."""

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, threading
from dpbeam.runners.allocator import keep_freed_memory

def work():
    for _ in range(20):
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
