"""Crawls of the web, written by a library that dpbeam does not read them with."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter


def _archive(write, compressed: bool) -> bytes:
    file = io.BytesIO()
    writer = WARCWriter(file, gzip=compressed)
    writer.write_record(writer.create_warcinfo_record("crawl", {"software": "tests"}))
    write(writer)
    return file.getvalue()


def wet(
    pages: Iterable[tuple[str, str | bytes]],
    *,
    compressed: bool = True,
    languages: Mapping[str, str] | None = None,
) -> bytes:
    """Texts by URI; `languages` by URI."""

    def write(writer: WARCWriter) -> None:
        for uri, text in pages:
            data = text.encode() if isinstance(text, str) else text
            more = {"WARC-Identified-Content-Language": languages[uri]} if languages else {}
            record = writer.create_warc_record(
                uri,
                "conversion",
                payload=io.BytesIO(data),
                length=len(data),
                warc_content_type="text/plain",
                warc_headers_dict=more,
            )
            writer.write_record(record)

    return _archive(write, compressed)


def warc(
    pages: Iterable[tuple[str, bytes]],
    *,
    compressed: bool = True,
    status: str = "200 OK",
    headers: Iterable[tuple[str, str]] = (("Content-Type", "text/html; charset=utf-8"),),
) -> bytes:
    """Requests and responses by URI, and a record of metadata after each, as crawlers write them."""

    def write(writer: WARCWriter) -> None:
        for uri, body in pages:
            asked = io.BytesIO(b"GET / HTTP/1.1\r\n\r\n")
            writer.write_record(writer.create_warc_record(uri, "request", payload=asked))
            answer = StatusAndHeaders(
                status, [*headers, ("Content-Length", str(len(body)))], protocol="HTTP/1.1"
            )
            writer.write_record(
                writer.create_warc_record(uri, "response", payload=io.BytesIO(body), http_headers=answer)
            )
            writer.write_record(
                writer.create_warc_record(
                    uri,
                    "metadata",
                    payload=io.BytesIO(b"secret: 1\r\n"),
                    warc_content_type="application/warc-fields",
                )
            )

    return _archive(write, compressed)
