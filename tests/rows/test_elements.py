"""Every kind of element, of id and of list goes into every kind of release: for a fixed key the same rows."""

import dataclasses
import datetime
import decimal
import itertools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.utils.timestamp import Timestamp

import dpbeam
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from dpbeam.kernels.canonical import plain
from dpbeam.review.families import calibrated_anew
from dpbeam.review.verification import check_ledger
from dpbeam.rows.elements import PairFields, to_batches
from dpbeam.rows.lists import ListedItems
from dpbeam.rows.released import ReleasedFields
from tests.support.pipelines import kept, outcome

pytestmark = pytest.mark.usefixtures("quick_pipelines")
PAIRS = [(f"u{u}", f"i{n}") for n, holders in enumerate((60, 45, 30, 2)) for u in range(holders)]
BUDGET = {"epsilon": 4.0, "delta": 1e-3, "insecure_test_key": "doors"}
LISTED = ["i0", "i2", "nobody's"]


class Search(NamedTuple):
    who: str
    what: str


@dataclasses.dataclass
class Visit:
    who: str
    what: str


beam.coders.registry.register_coder(Search, beam.coders.RowCoder)
beam.coders.registry.register_coder(Visit, beam.coders.RowCoder)
TABLE = pa.table(dict(zip(("who", "what"), zip(*PAIRS))))
INNER = [{"who": user, "of": {"what": item}} for user, item in PAIRS]
WHO, WHAT = {"user": "who", "item": "what"}, {"user": "who", "item": "of.what"}


@dataclasses.dataclass(frozen=True)
class Elements:
    """What a pipeline holds: elements, what is said of their type, and where users and items lie in them."""

    elements: list[Any]
    hint: Any = None
    where: dict[str, Any] = dataclasses.field(default_factory=lambda: WHO)
    then: Callable[[beam.PCollection], beam.PCollection] = lambda came: came

    def of(self, pipeline: beam.Pipeline) -> beam.PCollection:
        source = beam.Create(self.elements, reshuffle=False)
        return self.then(pipeline | (source if self.hint is None else source.with_output_types(self.hint)))


ELEMENTS = {
    "tuples": Elements(PAIRS),
    "tuples of anything": Elements(PAIRS, tuple[Any, Any]),
    "tuples of any length": Elements(PAIRS, tuple[Any, ...]),
    "lists of two": Elements([list(pair) for pair in PAIRS], list[str]),
    "dictionaries": Elements(TABLE.to_pylist()),
    "rows": Elements([beam.Row(who=user, what=item) for user, item in PAIRS]),
    "named tuples": Elements([Search(*pair) for pair in PAIRS], Search),
    "dataclasses": Elements([Visit(*pair) for pair in PAIRS], Visit),
    "record batches": Elements(TABLE.to_batches(max_chunksize=50), pa.RecordBatch),
    "tables": Elements([TABLE.slice(0, 70), TABLE.slice(70)], Any),
    "nested dictionaries": Elements(INNER, dict[str, Any], WHAT),
    "nested rows": Elements([beam.Row(who=u, of=beam.Row(what=i)) for u, i in PAIRS], None, WHAT),
    "nested batches": Elements([pa.Table.from_pylist(INNER)], pa.Table, WHAT),
    "functions": Elements(
        INNER, dict[str, Any], {"user": lambda row: row["who"], "item": lambda row: row["of"]["what"]}
    ),
    "a frame": Elements(
        [beam.Row(who=user, what=item) for user, item in PAIRS],
        then=lambda came: to_pcollection(to_dataframe(came)),
    ),
}
KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "select": (dpbeam.SelectPartitions, {"method": "basic", "noisy_weights": True}),
    "top-k": (dpbeam.TopKItems, {"k": 2, "domain": LISTED, "noisy_counts": True}),
    "hitting-set": (dpbeam.HittingSet, {"k": 2, "domain": LISTED}),
    "count": (dpbeam.CountItems, {"domain": LISTED}),
}


def by_kind(tmp_path, came: Elements) -> list[Any]:
    """What kinds of release give, in one pipeline."""

    def build(pipeline):
        rows = came.of(pipeline)
        for kind, (transform, settings) in KINDS.items():
            made = transform(**BUDGET, **settings, **came.where, run_folder=str(tmp_path))
            named = f"Name {kind}" >> beam.Map(lambda row, kind: (kind, *row), kind)
            kept(rows | kind >> made | named, f"Keep {kind}")

    return sorted(outcome(build))


def pairs_of(came: Elements, domain: list[Any] = LISTED) -> tuple[pa.Table, list[Any]]:
    """What every kind of release takes from elements beside a list, and as what the items are released."""
    fields = []

    def build(pipeline):
        rows = came.of(pipeline)
        places = PairFields.of(came.where["user"], came.where["item"], None, "error")
        listed = ListedItems.of("domain", domain, places)
        fields.append(places.typed(rows.element_type, {"domain": listed.kinds}))
        kept(to_batches(rows, fields[0].of_batch, fields[0].of_rows))

    pairs = pa.Table.from_batches(batch_of_bytes(batch) for batch in outcome(build))
    released = ReleasedFields("item", fields[0].names, fields[0].kinds, ())
    return pairs, [row[0] for batch in pairs.to_batches() for row in released.rows(batch)]


