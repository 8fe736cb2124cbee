"""Data that experiments make."""

import itertools

from scipy import stats

from dpbeam_lab.experiments.sources import uniform

FALSE_ALARM = 1e-6


def sets_of(source) -> list[tuple[str, ...]]:
    indexed = source.load().indexed
    names = [name.decode() for name in indexed.items.to_pylist()]
    csr = indexed.sets
    return [
        tuple(sorted(names[item] for item in csr.links[start:end]))
        for start, end in itertools.pairwise(csr.offsets)
    ]


def test_every_user_holds_a_set_of_equal_size_of_which_all_are_equally_likely():
    sets = sets_of(uniform(users=20_000, items=5, items_per_user=3, common_items=2, seed=3))
    assert len(sets) == 20_000 and all({"5", "6"} <= set(held) and len(held) == 5 for held in sets)
    kinds = [(*map(str, chosen), "5", "6") for chosen in itertools.combinations(range(5), 3)]
    counts = [sets.count(kind) for kind in kinds]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_a_seed_gives_its_data_and_no_other_does():
    few = {"users": 50, "items": 9, "items_per_user": 2}
    assert sets_of(uniform(**few, seed=1)) == sets_of(uniform(**few, seed=1)) != sets_of(uniform(**few))
    assert uniform(**few, seed=1).digest() != uniform(**few).digest() == uniform(**few, seed=0).digest()


def test_all_items_of_few():
    assert sets_of(uniform(users=2, items=3, items_per_user=3)) == [("0", "1", "2")] * 2
