"""Reading crawls of the web, as Common Crawl publishes them: WET files of text, WARC files of responses (ISO 28500).

A page is a document: of WET a conversion record, of WARC an HTTP response with HTML or plain text. Its user is who
`InputSpec.user` says. A file is read from its start by one worker. What is wrong with one page is a bad row; a file
that does not end with a whole record is an error whatever `on_bad_row` says, for nobody knows what is missing.

Needs the extra `warc`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from dpbeam.errors import DataError
from dpbeam.io.formats.base import Format, Look, Piece
from dpbeam.io.lines import CHUNK_BYTES
from dpbeam.io.rows import FILTERED_PAGES, Counts, Documents, Rows
from dpbeam.io.streams import ByteSource
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.pair_rules import BAD_ROWS

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

#: Largest page, decompressed: fifty times what Common Crawl keeps of one.
MAX_PAGE_BYTES = 256 << 20
MAX_HEADER_BYTES = 1 << 20
_HTML = ("text/html", "application/xhtml+xml")
_END = b"\r\n\r\n"


class _BadPageError(Exception):
    """What is wrong with a page."""


_TOO_LARGE = _BadPageError(f"a page of more than {MAX_PAGE_BYTES >> 20} MB")


_UNITS = {
    "record": "one user: one record of the crawl",
    "page": "one user: all records of one page (target URI)",
    "host": "one user: all pages of one host",
    "domain": "one user: all pages of one registered domain",
}


class _Crawl(Format):
    """What WET and WARC share.

    Attributes:
      kind: of the records that are pages.
    """

    magic = b"WARC/"
    compressible = True
    pipes = True
    has_columns = False
    instead = ("--user", "use --user")
    ledger_fields = ("format", "user", "languages", "http_statuses")
    modules = ("fastwarc", "publicsuffixlist", "resiliparse")
    extra = "warc"
    kind: str

    def text(self, record: _Record, spec: InputSpec) -> bytes | None:
        """The text of a page; None where the spec leaves it out. Raises _BadPageError."""
        raise NotImplementedError

    def complete_users(self, spec: InputSpec) -> bool:
        return spec.user == "record"

    def unit(self, spec: InputSpec) -> str:
        return _UNITS[spec.user]

    def look(self, piece: Piece, spec: InputSpec) -> Look:
        return Look()

    def read(
        self, piece: Piece, file: BinaryIO, spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        """A row per page: its user, or none where each record is one, and its text."""
        user_of = _USERS[spec.user]
        documents = Documents(piece.path)
        for number, record in _records(piece.path, file):
            if record.kind != self.kind:
                continue
            where = f"{piece.path}: record {number}"
            try:
                text = self.text(record, spec)
                if text is None:
                    counts[FILTERED_PAGES] += 1
                    continue
                documents.add(where, text, user_of(_uri(record)) if user_of else None)
            except _BadPageError as error:
                if spec.on_bad_row == "error":
                    raise DataError(
                        f"{where}: {error}; pass --on_bad_row=skip to leave such pages out"
                    ) from None
                counts[BAD_ROWS] += 1
            if documents.size >= CHUNK_BYTES:
                yield from documents.take()
        yield from documents.take()


class Wet(_Crawl):
    """The text of pages of a crawl."""

    name, title, suffixes = "wet", "a WET", ("wet",)
    bytes_per_pair = 6
    options = ("user", "languages")
    kind = "conversion"

    def text(self, record: _Record, spec: InputSpec) -> bytes | None:
        """As `_Crawl`; None of pages in another language."""
        if spec.languages:
            listed = record.headers.get("warc-identified-content-language", "")
            if listed.partition(",")[0].strip().lower() not in spec.languages:
                return None
        return record.content()


class Warc(_Crawl):
    """Responses of a crawl, of which the text is taken."""

    name, title, suffixes = "warc", "a WARC", ("warc",)
    options = ("user", "http_statuses")
    kind = "response"

    def text(self, record: _Record, spec: InputSpec) -> bytes | None:
        """As `_Crawl`, the visible text; None of other kinds of content and statuses."""
        from resiliparse.extract.html2text import extract_plain_text

        http, payload = _response(record.content())
        if http.http_headers is None or http.http_headers.status_code is None:
            raise _BadPageError("no HTTP response")
        kind = (http.http_content_type or "").partition(";")[0].strip().lower()
        if http.http_headers.status_code not in spec.http_statuses or kind not in (*_HTML, "text/plain"):
            return None
        if len(payload) > MAX_PAGE_BYTES:
            raise _TOO_LARGE
        text = _decoded(payload, http.http_charset)
        if kind in _HTML:
            text = extract_plain_text(text, list_bullets=False, alt_texts=False)
        return text.encode()


@dataclass(frozen=True)
class _Record:
    """A record of a file.

    Attributes:
      headers: the last value of each name, names in lower case.
      block: what it holds; None where that is too large.
    """

    headers: dict[str, str]
    block: bytes | None

    @property
    def kind(self) -> str:
        return self.headers.get("warc-type", "").lower()

    def content(self) -> bytes:
        if self.block is None:
            raise _TOO_LARGE
        return self.block


def _records(path: str, file: BinaryIO) -> Iterator[tuple[int, _Record]]:
    """(number from 1, record) of a file that holds whole records, one after the other, and nothing else.

    Readers of libraries end without a word where a file is cut off, and print what they do not like.

    Raises:
      InputError: anything else.
    """
    ahead = _Ahead(ByteSource(path, file))
    number = 0
    while not ahead.at_end():
        head = ahead.until(_END, MAX_HEADER_BYTES)
        headers = _headers(head)
        length = headers.get("content-length", "")
        if not re.fullmatch("[0-9]{1,18}", length, re.ASCII):
            raise DataError(f"{path}: not a whole WARC file: no record begins after record {number}")
        number += 1
        block = None
        if int(length) <= MAX_PAGE_BYTES:
            block = ahead.take(int(length))
            whole = len(block) == int(length)
        else:
            whole = ahead.skip(int(length))
        if not whole or ahead.take(len(_END)) != _END:
            raise DataError(
                f"{path}: not a whole WARC file: record {number} is cut off, or longer than it says"
            )
        yield number, _Record(headers, block)


def _headers(head: bytes) -> dict[str, str]:
    """The named fields of a record's head; none where it is no such head."""
    first, *lines = head.decode(errors="replace").split("\r\n")
    if not re.fullmatch(r"WARC/\d\.\d+", first):
        return {}
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and not name[:1].isspace():
            fields[name.strip().lower()] = value.strip()
    return fields


