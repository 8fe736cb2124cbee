"""Chen et al. 2025, Figure 4, on reddit-220k, other posts than their Reddit, words of the reviews of their IMDb, and of
package descriptions: released items against D0.
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items against D0",
    datasets={name: folder(name) for name in ("reddit-220k", "imdb-wordtok", "debian-descriptions")},
    budgets=[(1, 1e-5)],
    repetitions=3,
    methods=[
        Run(name="Basic", method="basic"),
        Run(name="DP-SIPS published", method="dp-sips", preset="published"),
        Run(name="MAD", method="mad", max_adaptive_degree=10),
        Run(name="MAD2R published", method="mad2r", preset="published", max_adaptive_degree=10),
        Run(name="gsu8", method="gsu", rounds=8),
        Run("policy-gaussian", name="PolicyGaussian", excess=4),
    ],
    sweep={"max_items_per_user": [10, 25, 50, 100, 200, 300]},
    measures=["released"],
    tables=[
        Table("Released items", rows=["dataset", "max_items_per_user"], value="released", statistic="mean"),
    ],
    plots=[
        Plot("sweep_d0", x="max_items_per_user", y=["released"], lines="method", panels="dataset"),
    ],
)
