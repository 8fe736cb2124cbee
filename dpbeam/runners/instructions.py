"""What numpy reads from the environment when it is imported: the instructions it sorts with, the threads of its BLAS.

Processes that are started from here inherit it.

AMD's fourth generation of Zen has AVX-512, but stores the chosen elements of a vector (`vpcompressq` to memory) a
hundred times more slowly than the others do, and numpy's sorts by AVX-512 consist of such stores: 51 ns a word, and
10 by AVX2. With AVX2 the kernels of `mad2r` took a tenth less CPU time on 7 million pairs in random order.

numpy and scipy bring an OpenBLAS each, which at its import starts a thread for every core but one. These spin for a
tenth of a second, waiting for work that no release gives them: a `dpbeam select` of 900 pairs took 1.15 s of CPU with
them and 0.92 s without, on two cores (medians of eight, in turns).
"""

from __future__ import annotations

import os
import sys

VARIABLE = "NPY_DISABLE_CPU_FEATURES"
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
#: AVX-512 as numpy calls it from 2.4 on, and before; names that a numpy does not know are ignored.
AVX512 = "X86_V4 AVX512_SKX AVX512_ICL"
_CPU_INFO = "/proc/cpuinfo"
_ENOUGH = 8192  # bytes for the first of all processors, which are alike


def prepare_numpy() -> None:
    """Set what is missing; for a process that is a command or a worker and nothing else."""
    if "numpy" not in sys.modules:
        os.environ.update(variables())


def variables() -> dict[str, str]:
    """What the environment of such a process should say here; nothing of what it says already."""
    chosen = {}
    if BLAS_THREADS not in os.environ:
        chosen[BLAS_THREADS] = "1"
    if VARIABLE not in os.environ and _is_zen4():
        chosen[VARIABLE] = AVX512
    return chosen


def _is_zen4() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        with open(_CPU_INFO, encoding="ascii", errors="replace") as file:
            return stores_slowly(file.read(_ENOUGH))
    except OSError:
        return False


def stores_slowly(cpu_info: str) -> bool:
    """Whether the first processor that Linux describes (`/proc/cpuinfo`) is Zen 4: the third, of one family, has no
    AVX-512, and the fifth is of another."""
    facts = {}
    for line in cpu_info.split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        facts[name.strip()] = value.strip()
    family = (facts.get("vendor_id"), facts.get("cpu family"))
    return family == ("AuthenticAMD", "25") and "avx512f" in facts.get("flags", "").split()
