"""Crawls: pages, users, filters, and files that are not whole."""

import gzip
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.errors import InputError
from dpbeam.io.formats import crawl
from dpbeam.io.formats.base import Piece
from dpbeam.io.rows import Counts
from dpbeam.io.spec import InputSpec
from dpbeam.io.streams import open_input
from dpbeam.kernels.canonical import Kinds
from tests.support.crawls import warc, wet

A, B, C = "https://www.one.co.uk/a", "http://news.one.co.uk:8080/b", "https://two.org/"
PAGES = [(A, "red green"), (B, "green blue"), (C, "blue gr\u00fcn"), (A, "red white")]


def spec(path, **options):
    return InputSpec.create([path], tokenizer="whitespace", **options)


def pairs(pages, user):
    return Counter((user(uri), word) for uri, text in pages for word in text.split())


def read_rows(chosen, file):
    """All rows of a crawl, from a file that is open."""
    piece = Piece(chosen.patterns[0], 0, 1 << 62)
    yield from chosen.file_format.read(piece, file, chosen, Kinds(None, ("string",)), Counts())


@pytest.mark.parametrize("name", ["x.warc.wet", "x.warc.wet.gz"])
@pytest.mark.parametrize(
    ("who", "user"),
    [
        ("page", str),
        ("host", {A: "www.one.co.uk", B: "news.one.co.uk", C: "two.org"}.get),
        ("domain", {A: "one.co.uk", B: "one.co.uk", C: "two.org"}.get),
    ],
)
def test_users_of_a_wet_file(read, tmp_path, name, who, user):
    (tmp_path / name).write_bytes(wet(PAGES, compressed=name.endswith(".gz")))
    assert read(spec(str(tmp_path / name), user=who)) == (pairs(PAGES, user), {})


def test_a_record_is_a_whole_user_where_told(read, tmp_path):
    (tmp_path / "x.wet.gz").write_bytes(wet(PAGES))
    users, dropped = read(spec(str(tmp_path / "x.wet.gz"), user="record"))
    assert users == [sorted(text.split()) for _, text in PAGES] and dropped == {}


@pytest.mark.parametrize(
    ("uri", "host", "domain"),
    [
        ("https://www.B\u00fccher.example.co.jp./x", "www.xn--bcher-kva.example.co.jp", "example.co.jp"),
        ("http://someone.github.io/x", "someone.github.io", "someone.github.io"),
        ("http://github.io/x", "github.io", "github.io"),
        ("http://192.0.2.7/x", "192.0.2.7", "192.0.2.7"),
        ("http://[2001:DB8::1]/x", "2001:db8::1", "2001:db8::1"),
        ("<http://user:word@Site.ORG:99/>", "site.org", "site.org"),
        ("http://localhost/", "localhost", "localhost"),
    ],
)
def test_hosts_and_domains(read, tmp_path, uri, host, domain):
    (tmp_path / "x.wet").write_bytes(wet([(uri, "word")], compressed=False))
    for who, user in (("host", host), ("domain", domain)):
        assert read(spec(str(tmp_path / "x.wet"), user=who))[0] == Counter({(user, "word"): 1})


def test_languages(read, tmp_path):
    path = str(tmp_path / "x.wet.gz")
    languages = {A: "eng,fra", B: "fra", C: ""}
    (tmp_path / "x.wet.gz").write_bytes(wet(PAGES, languages=languages))
    assert read(spec(path, languages=["fra"])) == (pairs(PAGES[1:2], str), {"filtered_pages": 3})
    pages = read(spec(path, languages=["eng", "fra"]))
    assert pages == (pairs([PAGES[0], PAGES[1], PAGES[3]], str), {"filtered_pages": 1})


