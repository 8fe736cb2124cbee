"""One run of another library, in a process of its own: prints items released, or users missed, as JSON.

    python case.py LIBRARY VARIANT FILE D0 EPSILON DELTA

FILE is Parquet with string columns `user` and `item`, no pair twice; a user is the unit of privacy, and D0 bounds the
items of a user, or is the k of a hitting set. Needs the library alone, and nothing of dpbeam.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy


def pipeline_dp(variant: str, path: str, d0: int, epsilon: float, delta: float) -> int:
    """PipelineDP on its local backend, `select_partitions`."""
    import pipeline_dp as pdp
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["user", "item"])
    rows = list(zip(table["user"].to_pylist(), table["item"].to_pylist()))
    accountant = pdp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
    engine = pdp.DPEngine(accountant, pdp.LocalBackend())
    params = pdp.SelectPartitionsParams(
        max_partitions_contributed=d0,
        partition_selection_strategy=pdp.PartitionSelectionStrategy[variant.upper()],
    )
    extractors = pdp.DataExtractors(
        privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1]
    )
    released = engine.select_partitions(rows, params, extractors)
    accountant.compute_budgets()
    return sum(1 for _ in released)


def opendp(variant: str, path: str, d0: int, epsilon: float, delta: float) -> int:
    """OpenDP with Polars: the number of rows of each item, with noise, of items that stability lets show."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    if variant == "laplace":
        loss = dp.loss_of(epsilon=epsilon, delta=delta)
    else:
        loss = dp.loss_of(rho=_rho(epsilon, delta / 2), delta=delta / 2)
    context = dp.Context.compositor(
        data=pl.scan_parquet(path),
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user")),
        privacy_loss=loss,
        split_evenly_over=1,
    )
    query = (
        context.query()
        .truncate_per_group(1, by=["item"])
        .truncate_num_groups(d0, by=["item"], keep="first")  # "sample" fails on one column in 0.16.0
        .group_by("item")
        .agg(dp.len())
    )
    return query.release().collect().height


