"""Limited domain beside gauss-rank at smaller shares of the selection. lab/docs/reference/topk_results.md"""

from dpbeam_lab.experiments.define import Experiment, Run, Table
from dpbeam_lab.experiments.sources import folder

EXPERIMENT = Experiment(
    title="Limited domain beside the default",
    datasets={
        "Steam": folder("steam-200k"),
        "Magazine": folder("amazon-magazine"),
        "Higgs": folder("higgs-mention-reply"),
        "git-authors-files": folder("git-authors-files"),
        "git-authors": folder("git-authors"),
        "debian-descriptions": folder("debian-descriptions"),
        "imdb-wordtok": folder("imdb-wordtok"),
        "reddit-220k": folder("reddit-220k"),
    },
    budgets=[(1, 1e-5)],
    repetitions=5,
    methods=[
        Run("top-k", name="limited domain", mechanism="limited-domain"),
        Run("top-k", name="gauss-rank"),
        Run("top-k", name="gauss-rank 0.35", selector_share=0.35),
        Run("top-k", name="gauss-rank 0.2", selector_share=0.2),
    ],
    sweep={"k": [50, 100, 200]},
    measures=["topk_missing_mass", "topk_l1"],
    tables=[
        Table("Missing mass", rows=["dataset", "k"], value="topk_missing_mass", statistic="mean ± sd"),
        Table("l1", rows=["dataset", "k"], value="topk_l1", statistic="median"),
    ],
)
