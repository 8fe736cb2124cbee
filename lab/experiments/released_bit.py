"""Harrison and Manurangsi 2026 (arXiv 2603.09167).

The released bit in place of Gaussian noise, in Basic, DP-SIPS, MAD2R and PolicyGaussian, next to the same with noise.
lab/docs/reference/results.md
"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Baselines that show the bit alone",
    datasets={
        name: folder(name)
        for name in (
            "steam-200k",
            "amazon-magazine",
            "higgs-mention-reply",
            "git-authors-files",
            "git-authors",
            "debian-descriptions",
            "imdb-wordtok",
            "reddit-220k",
        )
    },
    budgets=[(1, 1e-5)],
    repetitions=5,
    methods=[
        Run("uniform-released-bit", name="Basic, bit"),
        Run("uniform-released-bit", name="Basic, bit, cap 1/4", cap=0.25),
        Run("uniform-released-bit", name="DP-SIPS, bit", budget_split=[0.05, 0.15, 0.8]),
        Run(
            "uniform-released-bit",
            name="DP-SIPS, bit, cap 1/4",
            budget_split=[0.05, 0.15, 0.8],
            cap=0.25,
            max_items_per_user=200,
        ),
        Run("mad2r-released-bit", name="MAD2R, bit"),
        Run("mad2r-released-bit", name="MAD2R, bit, split .1, .9", budget_split=[0.1, 0.9]),
        Run("policy-released-bit", name="PolicyGaussian, bit", excess=4),
    ],
    measures=["released"],
    tables=[
        Table("Released items", rows=["method"], columns="dataset", value="released"),
    ],
)