def batch_of_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({name: plain(batch.column(name)) for name in ("user", "item")})


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """What is released from tuples."""
    rows = by_kind(tmp_path_factory.mktemp("wanted"), ELEMENTS["tuples"])
    assert {kind for kind, *_ in rows} == set(KINDS)
    return rows


def test_every_kind_of_release_takes_fields_of_rows(wanted, tmp_path):
    assert by_kind(tmp_path, ELEMENTS["nested rows"]) == wanted


@pytest.mark.usefixtures("beams_runner")
@pytest.mark.parametrize("name", ELEMENTS)
def test_every_kind_of_element_gives_the_same_pairs(name):
    pairs, released = pairs_of(ELEMENTS[name])
    assert sorted(zip(pairs["user"].to_pylist(), pairs["item"].to_pylist())) == sorted(
        (user.encode(), item.encode()) for user, item in PAIRS
    )
    assert sorted(released) == sorted(item for _, item in PAIRS)


WRITTEN = "00010203-0405-0607-0809-0a0b0c0d0e0f"
MORNING = datetime.datetime(2026, 11, 1, 9, 30)
#: Values of n, the type of Beam's hint, and as what value 0 is released.
TYPES: dict[str, tuple[Callable[[int], Any], Any, Any]] = {
    "str": (str, str, "0"),
    "int": (int, int, 0),
    "bytes": (lambda n: b"%d\xff" % n, bytes, b"0\xff"),
    "UUID": (lambda n: uuid.UUID(int=uuid.UUID(WRITTEN).int + n), uuid.UUID, WRITTEN),
    "date": (lambda n: datetime.date(2026, 11, 1) + datetime.timedelta(n), datetime.date, "2026-11-01"),
    "timestamp": (lambda n: MORNING + datetime.timedelta(0, n), datetime.datetime, "2026-11-01T09:30:00"),
    "timestamp of Beam": (lambda n: Timestamp(1_793_525_400 + n), Timestamp, "2026-11-01T09:30:00Z"),
    "decimal": (lambda n: decimal.Decimal(n) - decimal.Decimal("12.50"), decimal.Decimal, "-12.5"),
}
USERS = 60


@pytest.mark.parametrize(
    ("name", "shape"), [("int", "tuples"), *itertools.product(TYPES, ("rows", "batches"))]
)
def test_every_type_of_user_and_item(name, shape):
    """Users of a type are told apart, and items are its strings, which a list of such items names."""
    value, hint, written = TYPES[name]
    pairs = [(value(user), value(0)) for user in range(USERS)]
    where = {"user": "user", "item": "item"}
    if shape == "tuples":
        came = Elements(pairs, tuple[hint, hint], where)
    elif shape == "rows":
        came = Elements([beam.Row(user=user, item=item) for user, item in pairs], None, where)
    else:
        columns = [list(map(_of_arrow, column)) for column in zip(*pairs)]
        came = Elements([pa.table(dict(zip(("user", "item"), columns)))], None, where)
    taken, released = pairs_of(came, [value(0)])
    assert len(pc.unique(taken["user"])) == USERS
    listed = ListedItems.of("domain", [value(0)], PairFields.of("user", "item", None, "error"))
    assert pc.unique(taken["item"]).to_pylist() == listed.items.to_pylist()
    assert released == [written] * USERS and {type(item) for item in released} == {type(written)}


def _of_arrow(value):
    return value.to_utc_datetime(has_tz=True) if isinstance(value, Timestamp) else value


def test_items_of_several_fields(tmp_path):
    rows = [{"user": user, "of": {"host": "h"}, "port": 80 + user % 2} for user in range(2 * USERS)]
    came = beam.Create(rows).with_output_types(dict[str, Any])
    counts = dpbeam.CountItems(
        epsilon=500,
        delta=1e-2,
        item=["of.host", "port"],
        item_type=["string", "int"],
        domain=[("h", 80), ("h", 443)],
        run_folder=str(tmp_path),
    )
    released = sorted(outcome(lambda pipeline: kept(pipeline | came | counts)))
    assert [(row.host, row.port) for row in released] == [("h", 80), ("h", 443)]
    assert [abs(row.noisy_count - users) <= 1 for row, users in zip(released, (USERS, 0))] == [True, True]


