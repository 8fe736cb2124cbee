"""The columnar encoding: round trips of every type, and of packed columns."""

from concurrent.futures import ThreadPoolExecutor

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpbeam.kernels.columns import (
    Packed,
    decode,
    encode,
    encode_map,
    pack,
    pack_arrays,
    pack_words,
    unpack,
    unpack_arrays,
    unpack_words,
)

NUMERIC = [
    np.uint8,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float64,
    np.bool_,
]
arrays = st.sampled_from(NUMERIC).flatmap(
    lambda kind: hnp.arrays(
        kind, st.integers(0, 40), elements=hnp.from_dtype(np.dtype(kind), allow_nan=False)
    )
)
pairs = hnp.arrays(np.uint64, st.tuples(st.integers(0, 20), st.just(2)))


@settings(max_examples=60)
@given(st.dictionaries(st.text("abc.", min_size=1, max_size=6), st.one_of(arrays, pairs), max_size=6))
def test_numpy_columns_survive(columns):
    decoded = decode(encode(columns))
    assert list(decoded) == list(columns)
    for name, values in columns.items():
        assert decoded[name].dtype == values.dtype
        assert decoded[name].shape == values.shape
        assert np.array_equal(decoded[name], values)


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 3), st.integers(1, 200))
def test_byte_strings_survive(values, start, times):
    """Short and long enough to be compressed; slices too. They decode as large_binary."""
    expected = pa.array(values * times, pa.large_binary())[start:]
    for kind in (pa.binary(), pa.large_binary()):
        decoded = decode(encode({"x": pa.array(values * times, kind)[start:], "n": np.arange(3)}))
        decoded["x"].validate(full=True)
        assert decoded["x"].equals(expected)
        assert np.array_equal(decoded["n"], np.arange(3))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", ""]),
        pa.array([[1], []]),
        pa.array([1, 2]),
        pa.array([b"a", None], pa.large_binary()),
        np.array([b"a", "x"], object),
    ],
)
def test_other_types_and_nulls_are_refused(values):
    with pytest.raises(
        ValueError, match=r"cannot encode an (Arrow )?array of (string|list|int64|large_binary|object)"
    ):
        encode({"x": values})


def test_short_columns_take_few_bytes():
    """Most messages of a large job: what frames the columns must not outweigh them."""
    message = {"from": np.array([5]), "trip": np.array([2]), **pack("weight", np.arange(60))}
    assert len(encode(message)) < 200


def test_strings_take_few_bytes():
    """A byte of length each, and text that compresses."""
    names = pa.array([b"item-%07d" % i for i in range(10_000)], pa.large_binary())
    assert len(encode({"items": names})) < 10_000 * 6


def test_slices_are_written_without_their_parents():
    parent = pa.array([b"x" * 100] * 10_000, pa.large_binary())
    data = encode({"items": parent.slice(5_000, 3)})
    assert len(data) < 2_000
    assert decode(data)["items"].to_pylist() == [b"x" * 100] * 3
    numbers = np.arange(100_000)[::1000]
    assert np.array_equal(decode(encode({"n": numbers}))["n"], numbers)


def test_equal_columns_encode_to_equal_bytes():
    """Retries rewrite identical bytes."""
    columns = {"a": np.arange(9), "b": pa.array([b"x", b""], pa.large_binary())}
    assert encode(columns) == encode({"a": np.arange(9), "b": pa.array([b"x", b""], pa.large_binary())})


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 2), ()])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="cannot encode an array of shape"):
        encode({"x": np.zeros(shape)})


