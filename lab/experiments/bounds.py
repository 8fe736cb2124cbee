"""The explicit bounds of Dick, Joseph and Raman 2026 next to what basic misses, with the fitted law (C, s) of every
dataset.
"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Bounds on missing mass",
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
    methods=[
        Run(name="Basic", method="basic", max_items_per_user=100),
    ],
    measures=[
        "missing_mass_1",
        "missing_mass_inf",
        "missing_mass_floor_1",
        "bound_1",
        "bound_1_zipf",
        "bound_1_printed",
        "bound_inf",
        "zipf_exponent",
        "zipf_factor",
    ],
    tables=[
        Table("Exponent s of the law", value="zipf_exponent", statistic="mean"),
        Table("Factor C of the law", value="zipf_factor", statistic="mean"),
        Table("No algorithm misses less on average", value="missing_mass_floor_1", statistic="mean"),
        Table("Missing mass of basic", value="missing_mass_1", statistic="mean"),
        Table("Its bound from the counts", value="bound_1", statistic="mean"),
        Table("Its bound from the law, Theorem 3.3 corrected", value="bound_1_zipf", statistic="mean"),
        Table("Theorem 3.3 as printed", value="bound_1_printed", statistic="mean"),
        Table("Largest missed share", value="missing_mass_inf", statistic="mean"),
        Table("Its bound, Theorem 3.6", value="bound_inf", statistic="mean"),
    ],
)
