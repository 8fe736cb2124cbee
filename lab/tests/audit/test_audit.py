"""The audit: every selector keeps its claim and comes near it; every planted fault is refuted."""

import numpy as np
import pytest
from scipy import integrate, stats

from dpbeam.accounting.gaussian import gaussian_delta
from dpbeam.engine.program import Keys
from dpbeam.selectors.registry import variants
from dpbeam_lab.audit.audit import Subject, audit, markdown
from dpbeam_lab.audit.faults import OneLabelKeys, QuietKeys, faults, plan_of
from dpbeam_lab.audit.neighbours import Neighbours, all_novel
from dpbeam_lab.audit.worst_cases import worst_cases
from tests.selectors.case import cases
from tests.support.variants import of_own_code

#: A fault of all methods is planted in one of each kind of noise.
FAULTS = {
    name: fault
    for name, fault in faults().items()
    if not name.endswith(("noise x 0.8", "noise of another kind", "merged by 32 bits"))
    or name.startswith(("basic,", "laplace,", "vote,", "bits,"))
}
VARIANTS = variants()
ALPHA = 1e-6  # probability that one audit refutes a correct program


@pytest.mark.parametrize("name", of_own_code(VARIANTS))
def test_selector_keeps_its_claim(name):
    """All worst cases; a correct program fails with probability at most 1e-6.

    The numbers of every plan are recomputed in tests/selection/test_plan.py.
    """
    plan = plan_of(**VARIANTS[name], max_items_per_user=4)
    result = audit(plan, trials=1_000, alpha=ALPHA)
    assert result.passed, markdown([(name, result)])
    assert {f.case for f in result.findings} == {c.name for c in worst_cases(plan)}


@pytest.mark.parametrize("name", [n for case in cases().values() for n in case.tight])
def test_audit_comes_near_the_claim(name):
    """The statistic reaches most of delta on a user of D0 novel items: little room is left for a fault to hide.

    Estimates are off by up to five standard errors; whether the claim is kept, the test above says.
    """
    plan = plan_of(**VARIANTS[name])
    worst = audit(plan, trials=4_000, cases=(all_novel(8),)).worst("transcript")
    assert 0.7 < worst.estimate / worst.claimed < 1.0 + 5 / np.sqrt(4_000 * worst.claimed)


# Trials of gsu16 take seconds.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.engines] * name.startswith("gsu16")) for name in FAULTS],
)
def test_planted_fault_is_refuted(name):
    fault = FAULTS[name]()
    for trials in (1_000, fault.trials):  # the first refute most
        result = audit(fault.plan, trials=trials, subject=fault.subject, cases=fault.cases, alpha=ALPHA)
        if not result.passed:
            return
    pytest.fail(markdown([(name, result)]))


# The code of gsu4, gsu8 and gsu16 is that of gsu.
@pytest.mark.parametrize("name", sorted({name.split(",")[0] for name in FAULTS} - {"gsu4", "gsu8", "gsu16"}))
def test_the_same_inputs_do_not_refute_the_correct_program(name):
    """False alarm 1e-6 for each plan, with the inputs of all its faults.

    Noise of another kind shows at the worst cases of a variant, which the first test audits.
    """
    inputs = {}
    for fault in FAULTS:
        if fault.startswith(f"{name},") and not fault.endswith("noise of another kind"):
            made = FAULTS[fault]()
            inputs.setdefault(repr(made.plan.config), (made.plan, {}))[1].update(dict.fromkeys(made.cases))
    for plan, neighbours in inputs.values():
        result = audit(plan, trials=1_000, cases=tuple(neighbours), alpha=ALPHA)
        assert result.passed, markdown([(name, result)])


def test_released_sets_alone_refute_gross_faults():
    """What anybody sees is enough for a threshold that ignores D0."""
    fault = FAULTS["basic, threshold for one novel item instead of D0"]()
    result = audit(fault.plan, trials=2_000, subject=fault.subject, cases=fault.cases)
    findings = [f for f in result.findings if f.kind == "released set"]
    assert any(f.violated for f in findings)


