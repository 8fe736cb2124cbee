"""`dpbeam.pack` and `Packing`: what they take, return and refuse."""

import apache_beam as beam
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that

import dpbeam
from dpbeam.errors import InputError
from dpbeam.packing.posted import Posted
from dpbeam.packing.transforms import CELLS_IN_ONE_STEP, AgentFields, packing_sizes, posted_prices
from tests.support.markets import market, plan, random_rows
from tests.support.pipelines import kept, outcome
from tests.support.running import key

BUDGET = {"epsilon": 8.0, "delta": 1e-4, "alpha": 0.5, "start_rounds": 4, "allow_small_supply": True}
AGENTS = 120


def columns():
    values, demands = random_rows(AGENTS, 2, 11)
    return {
        "agent": [f"a{i}" for i in range(AGENTS)],
        "value": values,
        "x": demands[:, 0],
        "y": demands[:, 1],
    }


def pack(data, **more):
    more = {"supplies": {"x": 20, "y": 30}, **more}
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return dpbeam.pack(data, **BUDGET, insecure_test_key="ab", **more)


def shares(result):
    return dict(zip(result.table["agent"].to_pylist(), result.table["allocation"].to_pylist()))


def test_frames_of_every_kind_give_the_same():
    data = columns()
    expected = shares(pack(data))
    assert 0 < np.mean(list(expected.values())) < 1
    for frame in (
        pd.DataFrame(data),
        pl.DataFrame(data),
        pa.table(data),
        pd.DataFrame(data)[["y", "x", "value", "agent"]],
    ):
        assert shares(pack(frame)) == expected
    matrix = np.column_stack([data["x"], data["y"]])
    lists = {"agent": data["agent"], "value": data["value"].tolist(), "wants": matrix}
    assert shares(pack(lists, demand="wants", supplies=[20, 30])) == expected
    assert shares(pack({**lists, "wants": matrix.tolist()}, demand="wants", supplies=[20, 30])) == expected
    assert (
        shares(pack(pa.table({**lists, "wants": matrix.tolist()}), demand="wants", supplies=[20, 30]))
        == expected
    )


def test_the_order_of_the_rows_is_that_of_the_input():
    data = columns()
    turned = {name: np.asarray(values)[::-1] for name, values in data.items()}
    assert pack(turned).table["agent"].to_pylist() == data["agent"][::-1]
    assert shares(pack(turned)) == shares(pack(data))


def test_a_result_says_what_it_is():
    packed = pack(columns())
    assert repr(packed) == "Packed(120 agents, method='packing', epsilon=8, delta=0.0001, NOT PRIVATE)"
    assert packed.to_pandas().shape == (120, 2) and len(pa.table(packed)) == 120
    page = packed._repr_html_()
    assert "<p>NOT FOR PUBLICATION: a row may be shown to its own agent alone</p>" in page
    assert page.count("<tr>") == 21 and "<p>120 agents, of which the first 20 are shown</p>" in page
    assert len(packed) == AGENTS and b"own agent alone" in packed.table.schema.metadata[b"dpbeam"]
    assert set(packed.prices.average()) == {"x", "y"} and packed.ledger.verify().delta <= 1e-4
    assert packed.ledger.privacy_unit.endswith("agents stand in the column 'agent'")
    with pytest.raises(InputError, match="lacks the metadata"):
        Posted.from_table(pa.table({"round": [1]}))


def test_average_prices_are_in_the_caller_s_units():
    """Twice the demands and supplies, in another unit: half the price of a unit."""
    data = columns()
    doubled = {**data, "x": data["x"] * 2}
    prices = pack(doubled, supplies={"x": {"supply": 40, "max_demand": 2}, "y": 30}).prices.average()
    expected = pack(data).prices.average()
    assert prices["x"] == pytest.approx(expected["x"] / 2) and prices["y"] == pytest.approx(expected["y"])


@pytest.mark.parametrize(
    "change,message",
    [
        ({"value": None}, "data has no column 'value'"),
        ({"x": np.full(AGENTS, 1.5)}, r"column 'x' holds no number in \[0, 1\]"),
        ({"value": np.full(AGENTS, np.nan)}, r"column 'value' holds no number in \[0, 1\]"),
        ({"y": ["a"] * AGENTS}, "column 'y' holds something else than numbers"),
        ({"y": np.ones((AGENTS, 2))}, "column 'y' has 2 dimensions, not one"),
        ({"agent": ["same"] * AGENTS}, "column 'agent' holds an agent twice"),
        ({"agent": [None] * AGENTS}, "column 'agent' is empty in a row"),
        ({"agent": ["a"]}, "the columns differ in length"),
    ],
)
def test_bad_columns_are_named(change, message):
    data = {**columns(), **change}
    with pytest.raises(InputError, match=message):
        pack({name: values for name, values in data.items() if values is not None})


@pytest.mark.parametrize("kind", ["<U6", object])
def test_a_matrix_of_something_else_than_numbers(kind):
    matrix = np.full((AGENTS, 2), "0.5", kind)
    matrix[3, 1] = "SECRET"
    data = {**columns(), "wants": matrix}
    with pytest.raises(InputError, match=r"^column 'wants' holds something else than lists of numbers$"):
        pack(data, demand="wants", supplies=[20, 30])


