"""`dpbeam.select` as its callers meet it: every kind of input, the command's own result and ledger, every refusal."""

import functools
import glob
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import selectors
from tests.support.instances import popular_table

BUDGET = {"epsilon": 2.0, "delta": 1e-3}
KEY = "00FF"
# Items of TABLE as strings; users are strings too.
TABLE = popular_table(300, 0)
fixed_key = pytest.mark.filterwarnings("ignore:NOT PRIVATE")


def select(data, **arguments):
    return dpbeam.select(data, **{**BUDGET, "insecure_test_key": KEY, **arguments})


def command(table, tmp_path, *flags, item=("item",)):
    """The output and the ledger of `dpbeam select` on the same pairs."""
    pq.write_table(table, tmp_path / "pairs.parquet")
    out = str(tmp_path / "out")
    arguments = [
        "--input",
        str(tmp_path / "pairs.parquet"),
        "--user_column=user",
        "--epsilon=2",
        "--delta=1e-3",
    ]
    arguments += [f"--item_column={name}" for name in item]
    key = [] if "--no_key" in flags else [f"--insecure_test_key={KEY}"]
    flags = [flag for flag in flags if flag != "--no_key"]
    assert main(["select", *arguments, *key, *flags, f"--output={out}", "--quiet"]) == 0
    return pq.read_table(glob.glob(f"{out}-*.parquet")), json.loads(Path(f"{out}.ledger.json").read_text())