def test_transcript_statistic_of_one_gaussian_is_its_exact_delta():
    """An item far above the threshold: nothing but the Gaussian mechanism is left, whose delta is a closed form.

    The covariance is widened by its confidence bound, so the estimate lies between the deltas of sigma and of
    1.02 sigma, up to 5.5 standard errors (false alarm below 1e-7).
    """
    plan = plan_of("basic")
    sigma = plan.rounds[0].sigma
    case = Neighbours("far above", ((0,),) * 40, (0,))
    findings = audit(plan, trials=10_000, cases=(case,)).findings
    estimates = [f.estimate for f in findings if f.kind == "transcript"]  # of both directions
    low, high = gaussian_delta(1.0, 1.02 * sigma), gaussian_delta(1.0, sigma)
    assert high == pytest.approx(0.025)
    margin = 5.5 * np.sqrt(0.3 * high / 10_000)
    assert [low - margin < estimate < high + margin for estimate in estimates] == [True, True]
    assert gaussian_delta(1.0, 0.9 * sigma) > high + margin  # noise too small by a tenth would show


def test_transcript_statistic_of_one_novel_item_is_its_integral():
    """Weight 1 against no weight: crossing counts 1, everything else (1 - e^(eps - L))+ of the Gaussian loss.

    Within 5.5 standard errors, and 2 % for the widened covariance (false alarm below 1e-7).
    """
    plan = plan_of("basic")
    sigma, rho = plan.rounds[0].sigma, plan.rounds[0].threshold
    result = audit(plan, trials=20_000, cases=(all_novel(1),))
    for direction, weight, sign in (("add", 1.0, 1.0), ("remove", 0.0, -1.0)):

        def gain(noise: float, sign: float = sign) -> float:
            loss = (sign * noise + 0.5) / sigma**2
            return -np.expm1(min(0.0, 1.0 - loss)) * stats.norm.pdf(noise, scale=sigma)

        crossing = stats.norm.sf(rho - weight, scale=sigma)
        exact = crossing + integrate.quad(gain, -12 * sigma, rho - weight, limit=500)[0]
        finding = next(f for f in result.findings if f.kind == "transcript" and f.direction == direction)
        assert abs(finding.estimate - exact) < 5.5 * np.sqrt(exact / 20_000) + 0.02 * exact


def test_noise_is_measured_not_believed():
    """Quiet noise raises the statistic; noise that repeats itself cancels out and gives the sums away."""
    plan = plan_of("gsu", rounds=2)

    def worst(keys) -> float:
        subject = Subject(plan.program, keys=keys)
        result = audit(plan, trials=1_000, cases=(all_novel(4),), subject=subject)
        return result.worst("transcript").estimate

    assert worst(QuietKeys) > 1.3 * worst(Keys)
    subject = Subject(plan.program, keys=OneLabelKeys)
    result = audit(plan, trials=1_000, cases=(all_novel(4),), subject=subject)
    assert result.worst("noise").case == "noise of two rounds is related"


def test_same_seed_same_findings():
    plan = plan_of("gsu", rounds=2)
    results = [audit(plan, trials=1_000, cases=(all_novel(3),), seed=s).findings for s in ("a", "a", "b")]
    assert results[0] == results[1] != results[2]


def test_too_few_trials():
    with pytest.raises(ValueError, match="trials must be at least 1000, got 999"):
        audit(plan_of("basic"), trials=999)


def test_markdown_names_program_case_and_verdict():
    plan = plan_of("basic")
    good = audit(plan, trials=1_000, cases=(all_novel(2),))
    bad = audit(plan, trials=1_000, cases=(all_novel(8),), subject=Subject(plan.program, keys=OneLabelKeys))
    text = markdown([("basic", good)])
    assert text.splitlines()[2].startswith("| basic | ")
    assert text.endswith("| passes |")
    assert bad.passed  # one round: its label cannot repeat
    fault = FAULTS["gsu, noise label without the round"]()
    result = audit(fault.plan, trials=1_000, cases=fault.cases, subject=fault.subject)
    assert markdown([("x", result)]).endswith("| all novel, 8 items, add | refuted |")
