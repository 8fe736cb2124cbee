"""`SelectPartitions` as library users call it."""

import datetime
import glob
import os
import pickle
import tempfile
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.decorators import TypeCheckError
from apache_beam.typehints.row_type import RowTypeConstraint

from dpbeam.accounting.ledger import Ledger
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.in_process import run_in_process
from dpbeam.errors import InputError
from dpbeam.kernels.canonical import encode, from_values
from dpbeam.randomness import RunKey
from dpbeam.review.families import calibrated_anew
from dpbeam.rows.released import ReleasedRow
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selection.transforms import SelectPartitions
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.transforms import TopKItems
from tests.support.forks import in_fork
from tests.support.pipelines import kept, outcome

CONFIG = SelectionConfig(epsilon=2.0, delta=1e-3, method="basic", max_items_per_user=5)
KEY = "library"


def pairs(kind=str):
    """60 users hold item 1, 40 item 2, and so on down; users hold up to 5 items, twice each."""
    held = []
    for item, holders in ((1, 60), (2, 40), (3, 20), (4, 2), (5, 1)):
        held += [(make(kind, user), make(kind, item)) for user in range(holders)] * 2
    return held


def make(kind, number):
    return {str: str(number), int: number, bytes: bytes([number])}[kind]


def expected(config, rows):
    plan = make_plan(config)
    types = {str: pa.large_string(), int: None, bytes: pa.large_binary()}
    kind = type(rows[0][0])
    users, items = (pa.array(column, types[kind]) for column in zip(*rows))
    released = run_in_process(
        plan.program, [(_canonical(users), _canonical(items))], RunKey.insecure_fixed(KEY)
    )
    return plan, released


def _canonical(array):
    return encode(array)[0]


def run(tmp_path, elements, config=CONFIG, coder=None, **arguments):
    """Released items of a pipeline over `elements`."""
    source = beam.Create(elements)
    if coder is not None:
        source = source.with_output_types(coder)
    with RunFolder(str(tmp_path), RunKey.insecure_fixed(KEY)) as folder:
        select = SelectPartitions(config, run=folder, **arguments)
        return outcome(lambda pipeline: kept(pipeline | source | select))


def items_of(rows):
    return [row.item for row in rows]


@pytest.fixture(scope="module")
def of_tuples(tmp_path_factory):
    """What `pairs()` release, sorted."""
    return sorted(run(tmp_path_factory.mktemp("tuples"), pairs()))


@pytest.mark.parametrize("kind", [str, int, bytes])
def test_tuples_come_back_as_what_they_were(kind, tmp_path):
    released = run(tmp_path, pairs(kind))
    items = set(items_of(released))
    assert {make(kind, 1), make(kind, 2)} <= items <= {make(kind, n) for n in range(1, 6)}
    assert all(type(item) is kind for item in items)
    assert {row._fields for row in released} == {("item",)}
    _, reference = expected(CONFIG, pairs(kind))
    assert len(released) == len(reference)


def test_a_floor_on_users(tmp_path):
    """On Beam the items are those of a run in memory, over several shards too; 4 and 5 have too few users."""
    config = SelectionConfig(epsilon=4.0, delta=1e-2, method="mad2r", max_items_per_user=5, min_users=10)
    _, reference = expected(config, pairs())
    released = run(tmp_path, pairs(), config, num_shards=3)
    assert len(reference) == len(released)
    assert {"1", "2"} <= set(items_of(released)) <= {"1", "2", "3"}


def test_batches_equal_tuples(of_tuples, tmp_path):
    users, items = zip(*pairs())
    batch = pa.RecordBatch.from_arrays([pa.array(users), pa.array(items)], ["user", "item"])
    assert sorted(run(tmp_path, [batch.slice(0, 100), batch.slice(100)], coder=pa.RecordBatch)) == of_tuples