class _Ahead:
    """A decompressed file, read ahead."""

    def __init__(self, source: ByteSource):
        self._source = source
        self._data = b""
        self._at = 0

    def _have(self, size: int) -> int:
        """Read until `size` bytes are there; how many are, fewer at the end of the file."""
        missing = size - (len(self._data) - self._at)
        if missing > 0:
            self._data = self._data[self._at :] + self._source.read(max(missing, CHUNK_BYTES))
            self._at = 0
        return len(self._data) - self._at

    def at_end(self) -> bool:
        return not self._have(1)

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the file."""
        self._have(size)
        data = self._data[self._at : self._at + size]
        self._at += len(data)
        return data

    def skip(self, size: int) -> bool:
        """Pass over bytes; whether there were that many."""
        while size and (data := self.take(min(size, CHUNK_BYTES))):
            size -= len(data)
        return not size

    def until(self, mark: bytes, limit: int) -> bytes:
        """What stands before the mark, which is passed too; nothing where the next `limit` bytes do not hold it."""
        self._have(limit)
        end = self._data.find(mark, self._at, self._at + limit)
        if end < 0:
            return b""
        data = self._data[self._at : end]
        self._at = end + len(mark)
        return data


def _uri(record: _Record) -> str:
    uri = record.headers.get("warc-target-uri", "").removeprefix("<").removesuffix(">")
    if not uri:
        raise _BadPageError("no target URI")
    return uri


def _response(block: bytes) -> tuple[Any, bytes]:
    """A parsed HTTP response and its payload, decoded, up to one byte more than is allowed."""
    from fastwarc.warc import WarcRecord

    head = (
        f"WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: {len(block)}"
    )
    try:
        record = WarcRecord.from_bytes(head.encode() + _END + block + _END)
        record.parse_http(auto_decode="all")
        return record, record.reader.read(MAX_PAGE_BYTES + 1)
    except (OSError, ValueError):
        raise _BadPageError("its HTTP response cannot be decoded") from None


def _decoded(payload: bytes, charset: str | None) -> str:
    """A page as text: by the charset that the server names, else the page itself, else what its bytes look like."""
    ways: tuple[Callable[[], str | None], ...] = (
        lambda: charset,
        lambda: _meta_charset(payload),
        lambda: "utf-8",
        lambda: _detected(payload),
    )
    for way in ways:
        try:
            name = way()
            if name:
                return payload.decode(name)
        except (LookupError, ValueError):
            continue
    raise _BadPageError("its charset is not known")


def _meta_charset(payload: bytes) -> str | None:
    """What an HTML page says of itself; one that says so in ASCII is not in UTF-16, whatever it says."""
    if b"charset" not in payload[:1024].lower():
        return None
    name = _detected(payload, from_html_meta=True)
    return None if name.lower().startswith("utf-16") else name


def _detected(payload: bytes, **options: bool) -> str:
    from resiliparse.parse.encoding import detect_encoding

    return detect_encoding(payload, **options) or ""


def _host(uri: str) -> str:
    """The host of a page, in lower case and as DNS has it."""
    try:
        host = (urlsplit(uri).hostname or "").rstrip(".")
    except ValueError:
        host = ""
    if not host:
        raise _BadPageError("its target URI names no host")
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host


@cache
def _suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()


def _domain(uri: str) -> str:
    """The registered domain of a page by the Public Suffix List; an address, or a suffix itself, stands for itself."""
    host = _host(uri)
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return _suffixes().privatesuffix(host) or host


_USERS: dict[str, Callable[[str], str] | None] = {
    "record": None,
    "page": str,
    "host": _host,
    "domain": _domain,
}
