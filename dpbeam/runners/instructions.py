"""Which vector instructions numpy sorts with, where those that it would take are slow.

AMD's fourth generation of Zen has AVX-512, but stores the chosen elements of a vector (`vpcompressq` to memory) a
hundred times more slowly than the others do, and numpy's sorts by AVX-512 consist of such stores: 51 ns a word, and
10 by AVX2. With AVX2 the kernels of `mad2r` took a tenth less CPU time on 7 million pairs in random order.

numpy reads the variable when it is imported, and processes that are started from here inherit it.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "NPY_DISABLE_CPU_FEATURES"
#: AVX-512 as numpy calls it from 2.4 on, and before; names that a numpy does not know are ignored.
AVX512 = "X86_V4 AVX512_SKX AVX512_ICL"
_CPU_INFO = "/proc/cpuinfo"
_ENOUGH = 8192  # bytes for the first of all processors, which are alike


def sort_without_slow_stores() -> None:
    """Have numpy sort by AVX2 on such a processor; for a process that is a command or a worker and nothing else."""
    if "numpy" not in sys.modules:
        os.environ.update(variables())


def variables() -> dict[str, str]:
    """What the environment of a process that sorts should say here; nothing where it says something already."""
    if VARIABLE in os.environ or not sys.platform.startswith("linux"):
        return {}
    try:
        with open(_CPU_INFO, encoding="ascii", errors="replace") as file:
            return {VARIABLE: AVX512} if stores_slowly(file.read(_ENOUGH)) else {}
    except OSError:
        return {}


def stores_slowly(cpu_info: str) -> bool:
    """Whether the first processor that Linux describes (`/proc/cpuinfo`) is Zen 4: the third, of one family, has no
    AVX-512, and the fifth is of another."""
    facts = {}
    for line in cpu_info.split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        facts[name.strip()] = value.strip()
    family = (facts.get("vendor_id"), facts.get("cpu family"))
    return family == ("AuthenticAMD", "25") and "avx512f" in facts.get("flags", "").split()