@fixed_key
class TestEqualsTheCommand:
    @pytest.mark.parametrize("method", selectors())
    def test_items_weights_and_ledger(self, method, tmp_path):
        weights = selectors()[method].shows_weights
        selected = select(TABLE, method=method, max_items_per_user=16, noisy_weights=weights)
        flags = ["--max_items_per_user=16", *["--noisy_weights"] * weights]
        table, ledger = command(TABLE, tmp_path, f"--method={method}", *flags)
        assert selected.table.to_pydict() == table.to_pydict() and len(selected) > 5
        mine = json.loads(selected.ledger.to_json())
        for values in (mine, ledger):
            values.pop("parameters")
        assert ledger.pop("release")["command"] == "select"
        assert mine == ledger

    @pytest.mark.parametrize("method", ["gsu", "vote"])
    def test_over_a_floor_on_users(self, method, tmp_path):
        """No item of fewer users, public ones excepted; the ledger says so, and only then."""
        users = Counter(item for _, item in set(zip(*TABLE.select(["user", "item"]).to_pydict().values())))
        rare = min(users, key=users.get)
        (tmp_path / "public.txt").write_text(f"{rare}\n")
        selected = select(TABLE, method=method, max_items_per_user=4, min_users=20, public_items=[rare])
        flags = ["--max_items_per_user=4", "--min_users=20", f"--public_items={tmp_path / 'public.txt'}"]
        table, ledger = command(TABLE, tmp_path, f"--method={method}", *flags)
        assert selected.table.to_pydict() == table.to_pydict()
        assert ledger["parameters"]["min_users"] == selected.ledger.parameters["min_users"] == 20
        released = set(selected.items)
        assert users[rare] < 20 and rare in released and len(released) > 3
        assert all(users[item] >= 20 for item in released - {rare})
        assert "min_users" not in select(TABLE, method=method).ledger.parameters

    def test_parameters_of_the_ledger(self, tmp_path):
        parameters = select(TABLE, method="gsu", rounds=4).ledger.parameters
        _, ledger = command(TABLE, tmp_path, "--method=gsu", "--set=rounds=4")
        theirs = ledger["parameters"]
        mine = parameters.pop("input"), theirs.pop("input")
        assert theirs.pop("output") == {"format": "parquet", "shards": 1}
        assert parameters == theirs and parameters["rounds"] == 4
        assert mine[0] == {"layout": "pairs", "on_null": "error", "item_types": ["string"]}
        assert mine[0].items() <= mine[1].items()

    def test_public_items(self, tmp_path):
        public = ["i1", "nobody holds it", "", "i1"]
        (tmp_path / "public.txt").write_text("i1\nnobody holds it\n")
        selected = select(TABLE, public_items=public, noisy_weights=True)
        table, ledger = command(
            TABLE, tmp_path, f"--public_items={tmp_path / 'public.txt'}", "--noisy_weights"
        )
        assert (
            selected.table.to_pydict() == table.to_pydict()
            and selected.ledger.public_items
            and ledger["public_items"]
        )
        assert {"i1", "nobody holds it"} <= set(selected.items) and "" not in selected.items
        assert select(TABLE, public_items=pa.table({"item": public})).items == selected.items
        encoded = TABLE.set_column(1, "item", TABLE["item"].dictionary_encode())
        assert select(encoded, public_items=public).items == selected.items

    def test_one_type_stands_for_all_item_columns(self):
        data = {"user": ["ann"], "a": ["x"], "b": ["y"]}
        one = select(data, item=["a", "b"], item_type=["string"])
        assert one.ledger == select(data, item=["a", "b"], item_type="string").ledger

    def test_several_item_columns(self, tmp_path):
        number = pa.array(np.arange(len(TABLE)) % 2)
        table = TABLE.append_column("number", number)
        selected = select(table, item=["item", "number"], noisy_weights=True)
        expected, _ = command(table, tmp_path, "--noisy_weights", item=("item", "number"))
        assert selected.table.to_pydict() == expected.to_pydict() and len(selected) > 2
        assert selected.items[0] == (expected["item"][0].as_py(), expected["number"][0].as_py())
        assert selected.ledger.parameters["input"]["item_types"] == ["string", "int"]
        assert selected.ledger.privacy_unit == "one user: one value of the column 'user'"
        public = pa.table({"item": ["new"], "number": [7]})
        assert set(select(table, item=["item", "number"], public_items=public).items) == {
            *selected.items,
            ("new", 7),
        }

    def test_nulls_and_empty_items_are_dropped_alike(self, tmp_path):
        holes = pa.table(
            {
                "user": pa.array(
                    [None if n % 50 == 1 else u for n, u in enumerate(TABLE["user"].to_pylist())]
                ),
                "item": pa.array(
                    [
                        None if n % 70 == 2 else "" if n % 90 == 3 else i
                        for n, i in enumerate(TABLE["item"].to_pylist())
                    ]
                ),
            }
        )
        counts: dict[str, int] = {}
        selected = select(holes, on_null="drop", not_private_counts=counts)
        numbers = tmp_path / "counts.json"
        table, _ = command(holes, tmp_path, "--on_null=drop", f"--not_private_counts={numbers}")
        assert selected.table.to_pydict() == table.to_pydict() and len(selected) > 5
        theirs = json.loads(numbers.read_text())["dropped"]
        assert counts == theirs and counts["null_rows"] > 0 and counts["empty_items"] > 0

    def test_large_data_in_several_batches_and_blocks(self, monkeypatch):
        once = select(TABLE, noisy_weights=True).table
        monkeypatch.setattr("dpbeam.in_memory.select._ROWS_PER_BATCH", 101)
        monkeypatch.setattr("dpbeam.selection.sizes.PAIRS_PER_BLOCK", 200)
        monkeypatch.setattr("dpbeam.selection.sizes.LINKS_PER_MESSAGE", 10)
        monkeypatch.setattr("dpbeam.selection.sizes.MAX_PAIRS_PER_BLOCK", 200)
        seen = []
        run = dpbeam.in_memory.select.build_blocks

        def watched(*arguments, **sizes):
            seen.append(sizes)
            return run(*arguments, **sizes)

        monkeypatch.setattr("dpbeam.in_memory.select.build_blocks", watched)
        assert select(TABLE, noisy_weights=True).table.equals(once)
        assert select(TABLE, method="vote").items == select(TABLE, method="vote").items
        assert seen[0]["num_blocks"] > 4 and seen[0]["num_shards"] > 1


def rows():
    """Users and items of TABLE as integers."""
    users, items = (TABLE[name].combine_chunks().dictionary_encode().indices for name in ("user", "item"))
    return users.to_pylist(), items.to_pylist()


def typed(kind):
    make = {"string": str, "int": int, "bytes": lambda n: b"\xff%d" % n}[kind]
    users, items = rows()
    return [make(u) for u in users], [make(i) for i in items]


ARROW = {"string": pa.string(), "int": pa.int32(), "bytes": pa.binary()}


def arrow(kind, **types):
    users, items = typed(kind)
    return pa.array(users, ARROW[kind]), pa.array(items, ARROW[kind])


def chunked(array):
    return pa.chunked_array(
        [array[:100], array[100:100], array[100:].dictionary_encode().dictionary_decode()]
    )


