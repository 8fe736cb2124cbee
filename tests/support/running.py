"""Running a program in process on lists of pairs."""

from __future__ import annotations

from dpbeam.engine.in_process import Released, run_in_process
from dpbeam.engine.program import Keys, Program
from dpbeam.randomness import RunKey
from tests.support import reference
from tests.support.instances import Pair, batches
from tests.support.reference import Data, Trace
from tests.support.watch import Watched


def key(text: str | int = "tests") -> RunKey:
    return RunKey.insecure_fixed(str(text))


def release(program: Program, pairs: list[Pair], run_key: RunKey, **sizes) -> Released:
    return run_in_process(program, batches(pairs), run_key, **sizes)


def names(released: Released) -> set[str]:
    return {item.decode() for item in released.items.to_pylist()}


def watch(program: Program, pairs: list[Pair], run_key: RunKey, *, history=None, **sizes) -> Watched:
    watched = Watched(program, history)
    release(watched, pairs, run_key, **sizes)
    return watched


def reference_trace(method: str, program: Program, pairs: list[Pair], run_key: RunKey) -> Trace:
    """What the slow reference of `method` finds with the public numbers of `program`."""
    data = Data(pairs, Keys(run_key))
    p = program
    if method in ("basic", "dp-sips"):
        return reference.uniform_rounds(
            data,
            sigmas=p.sigmas,
            thresholds=p.thresholds,
            cap=p.cap,
            max_items=p.max_items,
            resample=p.resample,
        )
    if method == "mad":
        return reference.mad(
            data,
            sigma=p.round.sigma,
            rho=p.round.threshold,
            tau=p.round.tables.tau_units / 2**30,
            d_max=p.round.tables.max_degree,
            cap=p.cap,
        )
    if method == "mad2r":
        rounds = (p.first, p.second)
        return reference.mad2r(
            data,
            sigmas=[r.sigma for r in rounds],
            rhos=[r.threshold for r in rounds],
            taus=[r.tables.tau_units / 2**30 for r in rounds],
            d_max=p.first.tables.max_degree,
            cap=p.cap,
            max_items=p.max_items,
            resample=p.resample,
            b_min=p.b_min,
            b_max=p.b_max,
            c_lb=p.lower_confidence,
            c_ub=p.upper_confidence,
        )
    return reference.gsu(
        data,
        sigma=p.sigma,
        f=p.fractions,
        a=p.coefficients,
        G=p.drifts,
        V=p.variances,
        thresholds=p.thresholds,
        caps=p.caps,
        cap=p.cap,
        constants=p.score,
    )
