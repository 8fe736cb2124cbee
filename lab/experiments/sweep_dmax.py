"""Chen et al. 2025, Figure 5, on reddit-220k, other posts than their Reddit, words of the reviews of their IMDb, and of
package descriptions: released items against d_max, the largest degree that adapts.
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items against d_max",
    datasets={name: folder(name) for name in ("reddit-220k", "imdb-wordtok", "debian-descriptions")},
    budgets=[(1, 1e-5)],
    repetitions=3,
    methods=[
        Run(name="Basic", method="basic", max_items_per_user=100),
        Run(
            name="MAD",
            method="mad",
            max_items_per_user=100,
            sweep={"max_adaptive_degree": [5, 10, 25, 50, 75, 100]},
        ),
        Run(
            name="MAD2R published",
            method="mad2r",
            preset="published",
            max_items_per_user=100,
            sweep={"max_adaptive_degree": [5, 10, 25, 50, 75, 100]},
        ),
    ],
    measures=["released"],
    tables=[
        Table(
            "Released items",
            rows=["dataset", "method"],
            columns="max_adaptive_degree",
            value="released",
            statistic="mean",
        ),
    ],
    plots=[
        Plot(
            "sweep_dmax",
            x="max_adaptive_degree",
            y=["released"],
            lines="method",
            panels="dataset",
            where={"method": ["MAD", "MAD2R published"]},
        ),
    ],
)