def in_chunks_of_dictionaries(array):
    return pa.chunked_array([array[:500].dictionary_encode(), array[500:].dictionary_encode()])


class Stream:
    """What exports an Arrow stream and is of no library known here."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def pandas_frame(users, items, kind):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"user": users, "item": items})


def pandas_categories(users, items, kind):
    return pandas_frame(users, items, kind).astype("category")


def pandas_arrow(users, items, kind):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(
        {
            n: pandas.Series(v, dtype=pandas.ArrowDtype(ARROW[kind]))
            for n, v in (("user", users), ("item", items))
        }
    )


def pandas_objects(users, items, kind):
    return pandas_frame(users, items, kind).astype(object)


def polars_frame(users, items, kind):
    return pytest.importorskip("polars").DataFrame({"user": users, "item": items})


def polars_categories(users, items, kind):
    polars = pytest.importorskip("polars")
    if kind != "string":
        pytest.skip("categories of polars are strings")
    return polars_frame(users, items, kind).with_columns(polars.all().cast(polars.Categorical))


def polars_objects(users, items, kind):
    polars = pytest.importorskip("polars")
    columns = {"user": users, "item": items}
    return polars.DataFrame([polars.Series(n, v, dtype=polars.Object) for n, v in columns.items()])


def table_of(users, items, kind, make=lambda array: array):
    columns = (pa.array(users, ARROW[kind]), pa.array(items, ARROW[kind]))
    return pa.table([make(column) for column in columns], ["user", "item"])


INPUTS = {
    "table": table_of,
    "batch": lambda u, i, k: table_of(u, i, k).to_batches()[0],
    "chunks": lambda u, i, k: table_of(u, i, k, chunked),
    "dictionaries": lambda u, i, k: table_of(u, i, k, in_chunks_of_dictionaries),
    "stream": lambda u, i, k: Stream(table_of(u, i, k)),
    "reader": lambda u, i, k: table_of(u, i, k).to_reader(max_chunksize=100),
    "mapping": lambda u, i, k: {"item": i, "user": u, "other": 3},
    "lists": lambda u, i, k: (u, i),
    "iterables": lambda u, i, k: (iter(u), tuple(i)),
    "arrays": lambda u, i, k: (pa.array(u), chunked(pa.array(i))),
    "numpy": lambda u, i, k: (np.array(u), np.array(i)),
    "numpy scalars": lambda u, i, k: (list(np.array(u)), list(np.array(i))),
    "numpy objects": lambda u, i, k: (np.array(u, object), np.array(i, object)),
    "pandas": pandas_frame,
    "pandas categories": pandas_categories,
    "pandas arrow": pandas_arrow,
    "pandas objects": pandas_objects,
    "pandas columns": lambda u, i, k: tuple(pandas_frame(u, i, k)[name] for name in ("user", "item")),
    "polars": polars_frame,
    "polars categories": polars_categories,
    "polars objects": polars_objects,
    "polars columns": lambda u, i, k: tuple(polars_frame(u, i, k)[name] for name in ("user", "item")),
}


@functools.cache
def released_of(kind):
    """What an Arrow table of the rows releases."""
    users, items = typed(kind)
    released = select(table_of(users, items, kind)).items
    assert len(released) > 5 and {type(item) for item in released} == {type(items[0])}
    assert set(released) <= set(items)
    return released


@fixed_key
class TestInputs:
    @pytest.mark.parametrize("kind", ["string", "int", "bytes"])
    @pytest.mark.parametrize("name", INPUTS)
    def test_every_input_gives_the_same(self, name, kind):
        users, items = typed(kind)
        assert select(INPUTS[name](users, items, kind), item_type=kind).items == released_of(kind)

    def test_types_of_users_and_items_differ(self):
        users, items = typed("int")[0], typed("string")[1]
        assert set(select((np.array(users, np.uint16), items)).items) <= set(items)

    @pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="came with NumPy 2")
    def test_string_arrays_of_numpy(self):
        users, items = typed("string")
        strings = np.dtypes.StringDType()
        assert (
            select((np.array(users, strings), np.array(items, strings))).items == select((users, items)).items
        )

    def test_names_of_columns(self):
        other = TABLE.rename_columns(["who", "query"])
        selected = select(other, user="who", item="query")
        assert selected.items == select(TABLE).items and selected.table.schema.names == ["item"]

    @pytest.mark.parametrize("make", [pandas_frame, pandas_objects, polars_frame])
    def test_missing_values_of_frames(self, make):
        users, items = typed("string")
        users[3] = items[5] = None
        frame = make(users, items, "string")
        with pytest.raises(InputError, match=r"column 'user' holds a null; pass on_null='drop'"):
            select(frame)
        counts: dict[str, int] = {}
        select(frame, on_null="drop", not_private_counts=counts)
        assert counts == {"null_rows": 2, "empty_items": 0}

    @pytest.mark.parametrize("holes", [{"user": [None, None]}, {"item": [None, ""]}])
    def test_rows_that_are_dropped_one_and_all(self, holes):
        frame = {"user": ["a", "b"], "item": ["x", "y"], **holes}
        counts: dict[str, int] = {}
        budget = {"epsilon": 1, "delta": 1e-6, "on_null": "drop", "not_private_counts": counts}
        series = dpbeam.Series(epsilon=1, delta=1e-6, nights=2)
        calls = [
            lambda: dpbeam.select(frame, **budget),
            lambda: dpbeam.top_k(frame, k=1, **budget),
            lambda: dpbeam.hitting_set(frame, k=1, **budget),
            lambda: dpbeam.count(frame, domain=["x"], **budget),
            lambda: series.run(frame, on_null="drop"),
        ]
        for call in calls:
            with pytest.raises(InputError, match=r"^on_null='drop' leaves not a single row of the data; "):
                call()
        assert series.nights_made == 0
        assert sum(counts.values()) == 2

    def test_duplicates_change_nothing(self):
        twice = pa.concat_tables([TABLE, TABLE.slice(7), TABLE])
        assert select(twice, noisy_weights=True).table.equals(select(TABLE, noisy_weights=True).table)

    @pytest.mark.parametrize(
        "data", [([], []), TABLE.slice(0, 0), {"user": pa.nulls(0), "item": pa.nulls(0)}]
    )
    def test_no_data(self, data):
        selected = select(data, noisy_weights=True)
        assert selected.items == [] and len(selected) == 0
        assert selected.table.schema == pa.schema(
            [("item", pa.large_string()), ("noisy_weight", pa.float64())]
        )
        assert selected.ledger.verify().epsilon <= 2

    def test_one_user(self):
        assert select((["ann"] * 500, [f"x{n}" for n in range(500)])).items == []

    def test_the_type_of_the_output_never_follows_from_values(self):
        """Neighbours: nobody, and one user with the integer 7."""
        with pytest.raises(InputError, match=r"declares no type; pass item_type='int'"):
            select((["ann"], [7]))
        schemas = {select(data, item_type="int").table.schema for data in [([], []), (["ann"], [7])]}
        assert len(schemas) == 1


@fixed_key
class TestRefusals:
    @pytest.mark.parametrize(
        "data,message",
        [
            ((["a", 1], ["x", "y"]), r"user ids mix types \(int, str\); use one type"),
            ((["a", "b"], ["x", b"y"]), r"item ids mix types \(bytes, str\); use one type"),
            (([1, True], ["x", "y"]), r"user ids mix types \(bool, int\); use one type"),
            (([0.5], ["x"]), r"user ids must be str, int or bytes, got float"),
            ((np.array(["a", 1], object), ["x", "y"]), r"user ids mix types \(int, str\)"),
            ((np.array([0.5]), ["x"]), r"column 'user' has type double; users and items are strings"),
            ((np.array([[1]]), ["x"]), r"column 'user' has 2 dimensions, not one"),
            (([2**63], ["x"]), r"user ids: an integer above 2\^63 - 1"),
            ((np.array([2**63], np.uint64), ["x"]), r"column 'user' has integers above 2\^63 - 1"),
            ((["\ud800"], ["x"]), r"user ids: .* not valid Unicode"),
            ((["a"], ["x", "y"]), r"columns 'user', 'item' differ in length"),
            ((["a"],), r"a tuple holds two columns, \(users, items\)"),
            ([("ann", "x"), ("bob", "x")], r"data is a frame .*; got list as data"),
            ("pairs.parquet", r"data is a frame .*; got str as data"),
            (("ann", ["x"]), r"column 'user' is an array or a list of values, got str"),
            ((3, ["x"]), r"column 'user' is an array or a list of values, got int"),
            (pa.table({"item": ["x"]}), r"data has no column 'user'; its columns are item"),
            (pa.table([["a"], ["a"], ["x"]], ["user", "user", "item"]), r"data has several columns 'user'"),
            ({"user": ["a"], "item": [None]}, r"column 'item' holds a null; pass on_null='drop'"),
            ({"user": ["a"], "item": [""]}, r"column 'item' holds an empty item; pass on_null='drop'"),
            ({"user": ["a"], "item": pa.array([[1]])}, r"column 'item' has type list<"),
            (
                {"user": ["a"], "item": pa.array([b"\xff"]).view(pa.string())},
                r"column 'item' holds a string that is not valid UTF-8",
            ),
        ],
    )
    def test_data(self, data, message):
        with pytest.raises(InputError, match=f"^{message}"):
            select(data)

    @pytest.mark.parametrize(
        "arguments,message",
        [
            ({"method": "gsu", "rounds": 0}, r"rounds must be "),
            ({"method": "basic", "rounds": 3}, r"rounds does not apply to method=basic"),
            ({"method": "best"}, r"method must be "),
            ({"preset": "none"}, r"preset must be "),
            ({"on_null": "skip"}, r"on_null must be error or drop, got 'skip'"),
            ({"item": ["item", "item"]}, r"item names one column or several different ones"),
            ({"item_type": "float"}, r"item_type must be one of string, int, bytes, got 'float'"),
            ({"item_type": ["int", "int"]}, r"item_type: 2 types for 1 item columns"),
            ({"item_type": "int"}, r"column 'item' holds string values, but item_type says int"),
            ({"public_items": [3]}, r"public_items holds int values, but column 'item' holds string values"),
            ({"public_items": [None, "x"]}, r"public_items holds a null; remove it"),
            (
                {"public_items": "items.txt"},
                r"column 'public_items' is an array or a list of values, got str",
            ),
            ({"insecure_test_key": ""}, r"insecure_test_key is empty"),
        ],
    )
    def test_arguments(self, arguments, message):
        with pytest.raises(InputError, match=f"^{message}"):
            select(TABLE, **arguments)

    def test_a_setting_that_no_method_has(self):
        with pytest.raises(TypeError, match="no method has a setting 'round'; did you mean 'rounds'"):
            select(TABLE, round=3)

    def test_the_name_of_the_weights(self):
        table = TABLE.append_column("noisy_weight", TABLE["item"])
        with pytest.raises(InputError, match="'noisy_weight' is the column that noisy_weights adds"):
            select(table, item=["item", "noisy_weight"], noisy_weights=True)

    def test_what_a_library_says_of_a_value_stays_unsaid(self):
        """pyarrow quotes the value that it cannot convert."""
        pandas = pytest.importorskip("pandas")
        mixed = pandas.Series(pandas.Categorical(["secret", 4]))
        with pytest.raises(InputError) as caught:
            select((mixed, ["x", "y"]))
        assert "secret" not in str(caught.value) and caught.value.__suppress_context__


class TestKeys:
    def test_a_fixed_key_is_said(self):
        with pytest.warns(UserWarning, match="NOT PRIVATE: insecure_test_key") as told:
            selected = select(TABLE)
        assert told[0].filename == __file__
        assert not selected.ledger.private and "NOT PRIVATE" in repr(selected)

    def test_every_call_draws_its_own_key(self, recwarn, monkeypatch):
        made = []
        fresh = RunKey.fresh

        def watched():
            made.append(fresh())
            return made[-1]

        monkeypatch.setattr(RunKey, "fresh", staticmethod(watched))
        results = [dpbeam.select(TABLE, epsilon=2, delta=1e-4, noisy_weights=True) for _ in range(2)]
        assert results[0].table != results[1].table and not recwarn.list
        assert all(selected.ledger.private for selected in results) and len(made) == 2
        for key in made:
            with pytest.raises(ValueError, match="has served a run"):
                key.spend()


@fixed_key
class TestResult:
    def test_ledger_verifies(self):
        selected = select(TABLE, method="gsu", rounds=4)
        again = Ledger.from_json(selected.ledger.to_json())
        assert again == selected.ledger and type(selected.ledger) is dpbeam.Ledger
        assert again.verify().epsilon <= 2 and again.verify().delta <= 1e-3

    def test_it_is_a_table(self):
        selected = select(TABLE, noisy_weights=True)
        assert pa.table(selected).equals(selected.table)
        assert list(selected) == selected.items == sorted(selected.items)
        assert repr(selected).startswith(
            f"Selection({len(selected)} items, method='gsu', epsilon=2, delta=0.001"
        )

    def test_it_holds_released_items_alone(self):
        """Also below the surface: the buffers of the table are no slices of the input's."""
        users, items = (TABLE[name].to_pylist() for name in ("user", "item"))
        selected = select(([*users, "u-secret"], [*items, "i-secret"]))
        assert (
            set(vars(selected)) == {"table", "ledger", "others"}
            and selected.others is None
            and selected.table.schema.metadata is None
        )
        buffers = [b for c in selected.table.columns for chunk in c.chunks for b in chunk.buffers() if b]
        held = b" ".join(b.to_pybytes() for b in buffers)
        assert selected.items[0].encode() in held and b"secret" not in held
        assert len(held) < 2_000

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_frames(self, library):
        pytest.importorskip(library)
        selected = select(TABLE, noisy_weights=True)
        frame = getattr(selected, f"to_{library}")()
        assert type(frame).__module__.startswith(library)
        assert list(frame["item"]) == selected.items
        assert list(frame["noisy_weight"]) == selected.table["noisy_weight"].to_pylist()


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


