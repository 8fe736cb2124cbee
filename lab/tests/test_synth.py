"""Synthetic data: distribution, reproducibility, and that our own readers read it."""

import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import chisquare

from dpbeam.errors import InputError
from dpbeam_lab.synth import FORMATS, power_law_ranks, write_synthetic
from dpbeam_lab.synth_market import write_market
from tests.support.input import pairs_spec


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.7])
def test_ranks_follow_the_law(exponent):
    """Chi-square on 200,000 draws, false alarm 1e-7; a neighbouring exponent fails."""
    n = 50
    ranks = power_law_ranks(np.random.default_rng(3).random(200_000), n, exponent)
    assert ranks.min() == 0 and ranks.max() == n - 1

    def p_value(e):
        x = np.linspace(1, n + 1, 100 * n + 1)
        mass = np.diff(np.log(x) if e == 1 else x ** (1 - e)).reshape(n, 100).sum(axis=1)
        return chisquare(np.bincount(ranks, minlength=n), mass / mass.sum() * len(ranks)).pvalue

    assert p_value(exponent) > 1e-7
    assert p_value(exponent + 0.05) < 1e-7


def test_ends_of_the_law():
    top = np.array([0.0, np.nextafter(1.0, 0.0)])
    for exponent in (0.0, 1.0, 3.0):
        for n in (1, 10, 10**9):
            ranks = power_law_ranks(top, n, exponent)
            assert ranks[0] == 0 and 0 <= ranks[1] < n


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_reads_back_the_same(tmp_path, read, format):
    options = {"users": 50, "items": 30, "mean_items_per_user": 40.5, "seed": 5}
    paths = write_synthetic(f"{tmp_path}/x", shards=3, format=format, **options)
    assert [os.path.basename(p) for p in paths] == [f"x-0000{n}-of-00003.{format}" for n in range(3)]
    pairs, _ = read(pairs_spec(*paths))
    assert sum(pairs.values()) == 2025
    reference = write_synthetic(f"{tmp_path}/y", shards=3, format="tsv", **options)
    assert pairs == read(pairs_spec(*reference))[0]


def test_reproducible_and_seeded(tmp_path):
    def data(name, seed):
        (path,) = write_synthetic(
            f"{tmp_path}/{name}", users=9, items=9, mean_items_per_user=9, seed=seed, format="csv"
        )
        with open(path, "rb") as file:
            return file.read()

    assert data("a", 1) == data("b", 1) != data("c", 2)


MEAN = "must be positive and give at most 2^53 rows"


def test_refusals(tmp_path):
    good = {"users": 5, "items": 5, "mean_items_per_user": 2.0}
    for change, message in (
        ({"users": 0}, f"--users: must be from 1 to {2**53}, got 0"),
        ({"items": 0}, f"--items: must be from 1 to {2**53}, got 0"),
        ({"item_bytes": -1}, "--item_bytes: must be from 0 to 4096, got -1"),
        ({"shards": 0}, "--shards: must be from 1 to 99999, got 0"),
        ({"seed": -1}, f"--seed: must be from 0 to {2**63}, got -1"),
        ({"mean_items_per_user": 0.0}, f"--mean_items_per_user: {MEAN}, got 0.0"),
        ({"mean_items_per_user": float("nan")}, f"--mean_items_per_user: {MEAN}, got nan"),
        ({"mean_items_per_user": 1e300}, f"--mean_items_per_user: {MEAN}, got 1e+300"),
        ({"item_exponent": -1.0}, "--item_exponent: must be from 0 to 100, got -1.0"),
        ({"format": "orc"}, "--output_format: expected one of parquet, jsonl, csv, tsv, got 'orc'"),
    ):
        with pytest.raises(InputError) as error:
            write_synthetic(f"{tmp_path}/x", **{**good, **change})
        assert str(error.value) == message
    (path,) = write_synthetic(f"{tmp_path}/x", **good)
    with pytest.raises(InputError) as error:
        write_synthetic(f"{tmp_path}/x", **good)
    assert str(error.value) == f"--output: '{path}' exists; pass --overwrite to replace it, or another prefix"
    assert write_synthetic(f"{tmp_path}/x", **good, overwrite=True) == [path]


def test_padded_items(tmp_path):
    """The same pairs up to the items' names, which are long and stay distinct."""

    def table(name, item_bytes):
        options = {"users": 50, "items": 40, "mean_items_per_user": 5.0, "item_bytes": item_bytes}
        return pq.read_table(write_synthetic(f"{tmp_path}/{name}", **options)).to_pydict()

    short, long = table("short", 0), table("long", 100)
    assert short["user"] == long["user"]
    assert {len(item) for item in long["item"]} == {100}
    assert len(set(long["item"])) == len(set(short["item"]))
    assert all(padded.endswith(name) for padded, name in zip(long["item"], short["item"]))


def test_earlier_files_of_the_prefix_are_replaced_whatever_their_number_and_format(tmp_path):
    """Else a glob reads both; other files, and those of other prefixes, are nobody's to remove."""
    sizes = {"users": 5, "items": 5, "mean_items_per_user": 2.0}
    write_synthetic(f"{tmp_path}/x", shards=3, **sizes)
    write_synthetic(f"{tmp_path}/x", shards=2, format="csv", overwrite=True, **sizes)
    others = ["x-1-00000-of-00001.csv", "x-notes.txt", "x.csv", "x-00000-of-00003.txt"]
    for name in others:
        (tmp_path / name).write_text("")
    (path,) = write_synthetic(f"{tmp_path}/x", format="csv", overwrite=True, **sizes)
    assert sorted(os.listdir(tmp_path)) == sorted([*others, os.path.basename(path)])
    (tmp_path / "x-00001-of-00003.jsonl").symlink_to(path)
    with pytest.raises(InputError, match=r"^--output: '.*x-00001-of-00003.jsonl' is a link, which is never"):
        write_synthetic(f"{tmp_path}/x", overwrite=True, **sizes)


def test_so_are_those_of_a_market(tmp_path):
    sizes = {"agents": 9, "resources": 1}
    write_market(f"{tmp_path}/x", shards=3, **sizes)
    write_market(f"{tmp_path}/x", overwrite=True, **sizes)
    assert sorted(os.listdir(tmp_path)) == ["x-00000-of-00001.parquet", "x.supplies.yaml"]
