"""What holds for every format of the registry, on files of `tests.support.format_files`."""

import ast
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dpbeam
from dpbeam.errors import InputError
from dpbeam.io import formats
from dpbeam.io.compressions import COMPRESSIONS
from dpbeam.io.formats.base import Format, InputFile
from dpbeam.io.formats.jsonl import JsonLines
from dpbeam.io.item_lists import read_items
from dpbeam.io.sinks import OutputColumns
from dpbeam.io.sources import plan_units
from dpbeam.io.spec import InputSpec
from tests.support.format_files import FILES

ROWS = [(f"u{n % 60}", f"i{n * n % 41}") for n in range(300)]
USERS = [[f"w{n % 7}", f"x{n}"] for n in range(300)]
NAMES = [format.name for format in formats.formats() if not format.is_table]
WITH_COLUMNS = [name for name in NAMES if FILES[name].pairs]


def spec_of(path, name, pairs=False, **more):
    options = {"user_column": "user", "item_columns": ["item"]} if pairs else FILES[name].options
    return InputSpec.create([str(path)], format=name, **{**options, **more})


def written(tmp_path, name, pairs=False, data=None):
    if data is None:
        data = FILES[name].pairs(ROWS) if pairs else FILES[name].users(USERS)
    path = tmp_path / f"a.{formats.find(name).suffixes[0]}"
    path.write_bytes(data)
    return path


