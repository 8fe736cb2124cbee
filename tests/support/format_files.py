"""Files of every format of the input, one entry each: what the generic tests of formats read."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.crawls import warc, wet


@dataclass(frozen=True)
class Files:
    """How files of a format are written.

    Attributes:
      pairs: (user, item) rows -> the bytes of a file with columns `user` and `item`; None without columns.
      users: items of each row -> the bytes of a file whose rows are users: a column of lists `items`, or texts.
      options: of the spec that reads `users`.
    """

    pairs: Callable[[list[tuple[str, str]]], bytes] | None
    users: Callable[[list[list[str]]], bytes]
    options: dict


LISTS = {"layout": "grouped", "item_columns": ["items"]}
TEXTS = {"layout": "grouped", "item_columns": ["text"], "tokenizer": "whitespace"}


def _parquet(columns: dict) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=7)
    return sink.getvalue()


def _avro(rows: list[dict], kind: object) -> bytes:
    sink = io.BytesIO()
    fields = [{"name": name, "type": kind} for name in rows[0]] if rows else []
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(sink, schema, rows, codec="deflate", sync_interval=200)
    return sink.getvalue()


def _columns(rows: list[tuple[str, str]]) -> dict:
    return {"user": [user for user, _ in rows], "item": [item for _, item in rows]}


def _json(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _delimited(names: list[str], rows: list, mark: str) -> bytes:
    return "".join(mark.join(row) + "\n" for row in [names, *rows]).encode()


def _named(rows: list) -> list[dict]:
    return [{"user": user, "item": item} for user, item in rows]


def _pages(rows: list) -> list[tuple[str, str]]:
    return [(f"https://{n}.example/", " ".join(items)) for n, items in enumerate(rows)]


FILES = {
    "parquet": Files(lambda rows: _parquet(_columns(rows)), lambda rows: _parquet({"items": rows}), LISTS),
    "jsonl": Files(
        lambda rows: _json(_named(rows)), lambda rows: _json([{"items": items} for items in rows]), LISTS
    ),
    "avro": Files(
        lambda rows: _avro(_named(rows), "string"),
        lambda rows: _avro([{"items": items} for items in rows], {"type": "array", "items": "string"}),
        LISTS,
    ),
    "csv": Files(
        lambda rows: _delimited(["user", "item"], rows, ","),
        lambda rows: _delimited(["text", "n"], [(" ".join(items), "1") for items in rows], ","),
        TEXTS,
    ),
    "tsv": Files(
        lambda rows: _delimited(["user", "item"], rows, "\t"),
        lambda rows: _delimited(["text", "n"], [(" ".join(items), "1") for items in rows], "\t"),
        TEXTS,
    ),
    "text": Files(None, lambda rows: "".join(" ".join(items) + "\n" for items in rows).encode(), {}),
    "wet": Files(None, lambda rows: wet(_pages(rows), compressed=False), {"user": "record"}),
    "warc": Files(
        None,
        lambda rows: warc([(uri, text.encode()) for uri, text in _pages(rows)], compressed=False),
        {"user": "record"},
    ),
}
