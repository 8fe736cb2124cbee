"""Input specifications: inference, defaults, and every refusal word for word."""

import pytest

from dpbeam.errors import InputError
from dpbeam.io.compressions import compression_of
from dpbeam.io.formats import find, infer_format
from dpbeam.io.spec import InputSpec, parse_ngrams

PAIRS = {"user_column": "u", "item_columns": ["i"]}


@pytest.mark.parametrize(
    "pattern, format",
    [
        ("a.parquet", "parquet"),
        ("dir.csv/part-*.jsonl.gz", "jsonl"),
        ("x.ndjson", "jsonl"),
        ("x.json.zst", "jsonl"),
        ("gs://b/x.CSV.GZ", "csv"),
        ("x.tsv", "tsv"),
        ("x.txt.gz", "text"),
    ],
)
def test_format_from_extension(pattern, format):
    assert infer_format([pattern]) == format


@pytest.mark.parametrize("pattern", ["-", "x.gz", "data.csv/part-*", "x.ods"])
def test_format_unknown(pattern, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").mkdir()
    for name in ("x.gz", "data.csv/part-*", "x.ods"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputError) as error:
        infer_format([pattern])
    assert str(error.value) == f"--input: cannot tell the format of '{pattern}'; pass --input_format"


def test_the_format_of_the_files_that_a_pattern_matches(tmp_path):
    """A glob without an extension: its files have one; a folder or nothing is named as what it is."""
    for name in ("part-0.csv.gz", "part-1.csv", "_SUCCESS", ".part-1.csv.crc"):
        (tmp_path / name).write_text("")
    assert infer_format([f"{tmp_path}/*"]) == infer_format([f"{tmp_path}/part-*"]) == "csv"
    (tmp_path / "part-2.tsv").write_text("")
    with pytest.raises(
        InputError, match=r"part-0.csv.gz' is csv and '.*part-2.tsv' is tsv; one job reads one"
    ):
        infer_format([f"{tmp_path}/*"])
    for pattern, problem in (
        (str(tmp_path), f"'{tmp_path}' is a folder; name its files, for example '{tmp_path}/*'"),
        (f"{tmp_path}/none-*", f"no file matches '{tmp_path}/none-*'"),
        (f"{tmp_path}/none", f"no such file: '{tmp_path}/none'"),
    ):
        with pytest.raises(InputError) as error:
            infer_format([pattern])
        assert str(error.value) == f"--input: {problem}"


def test_formats_that_disagree():
    with pytest.raises(InputError) as error:
        infer_format(["a.csv", "b.parquet"])
    assert str(error.value) == (
        "--input: 'a.csv' is csv and 'b.parquet' is parquet; one job reads one format, or pass --input_format"
    )


def test_defaults():
    text = InputSpec.create(["a.txt"])
    assert (text.tokenizer, text.text_layout, text.complete_users, text.item_names) == (
        "words",
        "line",
        True,
        ("item",),
    )
    pairs = InputSpec.create(["a.parquet"], user_column="u", item_columns=["i", "j"])
    assert (pairs.layout, pairs.tokenizer, pairs.complete_users) == ("pairs", None, False)
    assert pairs.item_names == ("i", "j")
    assert InputSpec.create(["a.txt"], token_pattern="a").tokenizer == "regex"
    assert InputSpec.create(["a.parquet"], layout="grouped", item_columns=["i"]).complete_users
    assert not InputSpec.create(["a.parquet"], layout="grouped", **PAIRS).complete_users


@pytest.mark.parametrize("value, expected", [(None, (1, 1)), ("2", (2, 2)), (3, (3, 3)), ("1:3", (1, 3))])
def test_ngrams(value, expected):
    assert parse_ngrams(value) == expected


@pytest.mark.parametrize("value", ["0", "2:1", "1:2:3", "x", "", "1:21", "-1", "1_0", " 1", "1:٣"])
def test_ngrams_refused(value):
    with pytest.raises(InputError) as error:
        parse_ngrams(value)
    assert str(error.value) == f"--ngrams: expected N or N:M with 1 <= N <= M <= 20, got '{value}'"


@pytest.mark.parametrize(
    "patterns, arguments, message",
    [
        ([], {}, "--input: no file or pattern given"),
        (
            ["a"],
            {"format": "xml"},
            "--input_format: expected one of parquet, jsonl, csv, tsv, avro, orc, text, delta, iceberg, wet, warc, got "
            "'xml'",
        ),
        (
            ["a.csv"],
            {"user_column": "i", "item_columns": ["i"]},
            "--item_column: 'i' is also --user_column; every user would be an item",
        ),
        (["a.csv"], {"user_column": "", "item_columns": ["i"]}, "--user_column: must not be empty"),
        (["a.csv"], {**PAIRS, "item_columns": ["i", "i"]}, "--item_column: the same column is named twice"),
        (
            ["a.csv"],
            {**PAIRS, "layout": "wide"},
            "--input_layout: expected one of pairs, grouped, got 'wide'",
        ),
        (
            ["a.csv"],
            {"layout": "grouped", "item_columns": ["i"]},
            "--input_layout=grouped: csv has no lists; pass --tokenizer to take items from a text column, or use "
            "parquet, jsonl, avro or orc",
        ),
        (
            ["a.parquet"],
            {"layout": "grouped", "item_columns": ["i", "j"]},
            "--item_column: --input_layout=grouped takes one column, the list of items",
        ),
        (
            ["a.parquet"],
            {**PAIRS, "item_columns": ["i", "j"], "tokenizer": "words"},
            "--tokenizer: needs a single --item_column, which holds the text",
        ),
        (
            ["a.parquet"],
            {**PAIRS, "text_layout": "file"},
            "--text_layout: is for --input_format=text, not parquet",
        ),
        (
            ["a.parquet"],
            {**PAIRS, "tokenizer": "bpe"},
            "--tokenizer: expected one of words, whitespace, regex, got 'bpe'",
        ),
        (
            ["a.parquet"],
            {**PAIRS, "lowercase": True},
            "--lowercase: needs --tokenizer: items without one are taken as they are",
        ),
        (["a.parquet"], {**PAIRS, "ngrams": "2"}, "--ngrams: needs --tokenizer"),
        (["a.parquet"], {**PAIRS, "on_null": "skip"}, "--on_null: expected one of error, drop, got 'skip'"),
        (
            ["a.parquet"],
            {**PAIRS, "on_bad_row": "drop"},
            "--on_bad_row: expected one of error, skip, got 'drop'",
        ),
        (["a.txt"], {"layout": "pairs"}, "--input_layout: text has no columns: use --text_layout"),
        (
            ["a.txt"],
            {"user_column": "u"},
            "--user_column: text has no columns: each line or file is a user",
        ),
        (
            ["a.txt"],
            {"item_columns": ["u"]},
            "--item_column: text has no columns: items are tokens (--tokenizer)",
        ),
        (["a.txt"], {"text_layout": "page"}, "--text_layout: expected one of line, file, got 'page'"),
        (["a.txt"], {"tokenizer": "regex"}, "--tokenizer=regex needs --token_pattern"),
        (
            ["a.txt"],
            {"tokenizer": "words", "token_pattern": "a"},
            "--token_pattern: needs --tokenizer=regex",
        ),
        (
            ["a.txt"],
            {"token_pattern": "(a"},
            "--token_pattern: not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        (
            ["a.txt"],
            {"token_pattern": "(a)(b)"},
            "--token_pattern: has 2 groups, at most one may capture; write (?:...) for the others",
        ),
    ],
)
def test_refusals(patterns, arguments, message):
    with pytest.raises(InputError) as error:
        InputSpec.create(patterns, **arguments)
    assert str(error.value) == message


def test_compression():
    names = ("a.csv", "a.csv.GZ", "a.jsonl.zst", "a.txt.bz2", "a.tsv.xz")
    assert [compression_of(name) for name in names] == [None, "gzip", "zstd", "bz2", "xz"]
    with pytest.raises(
        InputError, match=r"^a\.parquet\.gz: Parquet is compressed inside; decompress the file itself$"
    ):
        find("parquet").check_file("a.parquet.gz", 1)
    with pytest.raises(InputError) as error:
        compression_of("a.csv.zip")
    assert str(error.value) == (
        "a.csv.zip: .zip files are not read; compress with one of gzip, zstd, bz2, xz, or not at all"
    )
