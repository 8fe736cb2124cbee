"""Counts of a public list: what they count, the law of their noise from outside, the same on Beam and in memory."""

import glob
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

import dpbeam
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.cli import main
from dpbeam.counting.config import plan_count
from dpbeam.counting.family import CountConfig
from dpbeam.counts.gathered import public_domain
from dpbeam.counts.selection import CountNoises
from dpbeam.errors import InputError
from tests.support.instances import popular_table

ALPHA = 1e-7
#: Noise of less than a fifth of a user.
PRECISE = {"epsilon": 500.0, "delta": 1e-2}


def count(data, **arguments):
    with pytest.warns(UserWarning):
        return dpbeam.count(data, **arguments)


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from("abcdef")), max_size=60),
    st.sets(st.sampled_from("abcxyz")),
)
def test_with_little_noise_they_are_the_numbers_of_users(pairs, listed):
    data = ([f"u{user}" for user, _ in pairs], [item for _, item in pairs])
    domain = pa.array(sorted(listed), pa.string())
    table = count(data, domain=domain, insecure_test_key="aa", **PRECISE).table
    users = {item: len({user for user, held in pairs if held == item}) for item in listed}
    assert table["item"].to_pylist() == sorted(listed)
    # The histogram shows few users: no clip is tried, or one without loss.
    assert table["noisy_count"].to_pylist() == [users[item] for item in sorted(listed)]


def test_the_whole_budget_is_noise():
    """1/sigma^2 of both noises is mu^2 of the Gaussian mechanism, by its curve; the histogram has 4 % of it."""
    for epsilon, delta in ((0.1, 1e-8), (1.0, 1e-6), (4.0, 1e-3)):
        noises = plan_count(CountConfig(epsilon, delta)).noises
        parts = (noises.histogram_sigma**-2, noises.sigma**-2)
        mu = math.sqrt(sum(parts))
        spent = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert 0.999 * delta < spent <= delta
        assert parts[0] / sum(parts) == pytest.approx(0.04, rel=1e-6)


def test_errors_have_the_stated_deviation_also_where_nobody_holds_an_item():
    """Users of two listed items each: the clip is 2 and loses nothing, so sqrt(2) sigma. False alarm: 3e-7."""
    held, nobody = [f"h{n}" for n in range(20)], [f"n{n}" for n in range(20)]
    users = [f"u{n}" for n in range(4_000) for _ in range(2)]
    items = [held[(n + side) % 20] for n in range(4_000) for side in range(2)]
    errors, stated = [], set()
    for run in range(20):
        table = count(
            (users, items), domain=held + nobody, epsilon=1.0, delta=1e-5, insecure_test_key=f"{run:02x}"
        ).table
        truth = {item: 400 if item in held else 0 for item in held + nobody}
        noisy = dict(zip(table["item"].to_pylist(), table["noisy_count"].to_pylist()))
        errors.append([noisy[item] - truth[item] for item in held + nobody])
        stated |= set(table["noisy_count_sd"].to_pylist())
    assert len(stated) <= 3  # the histogram's noise decides how little the clip is said to lose
    expected = math.sqrt(2) * plan_count(CountConfig(1.0, 1e-5)).noises.sigma
    assert all(value == pytest.approx(expected, rel=0.01) for value in stated)
    for side in (np.array(errors)[:, :20], np.array(errors)[:, 20:]):
        square = float((side**2).sum()) / (expected**2 + 1 / 12)
        assert chi2.ppf(ALPHA / 2, side.size) * 0.98 < square < chi2.isf(ALPHA / 2, side.size) * 1.02
        assert abs(side.mean()) < norm.isf(ALPHA / 2) * expected / math.sqrt(side.size)


def test_noise_that_is_not_stated_is_refused():
    plan = plan_count(CountConfig(1.0, 1e-5))
    less = CountNoises(plan.noises.sigma / 2, plan.noises.histogram_sigma, plan.noises.round)
    with pytest.raises(NoiseMismatchError):
        type(plan)(plan.config, less, plan.event).program(public_domain(pa.array([b"a"])))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(popular_table(300), "pairs.parquet")
    (tmp_path / "list.txt").write_text("i2\nnobody\n")
    return tmp_path


JOB = ["count", "--input=pairs.parquet", "--epsilon=2", "--delta=1e-3", "--output=out"]


class TestCommand:
    def test_counts_all_of_the_list_and_nothing_else(self, place, capsys):
        assert main([*JOB, "--domain=list.txt", "--insecure_test_key=aa"]) == 0
        assert "2 items counted: out-00000-of-00001." in capsys.readouterr().out
        expected = count(
            popular_table(300), domain=["i2", "nobody"], epsilon=2, delta=1e-3, insecure_test_key="aa"
        )
        (shard,) = glob.glob("out-*.parquet")
        assert pq.read_table(shard).to_pydict() == expected.table.to_pydict()
        assert main(["verify", "out.ledger.json"]) in (0, 1)  # a fixed key is said to be none
        assert "settings: calibrated anew" in capsys.readouterr().out
        # What it wrote is a list of the same items.
        assert main([*JOB[:-1], "--output=again", f"--domain={shard}"]) == 0
        assert set(pq.read_table(*glob.glob("again-*"))["item"].to_pylist()) == {"i2", "nobody"}

    def test_refusals(self, place, capsys):
        (place / "empty.txt").write_text("")
        for flags, reason in (
            ([], "--domain is required"),
            (["--domain=pairs.parquet"], "--domain: "),
            (["--domain=list.txt", "--max_items_per_user=3"], "--max_items_per_user"),
            (["--domain=list.txt", "--public_items=list.txt"], "use --domain"),
            (["--domain=none.txt"], "none.txt"),
            (["--domain=list.txt", "--epsilon=1e-9", "--delta=1e-12"], "deviation 1.22e+10, more than"),
        ):
            assert main([*JOB, *flags]) == 2
            err = capsys.readouterr().err
            assert reason in err and err.count(": error: ") == 1, err
            assert not list(place.glob("out*"))

    def test_an_empty_list_and_an_empty_input(self, place, capsys):
        (place / "empty.txt").write_text("")
        assert main([*JOB, "--domain=empty.txt"]) == 0
        assert pq.read_table(*glob.glob("out-*")).num_rows == 0
        pq.write_table(popular_table(300).slice(0, 0), "none.parquet")
        flags = ["--input=none.parquet", "--domain=list.txt", "--output=none", "--allow_empty"]
        assert main(["count", "--epsilon=2", "--delta=1e-3", *flags]) == 0
        assert pq.read_table(*glob.glob("none-*")).num_rows == 2


def test_arguments_are_named():
    with pytest.raises(InputError, match=r"^domain is required"):
        dpbeam.count(popular_table(20), domain=None, epsilon=1, delta=1e-5)
    with pytest.raises(InputError, match=r"^epsilon"):
        dpbeam.count(popular_table(20), domain=["i1"], epsilon=-1, delta=1e-5)
    data = popular_table(20)
    with pytest.raises(InputError, match=r"^domain is the data"):
        dpbeam.count(data, domain=data, epsilon=1, delta=1e-5)
