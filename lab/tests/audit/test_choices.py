"""Rankings of real runs follow the range and the noise that their ledgers state, for every mechanism and way."""

import itertools
import math

import numpy as np
import pytest

from dpbeam.engine.program import Draw
from dpbeam.hitting import program as hitting_program
from dpbeam.topk.mechanisms import MECHANISMS
from dpbeam_lab.audit.choices import _loss_law, choices, inverted, scaled

ALPHA = 1e-6  # a sound mechanism fails one test with this probability
CHOICES = choices()


def test_every_mechanism_and_every_way_is_there():
    assert {name.split(",")[0] for name in CHOICES} == {*MECHANISMS, "hitting-set"}
    assert {name.split(", ")[1] for name in CHOICES if name.startswith("gauss-rank")} == {
        "clip",
        "centred",
        "Gumbel",
        "histogram",
    }


@pytest.mark.parametrize("name", CHOICES)
def test_a_mechanism_chooses_as_stated_and_half_more_epsilon_shows(name):
    """What the mechanism draws by, not what it states; of pairs and of sequences a third less shows too."""
    made = CHOICES[name]()
    assert made.p_value(made.runs) > ALPHA
    for factor in (1.5, 0.6) if name in ("cdp-peel", "joint") else (1.5,):
        assert made.p_value(made.runs, plan=scaled(made.plan, factor)) < ALPHA


def test_hub_noise_of_half_its_scale_shows(monkeypatch):
    """The default ranking, above `Keys.noise`."""
    made = CHOICES["gauss-rank, clip"]()
    sound = Draw.noisy
    monkeypatch.setattr(Draw, "noisy", lambda draw, exact, fp: exact + (sound(draw, exact, fp) - exact) // 2)
    assert made.p_value(made.runs) < ALPHA


def test_a_ranking_without_noise_shows(monkeypatch):
    made = CHOICES["gauss-rank, centred"]()
    monkeypatch.setattr(Draw, "noisy", lambda draw, exact, fp: exact)
    assert made.p_value(made.runs) < ALPHA


def test_users_who_all_take_part_show(monkeypatch):
    """The coin is paid for: without it a choice costs more than the event says."""
    made = CHOICES["hitting-set, users by coin"]()
    assert made.plan.rate < 1
    monkeypatch.setattr(hitting_program, "taking_part", lambda rate, fp, keys: np.ones(len(fp), bool))
    assert made.p_value(made.runs) < ALPHA


def test_inverted_counts_pairs_of_which_one_is_ranked():
    assert inverted([np.array([1, 0, 2]), np.array([3, 5])], 6) == (1, 4)


@pytest.mark.parametrize("k, epsilon", [(1, 0.7), (2, 1.0), (3, 2.0)])
def test_the_law_of_losses_is_that_of_the_enumerated_sequences(k, epsilon):
    counts = np.array([7, 7, 5, 4, 4, 1])
    mass = np.zeros(int(counts[0] - counts[-1]) + 1)
    for ranks in itertools.permutations(range(len(counts)), k):
        loss = int((counts[:k] - counts[list(ranks)]).max())
        mass[loss] += math.exp(-epsilon / 2 * loss)
    expected = np.append(0.0, np.cumsum(mass / mass.sum()))
    np.testing.assert_allclose(_loss_law(counts, k, epsilon), expected, atol=1e-12)
