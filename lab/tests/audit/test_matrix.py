"""Generic faults times programs: what the audits see, and that a fault they do not see would be told."""

import numpy as np
import pytest

from dpbeam.selectors.registry import defaults, variants
from dpbeam_lab.audit.audit import ROUNDING, Subject, audit
from dpbeam_lab.audit.faults import plan_of
from dpbeam_lab.audit.floors import FLOOR, floor
from dpbeam_lab.audit.matrix import (
    FACTORS,
    MUST_SEE,
    Louder,
    Row,
    Sizes,
    Unmet,
    believes,
    generic_faults,
    halves,
    markdown,
    rows,
)
from dpbeam_lab.audit.neighbours import Neighbours, all_novel
from dpbeam_lab.audit.programs import programs

ALPHA = 1e-6


def novel(count: int) -> tuple[Neighbours, ...]:
    return (all_novel(count),)


@pytest.mark.parametrize("name", defaults())
def test_users_of_a_tenth_more_norm_show(name):
    """What the newcomer moves is exact: the honest program stays at 1, whatever the noise hides."""
    plan = plan_of(**defaults()[name])
    honest = audit(plan, trials=1_000, cases=novel(8), alpha=ALPHA)
    assert honest.passed and honest.worst("norm").estimate <= 1 + ROUNDING
    subject = Subject(Louder(plan.program, 1.1))
    shown = audit(plan, trials=1_000, cases=novel(8), subject=subject, alpha=ALPHA)
    assert shown.worst("norm").violated


def test_coins_of_users_who_are_two_show():
    """Where every item counts for itself, the items that a user moves are counted."""
    settings = defaults()["bits"]
    plan = plan_of(**settings, epsilon=4.0)
    planted = generic_faults(plan, settings)
    assert "event for D0/4" not in planted  # coins have no threshold to lower
    claim, subject = planted["a user is two"]
    shown = audit(claim, trials=1_000, cases=novel(16), subject=subject, alpha=ALPHA)
    assert shown.worst("norm").estimate == 2 and not shown.passed


@pytest.mark.parametrize(
    "method, epsilon, sent, stated", [("basic", 1.0, 8, 2), ("basic", 4.0, 100, 1), ("gsu", 4.0, 16, 4)]
)
def test_an_event_for_fewer_items_than_are_sent_shows(method, epsilon, sent, stated):
    """The plan's checks are gone round: claim and thresholds are those of a plan for fewer items."""
    settings = defaults()[{"gsu": "gsu8"}.get(method, method)]
    planted = believes(plan_of(**settings, epsilon=epsilon, max_items_per_user=sent), settings, stated)
    assert planted is not None
    claim, subject = planted
    shown = audit(claim, trials=1_000, cases=novel(sent), subject=subject, alpha=ALPHA)
    assert shown.worst("norm").violated


def test_users_that_hardly_count_are_an_alarm():
    """An audit of inputs that show nothing would pass every fault: the estimate has a floor."""
    plan, far = plan_of("basic"), (Neighbours("far above", ((0,),) * 40, (0,)),)
    honest = audit(plan, trials=4_000, cases=far)
    faint = audit(plan, trials=4_000, cases=far, subject=Subject(Louder(plan.program, 0.1)))
    assert not honest.low(FLOOR) and faint.low(FLOOR)


def test_low_floors_are_explained_and_name_variants():
    for name in variants():
        share, why = floor(name)
        assert bool(why) == (share < FLOOR)
    assert floor("a selector from outside") == (FLOOR, "")


def test_every_program_and_mechanism_has_a_row():
    names = set(rows())
    assert {f"select, {name}" for name in defaults()} <= names
    assert {name for name in programs() if not name.startswith("select, ")} <= names
    assert any(name.startswith("choice, hitting-set") for name in names)


def test_what_survives_is_told():
    sound = Row("x", True, {"noise x 0.5": 1_000}, {"noise": MUST_SEE})
    assert not sound.survives
    for smallest, honest in (
        ({"noise": None}, True),
        ({"noise": 1.1, "norm": 2.0}, True),
        ({"noise": 1.1}, False),
    ):
        assert Row("x", honest, {}, smallest).survives
    table = markdown([sound, Row("y", True, {"norm x 2": None}, {"noise": None})]).splitlines()
    assert table[0] == "| program | noise x 0.5 | norm x 2 | smallest factor seen |"
    assert table[2:] == ["| x | 1000 |  | noise 1.5 |", "| y |  | no | noise none |"]


def test_halves_share_a_users_items():
    assert halves(np.array([3, 3, 3, 5])).tolist() == [6, 7, 6, 11]


@pytest.mark.parametrize("name", ["counts, basic", "pack"])
def test_what_one_user_moves_is_just_what_the_noise_is_made_for(name):
    made = programs()[name]()
    assert 0.99 < made.move(made.program) <= 1 + ROUNDING
    assert made.move(Louder(made.program, 1.1)) > 1.09


@pytest.mark.parametrize("name", ["counts, basic", "count", "top-k, gauss-rank", "pack"])
def test_a_wrapper_that_forgets_the_hub_shows(name):
    """What is stated and never drawn is told by name of the round."""
    made = programs()[name]()
    assert made.drawn(1, build=Unmet).fault(ALPHA, made.stated).endswith(" is never drawn")


#: What must be seen; smaller faults, which cost the most trials, are for the table of the documents. Counts of one law
#: of noise are drawn by one function.
ASSERTED = rows(Sizes(shares=(0.5, 0.8), factors=tuple(c for c in FACTORS if c >= MUST_SEE)))
for _name in [name for name in ASSERTED if name.startswith("counts, ")]:
    if _name not in ("counts, basic", "counts, laplace"):
        del ASSERTED[_name]


@pytest.mark.engines
@pytest.mark.parametrize("name", ASSERTED)
def test_half_more_epsilon_survives_nowhere(name):
    row = ASSERTED[name]()
    assert not row.survives, markdown([row])
    assert None not in [row.cells[fault] for fault in ("noise x 0.5", "noise x 0.8")]
