"""Settings of partition selection: defaults, presets, and every refusal word for word."""

import json
import math
import re
from itertools import pairwise

import pytest

from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import selectors


def resolve(**options) -> SelectionConfig:
    return SelectionConfig(**{"epsilon": 1.0, "delta": 1e-5, **options}).resolve()


def settings_of(config: SelectionConfig) -> dict:
    """The settings that are not None, without budget and method."""
    common = {"max_items_per_user": config.max_items_per_user, "preset": config.preset}
    return {**common, **config.settings.set_values()}


MAD = {"max_adaptive_degree": 50, "adaptive_excess": 2.0}
BIAS = {"min_bias": 0.5, "max_bias": 2.0, "lower_confidence": 1.0, "upper_confidence": 3.0}
GSU8 = {
    "rounds": 8,
    "max_items_per_user": 300,
    "gsu_score": True,
    "gsu_final_spending": 0.71,
    "gsu_delta_share": 0.7,
    "gsu_cap": 0.26,
    "gsu_growth": 0.23,
    "gsu_score_constants": (1.0, 0.0, 0.78, 0.0, -0.57, 2.45, 1.1),
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"method": "basic"}, {"max_items_per_user": 100}),
        ({"method": "mad"}, {"max_items_per_user": 100, **MAD}),
        (
            {"method": "dp-sips"},
            {
                "max_items_per_user": 100,
                "accounting": "gaussian",
                "resample": True,
                "budget_split": (0.1, 0.2, 0.7),
            },
        ),
        (
            {"method": "mad2r"},
            {
                "max_items_per_user": 100,
                "accounting": "gaussian",
                "resample": True,
                "budget_split": (0.3, 0.7),
                **MAD,
                **BIAS,
            },
        ),
        (
            {"method": "mad2r", "preset": "published"},
            {
                "max_items_per_user": 100,
                "accounting": "basic",
                "resample": False,
                "budget_split": (0.1, 0.9),
                "preset": "published",
                **MAD,
                **BIAS,
            },
        ),
        (
            {"method": "dp-sips", "preset": "published"},
            {
                "max_items_per_user": 100,
                "accounting": "basic",
                "resample": False,
                "budget_split": (0.1, 0.9),
                "preset": "published",
            },
        ),
        (
            {"method": "dp-sips", "accounting": "basic"},
            {
                "max_items_per_user": 100,
                "accounting": "basic",
                "resample": True,
                "budget_split": (0.1, 0.9),
            },
        ),
        ({}, GSU8),
    ],
)
def test_defaults(options, expected):
    resolved = {n: v for n, v in settings_of(resolve(**options)).items() if v is not None}
    fractions = resolved.pop("gsu_fractions", None)
    assert resolved == expected
    if fractions is not None:
        assert len(fractions) == 8
        assert fractions[0] == pytest.approx(0.04, rel=1e-12)
        assert math.fsum(fractions) == pytest.approx(1, abs=1e-12)
        assert all(b / a == pytest.approx(fractions[1] / fractions[0]) for a, b in pairwise(fractions))


def test_wgm_is_basic():
    assert resolve(method="wgm") == resolve(method="basic")


@pytest.mark.parametrize("method", selectors())
def test_resolving_twice_changes_nothing(method):
    once = resolve(method=method)
    assert once.resolve() == once


def test_what_is_given_wins_over_presets():
    config = resolve(method="mad2r", preset="published", budget_split=(0.5, 0.5), resample=True).settings
    assert (config.budget_split, config.resample, config.accounting) == ((0.5, 0.5), True, "basic")
    config = resolve(
        method="gsu", rounds=2, gsu_cap=0.4, gsu_score=False, gsu_growth=0.0, gsu_final_spending=1.0
    ).settings
    assert (config.gsu_cap, config.gsu_score, config.gsu_growth) == (0.4, False, 0.0)
    assert config.gsu_final_spending == 1.0
    assert config.gsu_fractions == (0.25, 0.75)


def test_cap_of_gsu_follows_the_degree_cap():
    assert resolve(method="gsu", max_items_per_user=100).settings.gsu_cap == 0.5
    assert resolve(method="gsu", max_items_per_user=101).settings.gsu_cap == 0.26
    assert resolve(method="gsu", rounds=16).max_items_per_user == 400


def test_own_fractions_take_the_constants_of_the_nearest_preset():
    config = resolve(method="gsu", gsu_fractions=(0.2, 0.3, 0.5)).settings
    assert config.rounds == 3
    assert config.gsu_growth == resolve(method="gsu", rounds=4).settings.gsu_growth
    assert resolve(method="gsu", gsu_fractions=(1.0,)).settings.rounds == 1
    assert resolve(method="gsu", gsu_fractions=(1 / 40,) * 40).settings.gsu_growth == 0.25