def refusal(read, spec):
    with pytest.raises(InputError) as error:
        read(spec)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_registry():
    assert set(FILES) == set(NAMES)
    registered = list(formats.formats())
    assert [format.name for format in registered] == list(formats.names())
    suffixes = [suffix for format in registered for suffix in format.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    fields = set(InputSpec.__dataclass_fields__)
    for format in registered:
        assert format.title and set(format.options) | set(format.ledger_fields) <= fields
        assert format.is_table or format.has_columns == (FILES[format.name].pairs is not None)
        assert format.has_columns or all(format.instead)
        assert format.declares_types or not format.lacks or format.has_columns


@pytest.mark.parametrize("split", [None, 3000, 200, 17])
@pytest.mark.parametrize("name", WITH_COLUMNS)
def test_every_row_is_read_once_whatever_the_ranges(read, tmp_path, name, split):
    path = written(tmp_path, name, pairs=True)
    assert read(spec_of(path, name, pairs=True), split) == (Counter(ROWS), {})


@pytest.mark.parametrize("split", [None, 3000, 200, 17])
@pytest.mark.parametrize("name", NAMES)
def test_every_row_that_is_a_user_counts_once(read, tmp_path, name, split):
    """A row that two workers read would be two users, and one user's items those of several."""
    spec = spec_of(written(tmp_path, name), name)
    assert spec.complete_users
    users, counts = read(spec, split)
    assert sorted(users) == sorted(map(sorted, USERS)) and not counts


def test_a_format_that_does_not_say_how_it_is_split_is_read_whole(read, tmp_path, monkeypatch):
    """It forgets one method, and reads a whole file for each range: five users would be five times as many."""

    class Forgetful(JsonLines):
        name = "forgetful"
        splits = Format.splits

        def read(self, piece, file, spec, kinds, counts):
            return super().read(type(piece)(piece.path, 0, 1 << 62), file, spec, kinds, counts)

    spec = spec_of(written(tmp_path, "jsonl"), "jsonl")
    assert len(plan_units([InputFile("a.jsonl", 1 << 30)], spec, 1 << 20)) > 1000
    monkeypatch.setattr(InputSpec, "file_format", property(lambda self: Forgetful()))
    assert len(plan_units([InputFile("a.jsonl", 1 << 30)], spec, 1 << 20)) == 1
    users, _ = read(spec, 100)
    assert sorted(users) == sorted(map(sorted, USERS))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_without_a_byte(read, tmp_path, name):
    path = written(tmp_path, name, data=b"")
    format = formats.find(name)
    if not format.lacks:
        assert not read(spec_of(path, name))[0]
        return
    assert refusal(read, spec_of(path, name)) == (
        f"{path}: an empty file, without even a {format.lacks}; remove it, or leave it out of --input"
    )


@pytest.mark.parametrize("name", NAMES)
def test_files_of_other_formats(read, tmp_path, name):
    """What begins as a file of another format is named, and nothing of it is read."""
    for other in NAMES:
        magic = formats.find(other).magic
        if other == name or magic == formats.find(name).magic:
            continue
        path = tmp_path / "x"
        path.write_bytes(FILES[other].users(USERS))
        if magic and name != "parquet":
            named = refusal(read, spec_of(path, name)).partition("pass --input_format=")[2]
            assert other in named.split(" or ")
        elif formats.find(name).magic:
            assert str(path) in refusal(read, spec_of(path, name))


@pytest.mark.parametrize("text", ["BZh", "BZhou", "BZh9", "BZh1AY"])
def test_a_text_that_begins_like_bz2_is_a_text(text, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(f"{text}\n")
    assert read_items(str(path), OutputColumns(("item",), ("string",)), "--domain").to_pylist() == [
        text.encode()
    ]
    assert not any(way.begins(text.encode()) for way in COMPRESSIONS)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("name", NAMES)
def test_compressed_files(read, tmp_path, name, suffix):
    import bz2
    import lzma

    import pyarrow as pa

    packers = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    }
    pack, data = packers[suffix], FILES[name].users(USERS)
    whole = pack(data[: len(data) // 2]) + pack(data[len(data) // 2 :])  # members, one after the other
    path = Path(f"{written(tmp_path, name)}.{suffix}")
    path.write_bytes(whole)
    if not formats.find(name).compressible:
        assert refusal(read, spec_of(path, name)).endswith("decompress the file itself")
        return
    assert sorted(read(spec_of(path, name), 100)[0]) == sorted(map(sorted, USERS))
    for cut in (1, 9, len(whole) // 3):
        path.write_bytes(whole[:-cut])
        assert refusal(read, spec_of(path, name)).startswith(f"{path}: not a whole ")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_cut_off(read, tmp_path, name):
    """It is refused, or its rows are the first ones: where a line or record ends, nobody can tell. The last one may be
    cut where the format has no end marks, and counts as the user that it is."""
    data = FILES[name].users(USERS)
    expected = [sorted(items) for items in USERS]
    refused = 0
    for cut in np.linspace(1, len(data) - 1, 25).astype(int):
        path = written(tmp_path, name, data=data[: -int(cut)])
        try:
            users, _ = read(spec_of(path, name))
        except InputError:
            refused += 1
            continue
        assert users[:-1] == expected[: len(users) - 1] and len(users) <= len(expected)
    assert refused >= (20 if formats.find(name).magic else 0)


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize("name", NAMES)
def test_hostile_bytes_are_refused_or_read_and_nothing_else(read, tmp_path, name, on_bad_row):
    generator = np.random.default_rng(8)
    data = FILES[name].users(USERS[:40])
    for _ in range(25):
        mutated = np.frombuffer(data, np.uint8).copy()
        at = generator.integers(0, len(mutated), 6)
        mutated[at] = generator.choice(np.array([0, 10, 13, 34, 255, 128, 44, 9], np.uint8), 6)
        path = written(tmp_path, name, data=mutated.tobytes())
        try:
            users, _ = read(spec_of(path, name, on_bad_row=on_bad_row, on_null="drop"), 300)
        except InputError as error:
            assert "\n" not in str(error) and "w1" not in str(error).replace(str(path), "")
            continue
        assert len(users) <= 80


@pytest.mark.parametrize("end", ["\r", "\n\r"])
@pytest.mark.parametrize("name", [name for name in NAMES if not formats.find(name).magic])
def test_lines_that_end_with_carriage_returns_are_never_one_line(read, tmp_path, name, end):
    """1,000 users were one line, hence none: exit code 0, budget spent."""
    data = FILES[name].users(USERS)
    path = written(tmp_path, name, data=data.replace(b"\n", b"\r"))
    message = refusal(read, spec_of(path, name, on_bad_row="skip"))
    assert message == (
        f"{path}: its lines end with carriage returns alone; convert them to newlines, as tr '\\r' '\\n' does"
    )
    if end == "\r":  # behind a header that ends as it should
        return
    path = written(tmp_path, name, data=data.replace(b"\n", b"\r\n"))
    assert sorted(read(spec_of(path, name))[0]) == sorted(map(sorted, USERS))


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", [name for name in NAMES if not formats.find(name).magic])
def test_utf_16_is_named(read, tmp_path, name, coding):
    path = written(tmp_path, name, data=FILES[name].users(USERS).decode().encode(coding))
    assert (
        refusal(read, spec_of(path, name, on_bad_row="skip"))
        == f"{path}: is text in UTF-16; convert it to UTF-8"
    )


def test_formats_are_told_apart_in_their_folder_alone():
    """A comparison elsewhere is a format that a newcomer forgets."""
    root = Path(dpbeam.__file__).parent
    names = set(NAMES) - {
        "parquet",
        "csv",
        "jsonl",
        "tsv",
        "text",
    }  # outputs and made-up inputs have those names
    wrong = []
    for path in root.rglob("*.py"):
        if root / "io" / "formats" in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare | ast.Subscript) and "spec.format" in ast.unparse(node):
                wrong.append((path.name, node.lineno))
            if isinstance(node, ast.Constant) and node.value in names:
                wrong.append((path.name, node.lineno))
    assert not wrong