def _rho(epsilon: float, delta: float) -> float:
    """The largest rho whose zCDP OpenDP converts to (epsilon, delta)."""
    import opendp.prelude as dp

    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    low, high = 0.0, epsilon
    for _ in range(50):
        middle = (low + high) / 2
        scale = math.sqrt(0.5 / middle)
        approx = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale))
        if approx.map(1).epsilon(delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def dp_accounting(variant: str, path: str, d0: int, epsilon: float, delta: float) -> int:
    """Noisy counts above a threshold, the noise calibrated by dp_accounting; numpy does the rest."""
    import numpy as np

    rng = np.random.default_rng()
    counts = bounded_counts(path, d0, rng)
    scale, threshold = calibrated(variant, d0, epsilon, delta)
    draw = rng.laplace if variant == "laplace" else rng.normal
    return int((counts + draw(0.0, scale, len(counts)) >= threshold).sum())


def bounded_counts(path: str, d0: int, rng: numpy.random.Generator) -> numpy.ndarray:
    """Users of each item that any holds, of every user a uniform sample of at most D0 items."""
    import numpy as np
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["user", "item"])
    user, item = (
        table[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in ("user", "item")
    )
    order = np.lexsort((rng.random(len(user)), user))
    user, item = user[order], item[order]
    first = np.flatnonzero(np.r_[True, user[1:] != user[:-1]])
    place = np.arange(len(user)) - np.repeat(first, np.diff(np.r_[first, len(user)]))
    counts = np.bincount(item[place < d0])
    return counts[counts > 0]


def calibrated(variant: str, d0: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Scale of the noise of D0 counts, and the threshold that one of D0 novel items passes with chance delta/2.

    The other half of delta is the noise's: of a Gaussian mechanism of l2-sensitivity sqrt(D0), or of D0 Laplace
    mechanisms, as dp_accounting composes their privacy loss distributions.
    """
    from dp_accounting import gaussian_mechanism
    from scipy import stats

    each = -math.expm1(math.log1p(-delta / 2) / d0)
    if variant == "gaussian":
        scale = gaussian_mechanism.get_sigma_gaussian(epsilon, delta / 2) * math.sqrt(d0)
        return scale, 1.0 + stats.norm.isf(each, scale=scale)
    pure = d0 / epsilon
    if d0 > 1:
        from dp_accounting.pld import privacy_loss_distribution as pld

        low, high = 1.0 / epsilon, pure
        for _ in range(12):
            middle = (low + high) / 2
            loss = pld.from_laplace_mechanism(middle, value_discretization_interval=1e-3).self_compose(d0)
            if loss.get_delta_for_epsilon(epsilon) <= delta / 2:
                high = middle
            else:
                low = middle
        if high < 0.95 * pure:
            return high, 1.0 + stats.laplace.isf(each, scale=high)
    # Of few counts the privacy loss hardly falls below the sum, which needs no delta: all of it is the threshold's.
    return pure, 1.0 + stats.laplace.isf(-math.expm1(math.log1p(-delta) / d0), scale=pure)


def by_formula(variant: str, path: str, d0: int, epsilon: float, delta: float) -> int:
    """What a library that is not installed would select: its noise and its threshold on counts of its sample."""
    import numpy as np

    rng = np.random.default_rng()
    counts = bounded_counts(path, d0, rng)
    if variant == "tumult":
        scale, threshold = tumult_threshold(d0, epsilon, delta)
        success = -math.expm1(-1.0 / scale)
        noise = rng.geometric(success, len(counts)) - rng.geometric(success, len(counts))
    else:
        scale, threshold = duckdb_threshold(d0, epsilon, delta)
        noise = rng.laplace(0.0, scale, len(counts))
    return int((counts + noise >= threshold).sum())


def tumult_threshold(d0: int, epsilon: float, delta: float) -> tuple[float, int]:
    """Scale of the two-sided geometric noise and the least noisy count of tmlt.core's partition selection.

    `create_partition_selection_measurement` of tmlt.core 0.20.0, for users who change D0 rows: it goes to one row by
    epsilon/D0 and, of more rows than one, delta/(D0 e^epsilon).
    """
    scale = d0 / epsilon
    each = delta if d0 == 1 else delta / (d0 * math.exp(epsilon))
    return scale, math.ceil(-scale * math.log((math.exp(1 / scale) + 1) * each)) + 2


def duckdb_threshold(d0: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Scale of the Laplace noise and the threshold of DuckDB's extension `privacy` (cwida/privacy, commit edd1164).

    `FinalizeDPLaplace` in mode dp_standard, of a query with one count, which takes half of epsilon and delta.
    """
    epsilon, delta = epsilon / 2, delta / 2
    passes = -math.expm1(math.log1p(-delta) / d0)
    return d0 / epsilon, 1.0 - d0 * math.log(2.0 * passes) / epsilon


def duckdb(variant: str, path: str, d0: int, epsilon: float, delta: float) -> int:
    """Not private: how many items at least 20 users hold, for the time of a plain group-by."""
    import duckdb as db

    text = "select count(*) from (select item from read_parquet(?) group by item having count(distinct user) >= 20)"
    return db.execute(text, [path]).fetchone()[0]


def dp_mm_domain(variant: str, path: str, k: int, epsilon: float, delta: float) -> int:
    """google-research's hitting sets of k public items, from a checkout on PYTHONPATH: how many users hold none."""
    import pyarrow.parquet as pq
    from dp_mm_domain import hitting_set_mechanisms, peeling_mechanisms

    table = pq.read_table(path, columns=["user", "item"])
    held: dict[str, list[str]] = {}
    for user, item in zip(table["user"].to_pylist(), table["item"].to_pylist()):
        held.setdefault(user, []).append(item)
    users = list(held.values())
    if variant == "greedy":
        chosen = hitting_set_mechanisms.greedy_hitting_set(users, k)
    else:
        domain = set(table["item"].to_pylist())
        chosen = peeling_mechanisms.user_peeling_mechanism(users, domain, k, epsilon, delta)
    return sum(1 for items in users if chosen.isdisjoint(items))


LIBRARIES: dict[str, Callable[[str, str, int, float, float], int]] = {
    "pipeline_dp": pipeline_dp,
    "opendp": opendp,
    "dp_accounting": dp_accounting,
    "by_formula": by_formula,
    "duckdb": duckdb,
    "dp_mm_domain": dp_mm_domain,
}


def main() -> None:
    library, variant, path, d0, epsilon, delta = sys.argv[1:]
    released = LIBRARIES[library](variant, path, int(d0), float(epsilon), float(delta))
    print(json.dumps({"released": released}))


if __name__ == "__main__":
    main()