def test_wrong_arguments_are_named_without_dashes():
    for more, message in [
        ({"supplies": {"x": 20, "y": -1}}, "^supplies: the supply of 'y' must be a positive number"),
        ({"supplies": {"x": 20, "z": 1}}, "data has no column 'z'"),
        ({"demand": ["x", "value"]}, "demand names x, value, supplies x, y: they must be the same"),
        ({"num_agents": 100}, "^num_agents=100: the input holds more agents, 120"),
        ({"max_resources_per_agent": 1}, "^max_resources_per_agent=1: an agent demands more"),
    ]:
        with pytest.raises(InputError, match=message):
            pack(columns(), **more)
    with pytest.raises(InputError, match=r"^supplies: 20 of 'x' are too few"):
        dpbeam.pack(columns(), supplies={"x": 20, "y": 30}, epsilon=0.5, delta=1e-6)
    with pytest.raises(InputError, match="there are no agents"):
        pack({name: values[:0] for name, values in columns().items()})


def rows():
    data = columns()
    return [
        (agent, float(value), [float(x), float(y)])
        for agent, value, x, y in zip(data["agent"], data["value"], data["x"], data["y"])
    ]


def packed_on_beam(agents, tmp_path, check, **more):
    made = plan(
        market([20, 30], AGENTS, **more), **{k: v for k, v in BUDGET.items() if k != "allow_small_supply"}
    )
    with dpbeam.RunFolder(str(tmp_path), key("ab")) as run:
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            allocations = pipeline | beam.Create(agents) | dpbeam.Packing(made.config, made.market, run=run)
            assert_that(allocations, check)
        return posted_prices(made, run)


def test_the_transform_gives_what_the_call_gives(tmp_path):
    expected = pack(columns())

    def check(allocations):
        assert {row.agent: row.allocation for row in allocations} == shares(expected)

    posted = packed_on_beam(rows(), tmp_path, check)
    assert (posted.prices == expected.prices.prices).all()


ROWS = [dict(zip(("who", "worth", "x", "y"), (agent, value, *demands))) for agent, value, demands in rows()]
LISTS = [{"who": row["who"], "worth": row["worth"], "wants": [row["x"], row["y"]]} for row in ROWS]
TABLE = pa.Table.from_pylist(ROWS)
NAMED = {"agent": "who", "value": "worth"}
ELEMENTS = {
    "nested": ([{"of": row, **row} for row in ROWS], {"agent": "of.who"}),
    "functions": (ROWS, {"agent": lambda row: row["who"], "value": lambda row: row["worth"]}),
    "lists": (LISTS, {"demand": "wants"}),
    "tables": ([pa.concat_tables([TABLE.slice(0, 50), TABLE.slice(50)])], {"demand": ["y", "x"]}),
    "a table of lists": ([pa.Table.from_pylist(LISTS)], {"demand": "wants"}),
}


@pytest.mark.parametrize("kind", ELEMENTS)
def test_agents_of_any_elements(kind, tmp_path):
    expected = shares(pack(columns()))
    elements, more = ELEMENTS[kind]
    name = "agent" if callable(more.get("agent")) else "who"
    packing = dpbeam.Packing(
        **{k: v for k, v in BUDGET.items() if k != "allow_small_supply"},
        allow_small_supply=True,
        supplies={"x": 20, "y": 30},
        num_agents=AGENTS,
        insecure_test_key="ab",
        run_folder=str(tmp_path),
        **{**NAMED, **more},
    )
    allocated = outcome(lambda p: kept(p | beam.Create(elements) | packing))
    assert {getattr(row, name): row.allocation for row in allocated} == expected
    assert {row._fields for row in allocated} == {(name, "allocation")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "supplies and num_agents are required"),
        (
            {"supplies": {"x": 9e3}, "num_agents": 9, "demand": ["z", "x"]},
            "demand names one field of lists, or x",
        ),
        (
            {"supplies": {"x": 9e3}, "num_agents": 9, "agent": "allocation"},
            "item: 'allocation' is a field of what",
        ),
        ({"market": market([9e3], 9), "num_agents": 9}, "market says supplies, num_agents"),
        ({"market": market([9e3], 9), "agent_type": "float"}, "item_type is one of"),
    ],
)
def test_wrong_arguments_of_the_transform(arguments, message):
    with pytest.raises(InputError, match=f"^{message}"):
        dpbeam.Packing(epsilon=1.0, delta=1e-6, **arguments)


def test_the_transform_refuses_an_agent_s_second_row(tmp_path):
    with pytest.raises(Exception, match="column 'agent' holds an agent twice"):
        packed_on_beam([*rows()[:3], rows()[1]], tmp_path, lambda allocations: None)


@pytest.mark.parametrize(
    "bad,message",
    [
        (("a", 2.0, [0.1, 0.1]), "column 'value' holds no number"),
        (("a", 1.0, [0.1]), "column 'demands' must hold lists of 2 numbers"),
        (("a", "much", [0.1, 0.1]), "column 'value' holds something else than numbers"),
        ((None, 1.0, [0.1, 0.1]), "column 'agent' is empty in a row"),
        (("a", 1.0), r"tuples are \(agent, value, demands\), got 2 parts"),
        ("a", "an element of the input is a str"),
        ((7, 1.0, [0.1, 0.1]), r"agent ids mix types \(int, str\)"),
    ],
)
def test_rows_that_are_none_are_refused(bad, message):
    with pytest.raises(InputError, match=message):
        AgentFields("agent", "value", ("x", "y"), plan(market([20, 30], AGENTS))).of_rows([*rows()[:3], bad])


def test_a_market_too_large_for_one_worker_is_for_the_command():
    large = market([1e7] * 9, CELLS_IN_ONE_STEP)
    with pytest.raises(InputError, match="too many for one worker"):
        dpbeam.Packing(dpbeam.PackingConfig(1.0, 1e-6), large)
    assert not packing_sizes(large).one_step and packing_sizes(large).num_blocks > 200
    assert packing_sizes(market([1.0], 10)) == packing_sizes(market([1.0], 1_000))