@pytest.mark.parametrize("encoded", ["both", "some batches", "nested", "runs"])
def test_dictionaries_of_users_and_items(encoded, of_tuples, tmp_path):
    """Batches with dictionaries of their own, in orders of their own, with values twice and values unused."""

    def column(name, values, number):
        plain = pa.array(values)
        if encoded == "some batches" and number:
            return plain
        if encoded == "runs":
            return pc.run_end_encode(plain)
        first = plain.dictionary_encode()
        # Every value twice in the dictionary, which begins with one that no row has.
        names = pa.array(
            [f"unused {number}", *first.dictionary.to_pylist()[::-1], *first.dictionary.to_pylist()]
        )
        size = len(first.dictionary)
        places = [size - i if n % 2 else 1 + size + i for n, i in enumerate(first.indices.to_pylist())]
        dictionary = pa.DictionaryArray.from_arrays(pa.array(places, pa.int16()), names)
        if encoded != "nested":
            return dictionary
        return pa.DictionaryArray.from_arrays(pa.array(range(len(dictionary)), pa.int32()), dictionary)

    batches = []
    for number, start in enumerate(range(0, len(pairs()), 60)):
        users, items = zip(*pairs()[start : start + 60])
        batches.append(
            pa.record_batch({"user": column("user", users, number), "item": column("item", items, number)})
        )
    assert len(batches) == 5
    released = sorted(run(tmp_path, batches, coder=pa.RecordBatch, num_shards=3))
    assert released == of_tuples


def test_noisy_weights_lie_on_the_public_grid(tmp_path):
    config = SelectionConfig(
        epsilon=2.0, delta=1e-3, method="basic", max_items_per_user=5, noisy_weights=True
    )
    released = run(tmp_path, pairs(), config)
    plan = make_plan(config)
    grid = plan.program.weight_grid
    assert plan.rounds[0].sigma / 2048 < grid < plan.rounds[0].sigma / 512
    for _, weight in released:
        assert weight >= plan.rounds[0].threshold - grid
        assert weight / grid == int(weight / grid)


def test_a_folder_serves_one_transform(tmp_path):
    """Two would draw the same noise: the difference of their weights would be the exact difference of the data."""
    with RunFolder(str(tmp_path)) as folder:
        for first in (True, False):
            pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
            rows = pipeline | beam.Create([("u", "a")])
            if first:
                _ = rows | "One" >> SelectPartitions(CONFIG, run=folder)
            with pytest.raises(ValueError, match="this RunFolder serves a transform already"):
                _ = rows | "Two" >> SelectPartitions(CONFIG, run=folder)


def test_a_forked_process_has_no_use_of_a_folder(tmp_path):
    with RunFolder(str(tmp_path)) as folder:
        assert "ValueError: this RunFolder serves a transform already, or was made before" in in_fork(
            folder.claim
        )
        assert folder.claim() is folder.store


def test_a_key_serves_one_run(tmp_path):
    secret = RunKey.fresh()
    RunFolder(str(tmp_path), secret).remove()
    with pytest.raises(ValueError, match="this key has served a run"):
        RunFolder(str(tmp_path), secret)
    with pytest.raises(ValueError, match="this key has served a run"):
        run_in_process(make_plan(CONFIG).program, [], secret)
    assert glob.glob(str(tmp_path / "dpbeam-run-*")) == []
    fixed = RunKey.insecure_fixed("0")
    for _ in range(2):
        RunFolder(str(tmp_path), fixed).remove()


