"""Populations: what a model draws, how one is fitted, and how a sample stands for more users."""

import numpy as np
import pytest

from dpbeam.errors import InputError
from dpbeam.kernels.csr import Csr
from dpbeam_lab.evaluation.population import RARE_USERS, Model, Population

LEVELS = [10, 20, 50, 100]
MODEL = Model(users=20_000, mean_items_per_user=8.0, item_exponent=1.1, set_size_spread=1.5)


@pytest.fixture(scope="module")
def drawn() -> Population:
    return MODEL.draw(np.random.default_rng(0))


def held(population: Population) -> np.ndarray:
    return np.array([(population.holders >= level).sum() for level in LEVELS])


def part(population: Population, share: float, seed: int) -> Population:
    rows = np.random.default_rng(seed).random(population.users) < share
    return Population(population.sets.select_rows(rows)[0], population.num_items)


class TestModel:
    def test_a_draw_has_the_users_sizes_and_no_pair_twice(self, drawn):
        assert drawn.users == MODEL.users and drawn.sets.degrees.min() >= 1
        assert drawn.pairs / drawn.users == pytest.approx(8.0, rel=0.05)
        steps = np.diff(drawn.sets.links)
        inside = np.ones(drawn.pairs - 1, bool)
        inside[drawn.sets.offsets[1:-1] - 1] = False
        assert (steps[inside] > 0).all()

    def test_the_expected_numbers_of_items_are_those_of_a_draw(self, drawn):
        assert np.allclose(MODEL.items_held(LEVELS), held(drawn), rtol=0.1)

    def test_the_last_item_has_about_one_user(self, drawn):
        assert 0.5 < drawn.holders[-MODEL.num_items // 10 :].mean() < 1.5
        assert Model(1000, 5, 0.0).num_items == 5000  # uniform: as many items as pairs
        assert Model(1000, 5, 1.0, items=77).num_items == 77

    def test_popular_items_that_everybody_wants_do_not_shrink_the_sets(self):
        population = Model(2000, 50, 1.3, 0.5).draw(np.random.default_rng(1))
        assert population.holders.max() > 1900
        assert population.pairs / population.users == pytest.approx(50, rel=0.05)

    def test_a_fit_finds_the_numbers_again(self, drawn):
        fitted = Model.fit(drawn)
        assert fitted.item_exponent == pytest.approx(MODEL.item_exponent, abs=0.1)
        assert np.allclose(fitted.items_held(LEVELS), MODEL.items_held(LEVELS), rtol=0.1)
        assert fitted.set_size_spread == pytest.approx(MODEL.set_size_spread, abs=0.15)
        assert fitted.users == MODEL.users
        assert Model.fit(drawn, spread=0.7).set_size_spread == 0.7

    def test_rare_items_are_those_of_a_draw_and_give_the_exponent(self, drawn):
        rare = drawn.holders[drawn.holders < RARE_USERS].sum() / drawn.users
        assert MODEL.rare_items_per_user() == pytest.approx(rare, rel=0.05)
        model = Model.of_rare_items(MODEL.users, 8.0, MODEL.rare_items_per_user(), 1.5)
        assert model.item_exponent == pytest.approx(MODEL.item_exponent, abs=0.01)
        assert (model.users, model.mean_items_per_user, model.set_size_spread) == (20_000, 8.0, 1.5)
        assert Model.of_rare_items(20_000, 8.0, 2.0).item_exponent > model.item_exponent

    @pytest.mark.parametrize("users,rare", [(20_000, 8.5), (20_000, 1e-6), (50, 3.0)])
    def test_rare_items_that_no_model_has_are_refused(self, users, rare):
        with pytest.raises(InputError, match=f"--rare_items_per_user: .* got {rare:g}"):
            Model.of_rare_items(users, 8.0, rare)

    def test_equal_sets_have_no_spread(self):
        sets = Csr(np.arange(0, 403, 3), np.tile([0, 1, 2], 134))
        assert Model.fit(Population(sets, 3)).set_size_spread < 0.2

    @pytest.mark.parametrize(
        "field,value",
        [
            ("users", 0),
            ("mean_items_per_user", 0.5),
            ("item_exponent", -1),
            ("set_size_spread", 9),
            ("items", 0),
        ],
    )
    def test_numbers_out_of_range_name_their_flag(self, field, value):
        settings = {"users": 10, "mean_items_per_user": 2.0, "item_exponent": 1.0, field: value}
        with pytest.raises(InputError, match=f"--{field}: must be from .* got {value}"):
            Model(**settings)

    def test_a_population_that_no_memory_holds_is_refused(self):
        with pytest.raises(
            InputError, match="--users times --mean_items_per_user: at most 500,000,000 pairs"
        ):
            Model(10**9, 10.0, 1.0)


class TestScaled:
    def test_a_tenth_of_the_users_says_how_many_items_have_many(self, drawn):
        """Copies alone would have every item ten times: far too many with ten users, hardly any with less."""
        whole = part(drawn, 0.1, 3).scaled(drawn.users, np.random.default_rng(4))
        assert whole.users == drawn.users
        assert whole.pairs == pytest.approx(drawn.pairs, rel=0.1)
        assert np.allclose(held(whole), held(drawn), rtol=0.25)
        assert (whole.holders > 0).sum() == pytest.approx((drawn.holders > 0).sum(), rel=0.25)

    def test_the_users_of_the_sample_come_first_as_they_are(self, drawn):
        sample = part(drawn, 0.05, 5)
        whole = sample.scaled(3 * sample.users + 7, np.random.default_rng(6))
        assert whole.users == 3 * sample.users + 7
        assert (whole.sets.offsets[: sample.users + 1] == sample.sets.offsets).all()
        assert (whole.sets.links[: sample.pairs] == sample.sets.links).all()

    def test_fewer_users_are_some_of_them(self, drawn):
        some = drawn.scaled(500, np.random.default_rng(7))
        assert some.users == 500 and some.sets.degrees.min() >= 1
        assert drawn.scaled(drawn.users, np.random.default_rng(8)).pairs == drawn.pairs
