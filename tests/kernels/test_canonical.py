"""Canonical bytes: injective within a kind, kinds kept apart, decodable, and strict about types."""

import datetime
import decimal
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.errors import InputError
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds

INT64 = st.integers(-(2**63), 2**63 - 1)
STRATEGIES = {"string": st.text(), "int": INT64, "bytes": st.binary()}
ARROW = {"string": pa.string(), "int": pa.int64(), "bytes": pa.binary()}


@st.composite
def _columns(draw):
    kinds = draw(st.lists(st.sampled_from(canonical.ID_KINDS), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*(STRATEGIES[kind] for kind in kinds)), max_size=30))
    return kinds, rows


@settings(max_examples=100, deadline=None)
@given(_columns(), st.integers(0, 5))
def test_round_trip_and_injective(columns, skip):
    kinds, rows = columns
    parts = []
    for p, kind in enumerate(kinds):
        encoded, said_kind = canonical.encode(pa.array([row[p] for row in rows], ARROW[kind]))
        assert said_kind == kind and encoded.type == pa.large_binary()
        parts.append(encoded)
    items = parts[0] if len(parts) == 1 else canonical.encode_parts(parts)
    assert len(set(items.to_pylist())) == len(set(rows))
    decoded = canonical.decode(items.slice(skip), kinds)
    assert list(zip(*(column.to_pylist() for column in decoded))) == rows[skip:]


def test_documented_encoding():
    assert canonical.encode(pa.array(["é", "e\u0301"]))[0].to_pylist() == [b"\xc3\xa9", b"e\xcc\x81"]
    assert canonical.encode(pa.array([1, -1]))[0].to_pylist() == [b"\0" * 7 + b"\x01", b"\xff" * 8]
    assert canonical.encode(pa.array([b"\xff"]))[0].to_pylist() == [b"\xff"]
    parts = [canonical.encode(pa.array(values))[0] for values in (["ab"], ["c"])]
    assert canonical.encode_parts(parts).to_pylist() == [b"\0\0\0\x02ab\0\0\0\x01c"]


def test_one_as_string_integer_and_bytes():
    """The three have different (kind, bytes), and a byte string that spells an integer's bytes has another kind."""
    encodings = {
        (kind, encoded[0].as_py())
        for encoded, kind in (
            canonical.encode(pa.array(values))
            for values in (["1"], [1], [b"1"], [b"\0" * 7 + b"\x01"], ["\0" * 7 + "\x01"])
        )
    }
    assert len(encodings) == 5


def test_parts_do_not_run_together():
    rows = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a\0", "bc"), ("a", "\0bc")]
    parts = [canonical.encode(pa.array(column))[0] for column in zip(*rows)]
    assert len(set(canonical.encode_parts(parts).to_pylist())) == len(rows)


@pytest.mark.parametrize(
    "type", [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.uint64()]
)
def test_integer_widths_agree(type):
    assert canonical.encode(pa.array([7, None], type))[0].equals(canonical.encode(pa.array([7, None]))[0])


@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.string_view()])
def test_string_types_agree(type):
    encoded, kind = canonical.encode(pa.array(["x", None], type))
    assert kind == "string" and encoded.to_pylist() == [b"x", None]


@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view()])
def test_binary_types_agree(type):
    encoded, kind = canonical.encode(pa.array([b"x", None], type))
    assert kind == "bytes" and encoded.to_pylist() == [b"x", None]


def test_dictionary_stays():
    chunks = pa.chunked_array(
        [pa.array(values).dictionary_encode() for values in (["a", "b", "a"], ["c", None, "a"])]
    )
    encoded, kind = canonical.encode(chunks)
    assert kind == "string" and pa.types.is_dictionary(encoded.type)
    assert sorted(encoded.dictionary.to_pylist()) == [b"a", b"b", b"c"]
    assert canonical.plain(encoded).to_pylist() == [b"a", b"b", b"a", b"c", None, b"a"]
    numbers, kind = canonical.encode(pa.array([5, 6, 5], pa.uint32()).dictionary_encode())
    assert kind == "int" and canonical.decode(canonical.plain(numbers), ["int"])[0].to_pylist() == [5, 6, 5]


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int16()])
def test_dictionaries_of_chunks_that_are_larger_together_than_their_indices(index):
    """As frames with categories give, one after the other."""
    count = 100 if index.bit_width == 8 else 30_000
    values = [[f"{part} {n}" for n in range(count)] for part in "abc"]
    indices = pa.array(range(count), index)
    chunks = [pa.DictionaryArray.from_arrays(indices, pa.array(part)) for part in values]
    encoded, kind = canonical.encode(pa.chunked_array(chunks))
    assert kind == "string" and pa.types.is_int32(encoded.type.index_type)
    assert canonical.plain(encoded).to_pylist() == [text.encode() for part in values for text in part]
    assert canonical.encode(chunks[0])[0].type == encoded.type