def test_a_run_of_its_own_needs_no_folder(tmp_path):
    options = PipelineOptions(["--runner=FnApiRunner", f"--temp_location={tmp_path}"])
    many = [(f"u{n}", "everybody's") for n in range(500)]
    with beam.Pipeline(options=options) as pipeline:
        released = pipeline | beam.Create(many) | SelectPartitions(CONFIG) | beam.Map(lambda row: row.item)
        assert_that(released, equal_to(["everybody's"]))
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("beams_runner")
@pytest.mark.parametrize(
    "elements,message",
    [
        ([("u", 1), ("v", True)], "item ids mix types \\(bool, int\\); use one type"),
        (["ab"], "an element of the input is a str; dpbeam takes rows with a schema, dictionaries"),
        ([("u", "a", "b")], "tuples are \\(user, item\\), got 3 parts"),
        ([{"user": "u"}], "an element of the input has no field 'item'"),
        ([("u", 1)], "'item' holds int values, and is taken for string: say item_type='int'"),
    ],
)
def test_bad_elements(elements, message, tmp_path):
    with pytest.raises(Exception, match=message):
        run(tmp_path, elements, coder=Any)


ID = str | int | bytes


class Search(NamedTuple):
    user: str
    item: int


@pytest.mark.parametrize("transform", [SelectPartitions(CONFIG), TopKItems(TopKConfig(2.0, 1e-3, 5))])
class TestTypes:
    """What is said of the elements' type when a pipeline is built: one line with the fix."""

    @pytest.mark.parametrize(
        ("element", "message"),
        [
            (str, "elements of the input are of type str; dpbeam takes rows"),
            (
                tuple[str, float],
                "'item' is of type float; users and items are strings, integers or bytes: convert it",
            ),
            (tuple[str, str, str], r"tuples are \(user, item\), got 3 parts for 2 fields"),
            (tuple[int, pa.RecordBatch], "'item' is of type RecordBatch"),
            (list[float], "'user' is of type float"),
            (tuple[str, None], "'item' is of type NoneType"),
            (tuple[str, float | bool], "'item' is of type "),
            (dict[str, float], "'user' is of type float"),
            (
                RowTypeConstraint.from_fields([("user", str), ("query", str)]),
                "no field 'item'; their fields are user, q",
            ),
            (str | tuple[str, str], "elements of the input are of type str"),
        ],
    )
    def test_wrong_elements_fail_at_construction(self, transform, element, message):
        source = beam.Pipeline() | beam.Create([]).with_output_types(element)
        with pytest.raises(InputError, match=message) as error:
            _ = source | transform
        assert "Union[" not in str(error.value) and "\n" not in str(error.value)

    @pytest.mark.parametrize(
        "elements", [["ab"], [("u", 1.5)], [("u", None)], [("u", "a", "b")], [{"user": 1.5}]]
    )
    def test_also_inferred_ones(self, transform, elements):
        with pytest.raises(InputError, match=r"(is|are) of type|got 3 parts"):
            _ = beam.Pipeline() | beam.Create(elements) | transform


@pytest.mark.parametrize(
    ("element", "held"),
    [
        (Any, str),
        (tuple[str, int], int),
        (tuple[Any, Any], str),
        (tuple[Any, ...], str),
        (tuple[bytes, ID], str),
        (tuple[int, str] | pa.RecordBatch, str),
        (tuple[int, str | None], str),
        (list[bytes], bytes),
        (pa.RecordBatch, str),
        (pa.Table, str),
        (dict[str, Any], str),
        (dict[str, int], int),
        (Search, int),
    ],
)
def test_the_type_of_the_output_follows_from_that_of_elements(element, held, tmp_path):
    source = beam.Pipeline() | beam.Create([]).with_output_types(element)
    released = source | SelectPartitions(CONFIG, run=RunFolder(str(tmp_path)))
    assert released.element_type.get_type_for("item") is held


@pytest.mark.parametrize(
    ("arguments", "held", "refused"),
    [
        ({"item_type": "int"}, int, None),
        ({"item_type": bytes}, bytes, None),
        ({"public_items": [1, 2]}, int, None),
        (
            {"item_type": "string", "public_items": [1, 2]},
            None,
            "public_items holds int values, and 'item' is string",
        ),
        ({"item": ["a", "b"], "item_type": ["int", "string"], "known": [(1, "x")]}, int, None),
    ],
)
def test_the_type_of_the_output_where_elements_declare_none(arguments, held, refused, tmp_path):
    """It follows from what the caller says, which is public, and not from values."""

    def build():
        source = beam.Pipeline() | beam.Create([]).with_output_types(dict[str, Any])
        return source | SelectPartitions(CONFIG, run=RunFolder(str(tmp_path)), **arguments)

    if refused is not None:
        with pytest.raises(InputError, match=refused):
            build()
        return
    name = arguments.get("item", ["item"])[0]
    assert build().element_type.get_type_for(name) is held