class TestImports:
    HEAVY = "('numpy', 'pyarrow', 'scipy', 'apache_beam', 'pandas', 'polars')"

    def test_the_package_alone_is_light(self):
        code = "import dpbeam, sys; dpbeam.InputError; dpbeam.__version__; print(*dir(dpbeam));"
        assert set(python(f"{code} assert not set({self.HEAVY}) & set(sys.modules)")) >= set(dpbeam.__all__)

    def test_calls_need_neither_beam_nor_libraries_of_frames(self):
        """They are as if not installed: where pandas is, pyarrow imports it by itself."""
        code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars", "apache_beam"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import dpbeam
result = dpbeam.select((["a"] * 3, ["x"] * 3), epsilon=1, delta=1e-8)
assert result.items == [] and result.ledger.versions["apache-beam"]
dpbeam.top_k({"user": ["a", "b"], "item": ["x", "x"]}, k=1, epsilon=1, delta=1e-5)
"""
        assert python(code) == []

    def test_public_names(self):
        assert len(set(dpbeam.__all__)) == len(dpbeam.__all__)
        for name in dpbeam.__all__:
            assert getattr(dpbeam, name)
        with pytest.raises(AttributeError, match="module 'dpbeam' has no attribute 'selct'"):
            dpbeam.selct  # noqa: B018


class TestInANotebook:
    """The first items, what was spent, what decides."""

    @staticmethod
    def of_one(method):
        """Users of an item that is released every other time, if each has it alone."""
        plan = make_plan(SelectionConfig(**BUDGET, method=method))
        return next(users for users in range(1, 10_000) if plan.keep_probability(users, 1) >= 0.5)

    def test_a_selection(self):
        result = dpbeam.select(TABLE, **BUDGET, method="basic")
        page = result._repr_html_()
        first = "".join(f"<tr><td>{item}</td></tr>" for item in result.items[:20])
        assert f"<thead><tr><th>item</th></tr></thead><tbody>{first}</tbody>" in page
        assert "<p>budget spent: epsilon 2, delta 0.001 (gaussian accounting)</p>" in page
        assert "<p>method basic: of each user at most 100 items count</p>" in page
        assert f"<p>users for an even chance of release: {self.of_one('basic')} with 1 item each, " in page
        shown = (
            f"{len(result)} items, of which the first 20 are shown"
            if len(result) > 20
            else f"{len(result)} items"
        )
        assert f"<p>{shown}</p>" in page and "NOT PRIVATE" not in page

    @fixed_key
    def test_values_are_text_and_a_fixed_key_is_said_first(self):
        users, items = list(range(90)), ["<b>&\u202e"] * 90
        result = dpbeam.top_k((users, items), k=1, selector="basic", insecure_test_key=KEY, **BUDGET)
        page = result._repr_html_()
        assert (
            page.startswith("<div><p>NOT PRIVATE: ")
            and "<p>method top-k, selection by basic: of each" in page
        )
        assert "<b>" not in page and "&lt;b&gt;&amp;" in page and "\u202e" not in page
