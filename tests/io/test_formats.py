"""What holds for every format of the registry, on files of `tests.support.format_files`."""

import ast
from pathlib import Path

import pytest

import dpbeam
from dpbeam.cli import main
from dpbeam.errors import InputError
from dpbeam.io import formats, sources
from dpbeam.io.compressions import COMPRESSIONS
from dpbeam.io.formats.base import Format, InputFile
from dpbeam.io.formats.jsonl import JsonLines
from dpbeam.io.item_lists import read_items
from dpbeam.io.sinks import OutputColumns
from dpbeam.io.sources import plan_units
from dpbeam.io.spec import InputSpec
from dpbeam.testing import FormatContract
from tests.support.format_files import FILES

USERS = [[f"w{n % 7}", f"x{n}"] for n in range(300)]
NAMES = [format.name for format in formats.formats() if not format.is_table]
CHECKS = [name for name in dir(FormatContract) if name.startswith("test_")]


def spec_of(path, name):
    return InputSpec.create([str(path)], format=name, **FILES[name].options)


def written(tmp_path, name):
    path = tmp_path / f"a.{formats.find(name).suffixes[0]}"
    path.write_bytes(FILES[name].users(USERS))
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
        assert format.has_columns or all(format.instead)
        assert format.declares_types or not format.lacks or format.has_columns


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_format_must_do(name, check):
    getattr(FILES[name], check)()


@pytest.mark.parametrize(
    ("name", "unit_bytes", "code", "said"),
    [
        (
            "parquet",
            1 << 20,
            2,
            "{path}: not as many rows were read as are stated there; the file may be damaged",
        ),
        (
            "orc",
            500,
            1,
            "not as many rows of the input were read as its files say they have; one may be damaged",
        ),
    ],
)
def test_a_run_that_reads_fewer_rows_than_its_files_say_ends_with_an_error(
    name, unit_bytes, code, said, tmp_path, monkeypatch, capsys
):
    path = tmp_path / f"a.{name}"
    path.write_bytes(FILES[name].pairs([(f"u{n}", "item") for n in range(300)]))
    form, size = type(formats.find(name)), path.stat().st_size
    read = form.read

    def lossy(self, piece, *more):
        batches = list(read(self, piece, *more))
        return iter(batches[:-1] if piece.start or piece.end == size else batches)

    monkeypatch.setattr(sources, "MIN_SPLIT_BYTES", unit_bytes)
    argv = ["select", f"--input={path}", f"--output={tmp_path}/out", "--epsilon=1", "--delta=1e-5", "--quiet"]
    monkeypatch.setattr(form, "read", lossy)
    assert main(argv) == code
    assert said.format(path=path) in capsys.readouterr().err


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


def test_formats_are_told_apart_in_their_folder_alone():
    """A comparison elsewhere is a format that a newcomer forgets."""
    root = Path(dpbeam.__file__).parent
    outputs_and_made_up_inputs = {"parquet", "csv", "jsonl", "tsv", "text"}
    names = set(NAMES) - outputs_and_made_up_inputs
    wrong = []
    for path in root.rglob("*.py"):
        if root / "io" / "formats" in path.parents:
            continue
        text = path.read_text()
        if not any(word in text for word in ("spec.format", *(f'"{name}"' for name in names))):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare | ast.Subscript) and "spec.format" in ast.unparse(node):
                wrong.append((path.name, node.lineno))
            if isinstance(node, ast.Constant) and node.value in names:
                wrong.append((path.name, node.lineno))
    assert not wrong