def test_a_transform_serves_inputs_of_several_types():
    select, pipeline = SelectPartitions(CONFIG), beam.Pipeline()
    for name, held in (("words", str), ("numbers", int)):
        source = pipeline | name >> beam.Create([]).with_output_types(tuple[str, held])
        assert (source | f"Select {name}" >> select).element_type.get_type_for("item") is held


def test_a_schema_and_item_type_must_agree():
    source = beam.Pipeline() | beam.Create([("u", "a")])
    with pytest.raises(InputError, match="item_type says int, and the input's type that 'item' is string"):
        _ = source | SelectPartitions(CONFIG, item_type="int")


def test_the_type_of_the_output_is_checked_downstream(tmp_path):
    def name(item: int) -> str:
        return str(item)

    with RunFolder(str(tmp_path)) as folder:
        released = beam.Pipeline() | beam.Create([("u", "a")]) | SelectPartitions(CONFIG, run=folder)
        with pytest.raises(TypeCheckError, match=r"requires .*'int'>' but .*Row\(item"):
            _ = released | beam.Map(name)


def test_lists_are_taken_for_tuples(of_tuples, tmp_path):
    assert sorted(run(tmp_path, [list(pair) for pair in pairs()])) == of_tuples


UNFIT = r"item ids: an integer above 2\^63 - 1 or a string that is not valid"


@pytest.mark.parametrize(
    "values,message",
    [
        ([2**63], UNFIT),  # Beam's own coders refuse these first where elements cross a shuffle
        (["\ud800"], UNFIT),
        ([1, "1"], r"item ids mix types \(int, str\); use one type"),
        ([True, False], "item ids must be str, int or bytes, got bool"),
        ([1.5], "item ids must be str, int or bytes, got float"),
    ],
)
def test_values_without_canonical_bytes(values, message):
    with pytest.raises(InputError, match=message):
        from_values(values, "item")


def test_types_mixed_across_bundles(tmp_path):
    """The bytes of the integer 2^56 and of a string can be equal; users of two bundles must not merge."""
    number = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["a"])], ["user", "item"])
    text = pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array(["a"])], ["user", "item"])
    with pytest.raises(Exception, match="ids mix types"):
        run(tmp_path, [number, text], coder=pa.RecordBatch, num_blocks=1)


@pytest.mark.parametrize("column", ["user", "item"])
def test_types_of_one_kind_mixed_across_bundles(tmp_path, column):
    """A date and a timestamp of one day are written as two strings: two ids of one person."""
    day = pa.array([datetime.datetime(2026, 11, 1)], pa.date32())
    batches = [
        pa.RecordBatch.from_pydict({"user": ["u"], "item": ["i"], column: array})
        for array in (day, day.cast(pa.timestamp("us")))
    ]
    with pytest.raises(Exception, match="ids mix types"):
        run(tmp_path, batches, coder=pa.RecordBatch, num_blocks=1)
    assert run(tmp_path, batches[:1] * 2, coder=pa.RecordBatch, num_blocks=1) == []


@pytest.mark.parametrize(
    "batch,message",
    [
        (
            pa.RecordBatch.from_arrays([pa.array(["u"])], ["user"]),
            "record batches have no column 'item'; their columns are user",
        ),
        (
            pa.RecordBatch.from_arrays([pa.array(["u", None]), pa.array(["a", "b"])], ["user", "item"]),
            "column 'user' holds a null",
        ),
        (
            pa.RecordBatch.from_arrays([pa.array(["u"]), pa.array([1.5])], ["user", "item"]),
            "column 'item' has type double",
        ),
    ],
)
def test_bad_batches(batch, message, tmp_path):
    with pytest.raises(Exception, match=message):
        run(tmp_path, [batch], coder=pa.RecordBatch)