integers = st.one_of(
    st.integers(0, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([255, 256, 65535, 65536, -1, 2**31, 2**32]),
)


@given(st.lists(integers, max_size=50), st.sampled_from([0, 1, 7]))
def test_packed_integers_survive(values, default):
    column = np.array(values, np.int64)
    unpacked = unpack("w", decode(encode(pack("w", column, default))), np.int64, default)
    assert unpacked.dtype == np.int64
    assert np.array_equal(unpacked, column)
    unpacked[:] = 5  # a new, writable array


@given(hnp.arrays(np.uint16, st.integers(0, 70), elements=st.sampled_from([0, 1, 32768, 65535])))
def test_packed_small_integers_survive(column):
    for default in (0, 32768):
        assert np.array_equal(unpack("b", pack("b", column, default), np.uint16, default), column)


@given(hnp.arrays(np.float64, st.integers(0, 40), elements=st.floats(allow_nan=False)))
def test_packed_floats_survive(column):
    assert np.array_equal(unpack("f", decode(encode(pack("f", column))), np.float64), column)


def test_packing_costs_a_bit_per_default_and_narrow_values():
    column = np.zeros(80_000, np.int64)
    column[::1000] = 200
    assert sum(np.asarray(part).nbytes for part in pack("w", column).values()) == 8 + 10_000 + 80
    full = np.full(1000, 70_000, np.int64)
    assert pack("w", full)["w.values"].dtype == np.int32
    assert pack("w", -full)["w.values"].dtype == np.int32
    assert pack("w", full << 20)["w.values"].dtype == np.int64


@given(st.lists(st.integers(0, 64).flatmap(lambda bits: st.integers(0, 2**bits - 1)), max_size=20))
def test_words_survive_in_as_many_bytes_as_the_largest_needs(values):
    column = np.array(values, np.uint64)
    packed = pack_words("w", column)
    assert np.array_equal(unpack_words("w", decode(encode(packed)), np.uint64), column)
    width = max(1, -(-max(values, default=0).bit_length() // 8))
    assert sum(np.asarray(part).nbytes for part in packed.values()) == width * len(values)


def test_words_of_narrower_types_survive():
    column = np.array([0, 1, 2**23, 2**31 - 1], np.int32)
    for part in (column, column[:3], column[:0]):
        unpacked = unpack_words("w", {**pack_words("w", part), **pack_words("w2", column)}, np.int32)
        assert unpacked.dtype == np.int32
        assert np.array_equal(unpacked, part)


@given(st.data(), st.integers(0, 30))
def test_arrays_of_one_length_survive_in_few_bytes(data, length):
    """Names that are prefixes of others, all of int64, truth values, and what stays as it is; in their order."""
    whole = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))
    of_kind = st.one_of(
        hnp.arrays(np.int64, length, elements=whole),
        *(hnp.arrays(kind, length) for kind in (np.bool_, np.uint16)),
        hnp.arrays(np.float64, (length, 2), elements=st.floats(allow_nan=False)),
    )
    arrays = data.draw(st.dictionaries(st.sampled_from(["a", "a.0", "a:b", "0", ""]), of_kind))
    unpacked = unpack_arrays(decode(encode(pack_arrays(arrays))), length)
    assert list(unpacked) == list(arrays)
    for name, values in arrays.items():
        assert unpacked[name].dtype == values.dtype
        assert np.array_equal(unpacked[name], values)


def test_packed_arrays_take_what_varies():
    n = 10_000
    rng = np.random.default_rng(0)
    few = np.where(rng.random(n) < 0.01, rng.integers(0, 2**40, n), 0)
    signed = rng.integers(-(2**38), 2**38, n)
    for values, most in ((few, n / 8 + 0.02 * n * 5), (signed, 5 * n), (rng.random(n) < 0.5, n / 8)):
        assert len(encode(pack_arrays({"x": values}))) < most + 100


def long_columns(seed=0):
    """Columns of every kind and of odd lengths, more than a few kB."""
    rng = np.random.default_rng(seed)
    return {
        "bytes": rng.integers(0, 9, 5_003).astype(np.uint8),
        "none": np.zeros(0, np.float64),
        "words": rng.integers(-(2**62), 2**62, 1_001),
        "fp": rng.integers(0, 2**63, (701, 2), dtype=np.uint64),
        "short": pa.array([b"", b"ab"], pa.large_binary()),
        "nobody": pa.array([], pa.large_binary()),
        "text": pa.array([b"item-%d" % i for i in rng.integers(0, 10**6, 3_001)], pa.large_binary()),
    }


def same(left, right):
    assert list(left) == list(right)
    for name, values in left.items():
        if isinstance(values, pa.Array):
            right[name].validate(full=True)
            assert right[name].equals(values)
        else:
            np.testing.assert_array_equal(right[name], values, strict=True)


def test_long_columns_survive_without_a_copy():
    columns = long_columns()
    data = encode(columns)
    decoded = decode(data)
    same(columns, decoded)
    for name in ("bytes", "words", "fp"):
        assert decoded[name].flags.aligned
        assert np.shares_memory(decoded[name], np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("size", [4_000, 4_095, 4_096, 4_200])
def test_short_and_long_columns_survive(size):
    columns = {"a": np.arange(size, dtype=np.uint8) % 7}
    same(columns, decode(encode(columns)))


@pytest.mark.parametrize("cut", [1, 8, 4_000])
def test_bytes_that_are_missing_or_too_many_are_an_error(cut):
    """An array would else be shorter than it was."""
    data = encode(long_columns())
    for other in (data[:-cut], data + bytes(cut)):
        with pytest.raises(ValueError, match=f"^{len(other)} bytes of columns in place of {len(data)}$"):
            decode(other)


def test_damaged_text_is_an_error():
    """It would else be cut, or read on behind its end."""
    cells = msgpack.unpackb(encode_map({"x": pa.array([b"a" * 2_000], pa.large_binary())}))
    kind, lengths_type, lengths, text = cells["x"]
    shorter, longer = (np.array([n], lengths_type).tobytes() for n in (1_999, 2_001))
    for bad in (
        (shorter, text),
        (longer, text),
        (lengths, text[:-1]),
        (lengths, b"x" + text),
        (lengths, b""),
    ):
        with pytest.raises(ValueError, match=r"^this is no compressed text of [0-9]+ bytes$"):
            decode(msgpack.packb({"x": [kind, lengths_type, *bad]}))


def test_threads_compress_at_once():
    """Each by its own: what zstandard compresses by serves one thread."""
    values = [np.random.default_rng(n).integers(97, 101, 300_000, np.uint8).tobytes() for n in range(8)]
    columns = [{"x": pa.array([value], pa.large_binary())} for value in values]
    expected = [encode(column) for column in columns]
    with ThreadPoolExecutor(4) as pool:
        for encoded in pool.map(lambda _: list(map(encode, columns)), range(8)):
            assert encoded == expected
        for decoded in pool.map(lambda _: list(map(decode, expected)), range(8)):
            assert [column["x"][0].as_py() for column in decoded] == values


def test_what_version_1_0_wrote_is_read():
    """Series keep their columns for months: one msgpack map of any size."""
    columns = long_columns()
    text = b"".join(columns["text"].to_pylist())
    lengths = np.array([len(item) for item in columns["text"].to_pylist()], np.uint8)
    old = {
        "bytes": ("|u1", columns["bytes"].tobytes()),
        "none": ("<f8", b""),
        "words": ("<i8", columns["words"].tobytes()),
        "fp": ("2<u8", columns["fp"].tobytes()),
        "short": ("text", "|u1", bytes([0, 2]), b"ab"),
        "nobody": ("text", "|u1", b"", b""),
        "text": ("zstd", "|u1", lengths.tobytes(), pa.Codec("zstd").compress(text, asbytes=True)),
    }
    same(columns, decode(msgpack.packb(old)))
    written = msgpack.unpackb(encode_map(columns), use_list=False)
    assert {name: cell[:-1] for name, cell in written.items()} == {
        name: cell[:-1] for name, cell in old.items()
    }


@pytest.mark.parametrize("more", [{}, long_columns(1)], ids=["short", "long"])
def test_packed_columns_go_into_a_message_as_they_are(more):
    columns = {**more, "items.3": pa.array([b"x" * 700, b"y"], pa.large_binary()), "n": np.arange(9)}
    data = encode(columns)
    assert encode({name: Packed.of(values) for name, values in columns.items()}) == data
    taken = decode(data, "items.3".__eq__)
    assert [name for name, values in taken.items() if isinstance(values, Packed)] == ["items.3"]
    assert encode(taken) == data
    assert taken["items.3"].nbytes == 2 * 2 + 701
    same(columns, {**taken, "items.3": taken["items.3"].unpack()})