PLAIN = [("Content-Type", "text/plain")]
HTML = (
    "<html><head><title>no</title><script>var no</script><style>.no{}</style></head><body><p>red <b>gr\u00fcn</b></p>"
    "<!-- no --><img alt='no'><ul><li>blue</ul></body></html>"
)


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("; charset=utf-8", HTML.encode()),
        ("; charset=ISO-8859-1", HTML.encode("latin-1")),
        ("", HTML.encode()),
        ("", HTML.replace("<head>", '<head><meta charset="utf-16le">').encode()),
        ("", HTML.replace("<head>", '<head><meta charset="windows-1252">').encode("cp1252")),
        ("; charset=no-such", HTML.encode()),
        ("; charset=ascii", HTML.encode()),
    ],
)
def test_visible_text_of_responses(read, tmp_path, charset, body):
    path = str(tmp_path / "x.warc.gz")
    (tmp_path / "x.warc.gz").write_bytes(warc([(A, body)], headers=[("Content-Type", f"text/html{charset}")]))
    assert read(spec(path)) == (pairs([(A, "red gr\u00fcn blue")], str), {})


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([("Content-Encoding", "gzip")], gzip.compress(b"red blue", mtime=0)),
        ([("Transfer-Encoding", "chunked")], b"5\r\nred b\r\n3\r\nlue\r\n0\r\n\r\n"),
    ],
)
def test_encoded_responses(read, tmp_path, headers, body):
    (tmp_path / "x.warc").write_bytes(warc([(A, body)], headers=[("Content-Type", "text/plain"), *headers]))
    with pytest.raises(InputError, match="is a gzip file"):
        read(spec(str(tmp_path / "x.warc")))
    (tmp_path / "x.warc").rename(tmp_path / "x.warc.gz")
    assert read(spec(str(tmp_path / "x.warc.gz")))[0] == pairs([(A, "red blue")], str)


def test_statuses_and_kinds_of_content(read, tmp_path):
    path = tmp_path / "x.warc.gz"
    path.write_bytes(
        warc([(A, b"red")], status="404 Not Found")
        + warc([(B, b"green")], headers=[("Content-Type", "image/png")])
        + warc([(C, b"blue")], headers=[("Content-Type", "Text/HTML")])
    )
    assert read(spec(str(path))) == (Counter({(C, "blue"): 1}), {"filtered_pages": 2})
    both = Counter({(A, "red"): 1, (C, "blue"): 1})
    assert read(spec(str(path), http_statuses=[404, 200])) == (both, {"filtered_pages": 1})


def bad_archives():
    """(name, archive of which every page but C is bad, what is wrong)."""
    good = warc([(C, b"blue")], compressed=False)
    one = warc([(A, b"secret")], compressed=False)
    no_user = wet([("mailto:nobody", "secret")], compressed=False)
    return {
        "no HTTP": ("warc", one.replace(b"HTTP/1.1 200 OK", b"HTTP_1.1 200 OK") + good, "no HTTP response"),
        "encoding": (
            "warc",
            warc([(A, b"secret")], compressed=False, headers=[*PLAIN, ("Content-Encoding", "gzip")]) + good,
            "its HTTP response cannot be decoded",
        ),
        "no URI": ("warc", one.replace(b"WARC-Target-URI", b"WARC-Target-XXX") + good, "no target URI"),
        "no host": ("wet", no_user + wet([(C, "blue")], compressed=False), "its target URI names no host"),
        "no UTF-8": ("wet", wet([(A, b"secret \xff"), (C, b"blue")], compressed=False), "not valid UTF-8"),
    }


@pytest.mark.parametrize("name", bad_archives())
def test_a_bad_page_is_an_error_or_counted(read, tmp_path, name):
    format, data, problem = bad_archives()[name]
    path = tmp_path / f"x.{format}"
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        read(spec(str(path), user="host"))
    assert f"x.{format}: record " in str(error.value) and problem in str(error.value)
    assert "secret" not in str(error.value)
    assert ("on_bad_row" in str(error.value)) == (name != "no UTF-8")  # there nearly all would be skipped
    pages = read(spec(str(path), user="host", on_bad_row="skip"))
    assert pages == (Counter({("two.org", "blue"): 1}), {"bad_rows": 1})