def test_windows_are_refused(tmp_path):
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    windowed = (
        pipeline
        | beam.Create([("u", "a")])
        | beam.Map(lambda pair: TimestampedValue(pair, 0))
        | beam.WindowInto(FixedWindows(10))
    )
    with (
        RunFolder(str(tmp_path)) as folder,
        pytest.raises(ValueError, match="dpbeam needs the global window"),
    ):
        _ = windowed | SelectPartitions(CONFIG, run=folder)


def test_unbounded_input_is_refused(tmp_path):
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    source = pipeline | beam.Create([("u", "a")])
    source.is_bounded = False
    with (
        RunFolder(str(tmp_path)) as folder,
        pytest.raises(ValueError, match="dpbeam needs a bounded PCollection"),
    ):
        _ = source | SelectPartitions(CONFIG, run=folder)


def test_display_data_holds_public_settings_alone():
    shown = {item.key: item.value for item in DisplayData.create_from(SelectPartitions(CONFIG)).items}
    assert shown["method"] == "basic" and shown["epsilon"] == 2.0 and shown["max_items_per_user"] == 5
    assert set(shown) == {"method", "epsilon", "delta", "max_items_per_user", "num_blocks", "num_shards"}


def test_the_ledger_of_a_pipeline():
    """Verified, calibrated as `dpbeam verify` does it, and marked where the key is fixed."""
    ledger = SelectPartitions(CONFIG).ledger
    assert ledger.private and ledger.verify().epsilon <= CONFIG.epsilon
    assert calibrated_anew(Ledger.from_json(ledger.to_json())).same
    with RunFolder(tempfile.gettempdir(), RunKey.insecure_fixed("07")) as run:
        assert not SelectPartitions(CONFIG, run=run).ledger.private


def test_the_ledger_states_public_items_and_who_a_user_is():
    plain = SelectPartitions(CONFIG, user=len).ledger
    assert (plain.public_items, plain.privacy_unit) == (False, "one user: one value of the user column")
    named = SelectPartitions(CONFIG, user="of.who", on_null="drop").ledger
    assert named.privacy_unit == "one user: one value of the column 'of.who'"
    assert named.parameters["input"]["on_null"] == "drop"
    assert SelectPartitions(CONFIG, public_items=["1"]).ledger.public_items


def test_a_row_is_a_tuple_with_names():
    row = ReleasedRow(("query", "noisy_count"), ["x", 3])
    assert row == ("x", 3) and (row.query, row["noisy_count"], row[1]) == ("x", 3, 3)
    assert "query" in row and "x" not in row and row._asdict() == {"query": "x", "noisy_count": 3}
    again = pickle.loads(pickle.dumps(row))
    assert again == row and again.query == "x"
    with pytest.raises(AttributeError, match="no field 'item'; its fields are query, noisy_count"):
        _ = row.item


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "epsilon is required"),
        ({"epsilon": 1.0}, "delta is required"),
        ({"config": CONFIG, "epsilon": 1.0, "rounds": 3}, "epsilon, rounds: the config says all settings"),
        ({"config": CONFIG, "item": ["a.x", "b.x"]}, "item names one field or several different ones"),
        ({"config": CONFIG, "item_type": "float"}, "item_type is one of string, int, bytes"),
        ({"config": CONFIG, "only_new": True}, "only_new needs known"),
        ({"config": CONFIG, "known": [1, None]}, "known holds a null"),
        ({"config": CONFIG, "known": "tea"}, "known is a list of items, got str"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon must"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=f"^{message}"):
        SelectPartitions(**arguments)