def test_nested_dictionaries_and_runs():
    inner = pa.array(["a", "b", None]).dictionary_encode()
    nested = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 2], pa.int8()), inner)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([7, None]))
    for array, kind, values in (
        (nested, "string", [b"b", b"a", None, None]),
        (pa.chunked_array([nested, nested[:2]]), "string", [b"b", b"a", None, None, b"b", b"a"]),
        (runs, "int", [b"\0" * 7 + b"\x07"] * 2 + [None] * 2),
        (pa.DictionaryArray.from_arrays([0], pa.array(["a"], pa.string_view())), "string", [b"a"]),
    ):
        encoded, said_kind = canonical.encode(array)
        assert said_kind == kind and canonical.plain(encoded).to_pylist() == values
    with pytest.raises(InputError, match="has type dictionary"):
        canonical.encode(pa.DictionaryArray.from_arrays([0], pa.array([1.5]).dictionary_encode()))


def test_integers_in_decimal():
    texts = ["7", "+7", "-007", "", "9223372036854775807", "-9223372036854775808", "9223372036854775808"]
    texts += ["1.0", "0x10", " 1", "1_0", "1\n", "²"]
    for view in (pa.large_string(), pa.large_binary()):
        values, bad = canonical.parse_int64(
            pa.array([t.encode() for t in texts], pa.large_binary()).view(view)
        )
        assert values.to_pylist() == [7, 7, -7, None, 2**63 - 1, -(2**63), *[None] * 7]
        assert bad.tolist() == list(range(6, 13))
    values, bad = canonical.parse_int64(pa.array(["1", "x"], pa.large_string()))
    assert values.to_pylist() == [1, None] and bad.tolist() == [1]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([True]),
        pa.array([1.0]),
        pa.array([1.0], pa.float32()),
        pa.array([datetime.time(12)]),
        pa.array([datetime.timedelta(1)]),
        pa.array([["a"]]),
        pa.array([{"a": 1}]),
        pa.array([True]).dictionary_encode(),
    ],
)
def test_other_types_refused(array):
    with pytest.raises(InputError) as error:
        canonical.encode(array, "f.parquet: column 'u'")
    assert str(error.value) == (
        f"f.parquet: column 'u' has type {array.type}; users and items are strings, integers or bytes; "
        "convert the column to one of these"
    )


D, T = decimal.Decimal, datetime.datetime(2026, 11, 1, 9, 30, 0, 250_000)
PARIS = "Europe/Paris"


@pytest.mark.parametrize(
    ("arrays", "texts"),
    [
        (
            [
                pa.array([D("12.50"), D("-3.00"), D("100"), D("0"), None], pa.decimal128(20, 2)),
                pa.array([D("12.5"), D("-3"), D("100"), D("0"), None], pa.decimal256(60, 18)),
            ],
            ["12.5", "-3", "100", "0", None],
        ),
        ([pa.array([D("0.000000000000000001")], pa.decimal128(38, 30))], ["0.000000000000000001"]),
        ([pa.array([D("9" * 38)], pa.decimal128(38, 0))], ["9" * 38]),
        (
            [pa.array([datetime.date(2026, 11, 1), None], kind) for kind in (pa.date32(), pa.date64())],
            ["2026-11-01", None],
        ),
        (
            [pa.array([T, None], pa.timestamp(unit)) for unit in ("ms", "us", "ns")],
            ["2026-11-01T09:30:00.25", None],
        ),
        (
            [
                pa.array([T.replace(microsecond=0)], pa.timestamp(unit, zone))
                for unit in ("s", "ms", "us", "ns")
                for zone in ("UTC", PARIS, "+02:00")
            ],
            ["2026-11-01T09:30:00Z"],
        ),
        (
            [pa.array([datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23)])],
            ["0001-01-01T00:00:00", "9999-12-31T23:00:00"],
        ),
        ([pa.array([bytes(range(16)), None], pa.uuid())], ["00010203-0405-0607-0809-0a0b0c0d0e0f", None]),
    ],
)
def test_one_text_for_each_value_whatever_its_type(arrays, texts):
    for array in arrays:
        for form in (array, pa.chunked_array([array, array]).slice(len(array))):
            encoded, kind = canonical.encode(form)
            assert kind == "string" and canonical.plain(encoded).cast(pa.string()).to_pylist() == texts
    encoded, _ = canonical.encode(arrays[0].dictionary_encode() if len(arrays) > 1 else arrays[0])
    assert canonical.plain(encoded).cast(pa.string()).to_pylist() == texts