def test_a_page_too_large_is_passed_over_unread(read, tmp_path, monkeypatch):
    monkeypatch.setattr(crawl, "MAX_PAGE_BYTES", 1 << 20)
    path = tmp_path / "x.wet.gz"
    path.write_bytes(wet([(A, "secret " * 200_000), (C, "blue")]))
    with pytest.raises(InputError, match="record 2: a page of more than"):
        read(spec(str(path)))
    pages = read(spec(str(path), on_bad_row="skip"))
    assert pages == (Counter({(C, "blue"): 1}), {"bad_rows": 1})
    bomb = gzip.compress(b"x" * (3 << 20))
    headers = [("Content-Type", "text/plain"), ("Content-Encoding", "gzip")]
    (tmp_path / "x.warc.gz").write_bytes(warc([(A, bomb)], headers=headers))
    with pytest.raises(InputError, match="record 3: a page of more than"):
        read(spec(str(tmp_path / "x.warc.gz")))


@pytest.mark.parametrize("format", ["wet", "warc"])
@pytest.mark.parametrize("compressed", [False, True])
def test_no_file_cut_off_anywhere_is_taken_for_whole(tmp_path, format, compressed):
    """Whatever is done with bad rows: only what ends where a record does is a file."""
    pages = [(A, b"red\r\n\r\ngreen\r\n\r\n"), (C, b"blue")]
    data = (wet if format == "wet" else warc)(pages, compressed=compressed)
    path = tmp_path / f"x.{format}{'.gz' if compressed else ''}"
    mark = b"\x1f\x8b\x08" if compressed else b"WARC/1.0\r\n"
    starts = [at for at in range(1, len(data)) if data.startswith(mark, at)]
    assert len(starts) == (2 if format == "wet" else 6)
    whole = []
    near = {start + step for start in starts for step in range(-6, 7)}
    for end in sorted({*range(1, len(data), 7), *near}):
        path.write_bytes(data[:end])
        chosen = spec(str(path), on_bad_row="skip")
        try:
            with open_input(str(path)) as file:
                list(read_rows(chosen, file))
            whole.append(end)
        except InputError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)
    assert whole == starts


@settings(max_examples=60)
@given(
    changes=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 200),
)
def test_damaged_files_are_read_or_refused(tmp_path_factory, changes, cut):
    data = bytearray(warc([(A, b"red"), (C, b"blue")], compressed=False))
    for at, byte in changes:
        data[at % len(data)] = byte
    path = tmp_path_factory.mktemp("crawl") / "x.warc"
    path.write_bytes(data[: len(data) - cut])
    try:
        with open_input(str(path)) as file:
            list(read_rows(spec(str(path)), file))
    except InputError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"user": "person"}, "--user: expected one of record, page, host, domain"),
        ({"languages": ["en"]}, "--language: expected three small letters"),
        ({"http_statuses": [200]}, "--http_status: is for --input_format=warc, not wet"),
        ({"user_column": "u"}, "--user_column: wet has no columns: use --user"),
        ({"text_layout": "line"}, "--text_layout: is for --input_format=text, not wet"),
    ],
)
def test_flags_of_crawls(options, problem):
    with pytest.raises(InputError) as error:
        spec("x.warc.wet.gz", **options)
    assert str(error.value).startswith(problem)


def test_flags_of_other_formats():
    with pytest.raises(InputError, match="--user: is for --input_format=wet or warc, not text"):
        spec("x.txt", user="page")
    with pytest.raises(InputError, match=r"--language: is for --input_format=wet.*, not warc"):
        spec("x.warc.gz", languages=["eng"])
    with pytest.raises(InputError, match=r"--http_status: must lie in \[100, 599\], got 20"):
        spec("x.warc.gz", http_statuses=[20])


def test_what_is_no_crawl(read, tmp_path, write_file):
    with pytest.raises(InputError, match="is not a WET file: it does not begin like one"):
        read(spec(write_file("x.wet", "hello\n")))
    assert read(spec(write_file("empty.wet", ""))) == (Counter(), {})


def test_the_extra_is_named_where_it_is_missing(read, tmp_path, monkeypatch):
    (tmp_path / "x.wet").write_bytes(wet(PAGES, compressed=False))
    monkeypatch.setitem(__import__("sys").modules, "publicsuffixlist", None)
    with pytest.raises(InputError, match=r"publicsuffixlist: pip install 'dpbeam\[warc\]'"):
        read(spec(str(tmp_path / "x.wet")))