REFUSALS = [
    ({"epsilon": 0.0}, "--epsilon must be a finite number above 0, got 0.0"),
    ({"delta": 0.0}, "--delta must lie strictly between 0 and 1, got 0.0"),
    (
        {"method": "magic"},
        f"--method must be one of {', '.join((*selectors(), 'wgm'))}, got 'magic'",
    ),
    (
        {"method": "basic", "resample": False},
        "--set resample does not apply to --method=basic; it is of dp-sips, mad2r",
    ),
    ({"method": "wgm", "rounds": 2}, "--set rounds does not apply to --method=basic; it is of gsu"),
    (
        {"method": "mad", "accounting": "basic"},
        "--set accounting does not apply to --method=mad; it is of dp-sips, mad2r",
    ),
    ({"method": "mad", "min_bias": 0.5}, "--set min_bias does not apply to --method=mad; it is of mad2r"),
    ({"method": "dp-sips", "gsu_cap": 0.5}, "--set gsu_cap does not apply to --method=dp-sips; it is of gsu"),
    (
        {"method": "gsu", "budget_split": (0.5, 0.5)},
        "--set budget_split does not apply to --method=gsu; it is of dp-sips, mad2r, bits",
    ),
    ({"preset": "best"}, "--preset must be one of published, got 'best'"),
    ({"method": "gsu", "preset": "published"}, "--preset=published does not exist for --method=gsu"),
    ({"method": "mad2r", "accounting": "zcdp"}, "--set accounting must be gaussian or basic, got 'zcdp'"),
    ({"max_items_per_user": 0}, "--max_items_per_user must be an integer from 1 to 1e+06, got 0"),
    ({"max_items_per_user": 2.5}, "--max_items_per_user must be an integer, got 2.5"),
    ({"max_items_per_user": True}, "--max_items_per_user must be an integer, got bool"),
    ({"max_items_per_user": 10**7}, "--max_items_per_user must be an integer from 1 to 1e+06, got 10000000"),
    ({"method": "mad2r", "budget_split": (1.0,)}, "--set budget_split of mad2r needs two shares, got 1"),
    ({"method": "dp-sips", "budget_split": ()}, "--set budget_split needs 1 to 64 shares, got 0"),
    (
        {"method": "dp-sips", "budget_split": (1 / 65,) * 65},
        "--set budget_split needs 1 to 64 shares, got 65",
    ),
    (
        {"method": "mad2r", "budget_split": (1.5, -0.5)},
        "--set budget_split needs positive shares such as 0.1,0.9, got [1.5, -0.5]",
    ),
    (
        {"method": "mad2r", "max_adaptive_degree": 3},
        "--set max_adaptive_degree must be an integer from 4 to 1024, got 3",
    ),
    (
        {"method": "mad", "max_items_per_user": 3},
        "--max_items_per_user must be at least 4 for --method=mad, got 3",
    ),
    (
        {"method": "mad", "max_items_per_user": 20, "max_adaptive_degree": 50},
        "--set max_adaptive_degree (50) must not exceed --max_items_per_user (20): no user would hold so many items",
    ),
    (
        {"method": "mad2r", "adaptive_excess": math.nan},
        "--set adaptive_excess must be a number from 0 to 1e+06, got nan",
    ),
    ({"method": "mad2r", "min_bias": 0.4}, "--set min_bias must be a number from 0.5 to 1, got 0.4"),
    ({"method": "mad2r", "max_bias": 0.9}, "--set max_bias must be a number from 1 to 1e+06, got 0.9"),
    (
        {"method": "mad2r", "lower_confidence": -1.0},
        "--set lower_confidence must be a number from 0 to 1e+06, got -1.0",
    ),
    (
        {"method": "mad2r", "upper_confidence": math.inf},
        "--set upper_confidence must be a number from 0 to 1e+06, got inf",
    ),
    (
        {"method": "gsu", "rounds": 3},
        "--set rounds must be one of 2, 4, 8, 16, or give --set gsu_fractions; got 3",
    ),
    (
        {"method": "gsu", "rounds": 4, "gsu_fractions": (0.5, 0.5)},
        "--set rounds (4) and the number of --set gsu_fractions (2) differ",
    ),
    ({"method": "gsu", "gsu_fractions": ()}, "--set gsu_fractions needs 1 to 64 values, got 0"),
    ({"method": "gsu", "gsu_fractions": (1 / 65,) * 65}, "--set gsu_fractions needs 1 to 64 values, got 65"),
    ({"method": "gsu", "gsu_fractions": (0.5, 0.6)}, "--set gsu_fractions must be positive and sum to 1"),
    ({"method": "gsu", "gsu_fractions": (1.5, -0.5)}, "--set gsu_fractions must be positive and sum to 1"),
    (
        {"method": "gsu", "gsu_fractions": (math.nan, 0.5)},
        "--set gsu_fractions must be positive and sum to 1",
    ),
    (
        {"method": "gsu", "gsu_final_spending": 0.0},
        "--set gsu_final_spending must be a number above 0 and at most 1, got 0.0",
    ),
    ({"method": "gsu", "gsu_cap": 1.5}, "--set gsu_cap must be a number above 0 and at most 1, got 1.5"),
    (
        {"method": "gsu", "gsu_delta_share": 1.0},
        "--set gsu_delta_share must lie strictly between 0 and 1, got 1.0",
    ),
    (
        {"method": "gsu", "delta": 0.11},
        "--delta must lie between 1e-30 and 0.1, got 0.11: a run may fail to protect with this probability",
    ),
    ({"method": "gsu", "gsu_growth": 101.0}, "--set gsu_growth must be a number from -100 to 100, got 101.0"),
    (
        {"method": "gsu", "gsu_score_constants": (1.0, 2.0)},
        "--set gsu_score_constants needs the 7 numbers a,a1,k1,kk,b,k2,g",
    ),
    (
        {"method": "gsu", "gsu_score_constants": (1.0, 0.0, math.nan, 0.0, -0.5, 2.4, 1.1)},
        "--set gsu_score_constants needs the 7 numbers a,a1,k1,kk,b,k2,g",
    ),
    (
        {"method": "gsu", "gsu_score_constants": (1.0, 0.0, 0.0, 0.0, -0.5, 2.4, 1.1)},
        "--set gsu_score_constants: k1 and k2 must be above 0",
    ),
    *(
        (
            {"method": "gsu", "gsu_score_constants": constants},
            "--set gsu_score_constants: a + a1 (V - 1/2) must be finite for V from 0 to 1, and k1 exp(kk (V - 1/2)) "
            "between 1e-130 and 1e+130",
        )
        for constants in (
            (1.0, 0.0, 0.8, 2000.0, -0.5, 2.4, 1.1),
            (1.0, 0.0, 0.8, -2000.0, -0.5, 2.4, 1.1),
            (1.0, 0.0, 1e-320, 0.0, -0.5, 2.4, 1.1),
            (1.0, 0.0, 1e308, -50.0, -0.5, 2.4, 1.1),
            (-1.5e308, 1.5e308, 0.8, 0.0, -0.5, 2.4, 1.1),
        )
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSALS)
def test_refusals(options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        resolve(**options)


@pytest.mark.parametrize("method", selectors())
def test_what_is_stated_is_plain_json_without_the_budget(method):
    parameters = resolve(method=method).stated()
    assert json.loads(json.dumps(parameters, allow_nan=False)) == parameters
    assert not {"epsilon", "delta", "method"} & set(parameters)
    assert parameters["max_items_per_user"] > 0
    own = selectors()[method].settings_type.described()
    assert set(parameters) <= {"max_items_per_user", "noisy_weights", *own}


def test_another_budget_keeps_the_settings():
    config = resolve(method="mad").with_budget(2.0, 1e-7)
    assert (config.epsilon, config.delta, config.settings.max_adaptive_degree) == (2.0, 1e-7, 50)


def test_settings_of_no_method_are_refused_at_once():
    with pytest.raises(TypeError, match=r"^no method has a setting 'roundz'; did you mean 'rounds'\?$"):
        SelectionConfig(1.0, 1e-5, roundz=3)
    with pytest.raises(TypeError, match=r"^no method has a setting 'q'$"):
        SelectionConfig(1.0, 1e-5, q=3)


def test_settings_objects_are_taken_and_must_fit():
    from dpbeam.selectors.mad import MadSettings

    config = SelectionConfig(1.0, 1e-5, "mad", settings=MadSettings(max_adaptive_degree=7)).resolve()
    assert config.settings.max_adaptive_degree == 7
    with pytest.raises(InputError, match=r"^settings of type MadSettings do not apply to --method=gsu$"):
        SelectionConfig(1.0, 1e-5, "gsu", settings=MadSettings()).resolve()


def test_the_adaptive_degree_follows_a_small_degree_cap():
    assert resolve(method="mad", max_items_per_user=20).settings.max_adaptive_degree == 20
    assert resolve(method="mad2r").settings.max_adaptive_degree == 50