def test_large_unsigned_refused():
    assert canonical.encode(pa.array([2**63 - 1], pa.uint64()))[0].to_pylist() == [b"\x7f" + b"\xff" * 7]
    with pytest.raises(InputError) as error:
        canonical.encode(pa.array([2**63], pa.uint64()), "f: column 'u'")
    assert str(error.value) == "f: column 'u' has integers above 2^63 - 1; convert the column to strings"


def test_null_type_has_no_kind():
    encoded, kind = canonical.encode(pa.nulls(2))
    assert kind is None and encoded.to_pylist() == [None, None]


def test_null_part_makes_a_null_item():
    parts = [canonical.encode(pa.array(values))[0] for values in (["a", None, "b"], [1, 2, None])]
    assert canonical.encode_parts(parts).is_null().to_pylist() == [False, True, True]


def test_types_travel_with_the_kinds():
    """Where they say more; else the bytes are those of every version, which a series has kept."""
    plain = Kinds.of_types("string", ["int", "bytes"])
    assert plain == Kinds("string", ("int", "bytes")) and plain.types == ("string", "int", "bytes")
    assert plain.metadata() == {b"dpbeam": b'{"user":"string","item":["int","bytes"]}'}
    rows = Kinds.of_types(None, ["UUID", "int"])
    assert (rows.user, rows.item, rows.types) == (None, ("string", "int"), (None, "UUID", "int"))
    dates = Kinds.of_types("date", ["string"])
    assert dates.metadata() != Kinds.of_types("timestamp", ["string"]).metadata()
    for kinds in (plain, rows, dates):
        assert Kinds.of(pa.schema([], metadata=kinds.metadata())) == kinds


def test_invalid_utf8_found():
    values = [b"ok", b"\xff", None, b"\xc3", "é".encode()] + [b"x"] * 5000 + [b"\xed\xa0\x80"]
    array = pa.array(values, pa.large_binary())
    assert canonical.invalid_utf8(array).tolist() == [1, 3, 5005]
    assert canonical.invalid_utf8(array.dictionary_encode()).tolist() == [1, 3, 5005]
    assert canonical.invalid_utf8(array.slice(4, 5)).tolist() == []


def test_invalid_utf8_as_pythons_decoder_has_it():
    tails = [b"", b"\x7f", b"\x80", b"\x8f", b"\x90", b"\x9f", b"\xa0", b"\xbf", b"\xc0", b"\xff", b"\n"]
    values = [bytes([first]) + b"".join(rest) for first in range(256) for rest in product(tails, repeat=3)]

    def is_bad(value):
        try:
            value.decode()
        except UnicodeDecodeError:
            return True
        return False

    expected = [place for place, value in enumerate(values) if is_bad(value)]
    assert canonical.invalid_utf8(pa.array(values, pa.large_binary())).tolist() == expected
    long = [b"a" * 10**6 + b"\xff", "é".encode() * 10**6]
    assert canonical.invalid_utf8(pa.array(long, pa.large_binary())).tolist() == [0]


@pytest.mark.parametrize("value", [b"\0\0\0\x05ab", b"\0\0\0\x01ab", b"\0\0", b""])
def test_malformed_composites_refused(value):
    with pytest.raises(ValueError, match="malformed composite item"):
        canonical.decode(pa.array([value], pa.large_binary()), ["string", "string"])


def test_kinds_travel_in_the_schema():
    kinds = Kinds("int", ("string", "bytes"))
    schema = pa.schema([("user", pa.large_binary())], metadata=kinds.metadata())
    assert Kinds.of(schema) == kinds
    assert schema.metadata == {b"dpbeam": b'{"user":"int","item":["string","bytes"]}'}
    with pytest.raises(ValueError, match="does not carry kinds"):
        Kinds.of(pa.schema([("user", pa.large_binary())]))
    with pytest.raises(ValueError, match="a kind is one of string, int, bytes, got 'float'"):
        Kinds("float", ("string",))
