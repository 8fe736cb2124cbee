"""Chen et al. 2025, Figure 2, on reddit-220k, other posts than their Reddit, and more texts.

Released items against epsilon.
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Released items against epsilon",
    datasets={name: folder(name) for name in ("reddit-220k", "imdb-wordtok", "debian-descriptions")},
    budgets=[(epsilon, 1e-5) for epsilon in [0.25, 0.5, 1, 2, 4]],
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
        Table("Released items", rows=["dataset", "epsilon"], value="released", statistic="mean"),
    ],
    plots=[
        Plot("sweep_epsilon", x="epsilon", y=["released"], lines="method", panels="dataset", log=["x"]),
    ],
)