@pytest.mark.parametrize(("argument", "counts"), [("public_items", False), ("known", True)])
def test_a_list_beside_a_selection_may_be_a_pcollection(argument, counts, tmp_path):
    def build(pipeline, listed=LISTED):
        settings = {"noisy_counts": counts, "item": "what", argument: listed}
        made = dpbeam.SelectPartitions(**BUDGET, method="basic", run_folder=str(tmp_path), **settings)
        return kept(pipeline | beam.Create(PAIRS, reshuffle=False) | made)

    wanted = sorted(outcome(build))
    assert {row.what for row in wanted} >= set(LISTED)
    assert sorted(outcome(lambda p: build(p, p | "List" >> beam.Create(LISTED)))) == wanted


@pytest.mark.parametrize("kind", ["top-k", "hitting-set"])  # and counts in a folder of the caller's
def test_a_domain_may_be_a_pcollection(kind, wanted, tmp_path):
    transform, settings = KINDS[kind]

    def build(pipeline):
        listed = pipeline | "List" >> beam.Create(LISTED)
        made = transform(**BUDGET, **{**settings, "domain": listed}, item="what", run_folder=str(tmp_path))
        return kept(pipeline | beam.Create(PAIRS, reshuffle=False) | made)

    assert sorted((kind, *row) for row in outcome(build)) == [row for row in wanted if row[0] == kind]


def test_also_in_a_folder_that_the_caller_holds(tmp_path):
    """Its stages wait for the list too; one of another type stops the run."""
    budget = {"epsilon": 4.0, "delta": 1e-3}

    def build(pipeline, run, listed):
        domain = pipeline | "List" >> beam.Create(listed).with_output_types(Any)
        return kept(
            pipeline
            | beam.Create(PAIRS, reshuffle=False)
            | dpbeam.CountItems(**budget, domain=domain, run=run)
        )

    with dpbeam.RunFolder(str(tmp_path)) as run:
        assert {row.item for row in outcome(lambda pipeline: build(pipeline, run, LISTED))} == set(LISTED)
    with (
        pytest.raises(Exception, match="domain holds int values, and 'item' is string"),
        dpbeam.RunFolder(str(tmp_path)) as run,
    ):
        outcome(lambda pipeline: build(pipeline, run, [1, 2]))


def test_known_releases_are_named_as_by_the_command(tmp_path):
    """By their ledgers, as files or objects; a list without a ledger is one that was declared public."""
    pq.write_table(TABLE, tmp_path / "in.parquet")
    flags = [f"--input={tmp_path}/in.parquet", "--user_column=who", "--item_column=what", "--quiet"]
    flags += ["--epsilon=4", "--delta=1e-4", "--method=basic"]
    assert main(["select", *flags, f"--output={tmp_path}/first"]) == 0
    path = f"{tmp_path}/first.ledger.json"
    job = [f"--known={tmp_path}/first", "--only_new", "--insecure_test_key=aa", f"--output={tmp_path}/second"]
    assert main(["select", *flags, *job]) == 0
    command = Ledger.from_json((tmp_path / "second.ledger.json").read_text())
    select = {"epsilon": 4.0, "delta": 1e-4, "method": "basic", **WHO, "known": ["i0"], "only_new": True}
    for ledgers in (path, [Ledger.from_json(Path(path).read_text())]):
        ledger = dpbeam.SelectPartitions(**select, known_ledgers=ledgers).ledger
        assert ledger.public_items == command.public_items is False
        for name in ("known", "only_new"):
            assert ledger.parameters[name] == command.parameters[name]
        assert calibrated_anew(ledger).same
    bare = dpbeam.SelectPartitions(**select).ledger
    assert bare.public_items and bare.parameters["known"] == []
    [said] = [one for one in check_ledger(bare.to_json())[1] if one.name == "known releases"]
    assert "no ledger of them was named" in said.text and said.holds is None


def test_ledgers_of_known_releases_are_checked(tmp_path):
    budget = {"epsilon": 4.0, "delta": 1e-4, "method": "basic"}
    known = {"known": ["i0"], "known_ledgers": []}
    (tmp_path / "none.json").write_text("{}")
    fixed = dpbeam.SelectPartitions(**budget, insecure_test_key="aa").ledger
    for wrong, message in (
        (str(tmp_path / "none.json"), "none.json' is no ledger: "),
        (str(tmp_path / "missing.json"), "missing.json' is no ledger: "),
        (fixed, "known: a release is NOT PRIVATE"),
        (3, "known_ledgers must be"),
        (dataclasses.replace(fixed, epsilon=0.1), "known: the ledger of a release does not verify"),
    ):
        with pytest.raises(dpbeam.InputError, match=message):
            dpbeam.SelectPartitions(**budget, **{**known, "known_ledgers": [wrong]})
    with pytest.raises(dpbeam.InputError, match="known_ledgers needs known"):
        dpbeam.SelectPartitions(**budget, known_ledgers=dpbeam.SelectPartitions(**budget).ledger)
    other = dpbeam.SelectPartitions(**budget, user="agent").ledger
    with pytest.warns(UserWarning, match="a release may tell of other users: its privacy unit is"):
        dpbeam.SelectPartitions(**budget, known=["i0"], known_ledgers=other)
