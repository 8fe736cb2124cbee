"""Chen et al. 2025, Figure 3, on reddit-220k, other posts than their Reddit, words of the reviews of their IMDb, and of
package descriptions: released items against delta.
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items against delta",
    datasets={name: folder(name) for name in ("reddit-220k", "imdb-wordtok", "debian-descriptions")},
    budgets=[(1, delta) for delta in [0.001, 1e-5, 1e-7, 1e-9, 1e-11]],
    repetitions=3,
    methods=[
        Run(name="Basic", method="basic", max_items_per_user=100),
        Run(name="DP-SIPS published", method="dp-sips", preset="published", max_items_per_user=100),
        Run(name="MAD", method="mad", max_items_per_user=100),
        Run(name="MAD2R published", method="mad2r", preset="published", max_items_per_user=100),
        Run(name="gsu8", method="gsu", rounds=8, max_items_per_user=100),
    ],
    measures=["released", "limit"],
    tables=[
        Table("Released items", rows=["dataset", "delta"], value="released", statistic="mean"),
    ],
    plots=[
        Plot("sweep_delta", x="delta", y=["released"], lines="method", panels="dataset", log=["x"]),
    ],
)
