"""Top-k of an unknown domain.

The published ways, limited domain by how many counts take part, and the command. lab/docs/reference/topk_results.md
"""

from dpbeam_lab.experiments.define import Experiment, Plot, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Top-k of an unknown domain",
    datasets={
        "Steam": folder("steam-200k"),
        "Magazine": folder("amazon-magazine"),
        "Higgs": folder("higgs-mention-reply"),
        "imdb-wordtok": folder("imdb-wordtok"),
        "reddit-220k": folder("reddit-220k"),
    },
    budgets=[(1, 1e-5)],
    repetitions=3,
    methods=[
        Run("top-k-published", name="basic 0.5 + CDP-Peel (published)", max_items_per_user=100),
        Run(
            "top-k",
            name="limited domain, kbar = 200",
            mechanism="limited-domain",
            kbar=200,
            sweep={"k": [100, 200]},
        ),
        Run("top-k", name="limited domain, kbar = 10 k", mechanism="limited-domain"),
        Run(
            "top-k",
            name="limited domain, kbar = all",
            mechanism="limited-domain",
            kbar=0,
            max_items_per_user=100,
        ),
        Run("top-k", name="gsu + cdp-peel", mechanism="cdp-peel"),
        Run("top-k", name="gsu + gauss-rank"),
    ],
    sweep={"k": [10, 100, 200, 1000]},
    measures=["topk_missing_mass", "topk_l1"],
    tables=[
        Table("Missing mass", rows=["dataset", "k"], value="topk_missing_mass", statistic="median (sd)"),
        Table("l1", rows=["dataset", "k"], value="topk_l1", statistic="median"),
    ],
    plots=[
        Plot(
            "missing_mass",
            title="Missing mass of the k most frequent items",
            x="k",
            y=["topk_missing_mass"],
            panels="dataset",
            log=["x"],
            statistic="median",
            where={"dataset": ["Steam", "Magazine"]},
        ),
    ],
)
