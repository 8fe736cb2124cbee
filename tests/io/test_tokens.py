"""Tokenisers against plain Python on any text."""

import re
import unicodedata

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.io.spec import InputSpec
from dpbeam.io.tokens import Tokenizer

# Any character, with the interesting ones often: letters, marks, apostrophes, spaces of several widths.
CHARACTERS = st.one_of(
    st.sampled_from("ab'’_1 \t\n\r\x1c\u00a0\u3000éЖ字😀\u0301\u0928\u0940-.\ufeff\u2028İ"),
    st.characters(codec="utf-8"),
)
DOCUMENTS = st.lists(st.text(CHARACTERS, max_size=20), max_size=8)


def tokenize(documents, **options):
    """[(document, token)], number of empty tokens."""
    tokenizer = Tokenizer(InputSpec.create(["a.txt"], **options))
    document, tokens, empty = tokenizer(pa.array([d.encode() for d in documents], pa.large_binary()))
    assert document.dtype == "int64" and tokens.type == pa.large_binary() and len(document) == len(tokens)
    return [(int(d), t.decode()) for d, t in zip(document, tokens.to_pylist())], empty


def plain_words(text):
    def member(c):
        return c.isalnum() or c == "_" or unicodedata.category(c).startswith("M")

    tokens, token = [], ""
    for i, c in enumerate(text):
        inner = c in "'’" and 0 < i < len(text) - 1 and member(text[i - 1]) and member(text[i + 1])
        if member(c) or inner:
            token += c
        elif token:
            tokens.append(token)
            token = ""
    return [*tokens, token] if token else tokens


@settings(max_examples=100)
@given(DOCUMENTS)
def test_words(documents):
    expected = [(d, token) for d, text in enumerate(documents) for token in plain_words(text)]
    assert tokenize(documents, tokenizer="words") == (expected, 0)


@settings(max_examples=100)
@given(DOCUMENTS)
def test_whitespace(documents):
    expected = [(d, token) for d, text in enumerate(documents) for token in text.split()]
    assert tokenize(documents, tokenizer="whitespace") == (expected, 0)


@settings(max_examples=60)
@given(DOCUMENTS, st.sampled_from([r"\w+", r"a*", r"(\w)b?", r"[^ ]+$"]))
def test_regex(documents, pattern):
    by_hand = [(d, token) for d, text in enumerate(documents) for token in re.findall(pattern, text)]
    expected = [(d, token) for d, token in by_hand if token]
    assert tokenize(documents, token_pattern=pattern) == (expected, len(by_hand) - len(expected))


def test_words_by_example():
    text = "Don't stop: ’tis o’clock, rock'n'roll 'quoted' snake_case x² naïve हिन्दी 3.14"
    assert [token for _, token in tokenize([text])[0]] == (
        [
            "Don't",
            "stop",
            "tis",
            "o’clock",
            "rock'n'roll",
            "quoted",
            "snake_case",
            "x²",
            "naïve",
            "हिन्दी",
            "3",
            "14",
        ]
    )


def test_documents_do_not_run_together():
    assert tokenize(["ab", "cd", "", "e'", "f"])[0] == [(0, "ab"), (1, "cd"), (3, "e"), (4, "f")]
    assert tokenize(["a'", "'b", "c", "’", "d"])[0] == [(0, "a"), (1, "b"), (2, "c"), (4, "d")]


def test_lowercase_is_one_to_one():
    assert tokenize(["ÀB ΣΑΣ"], lowercase=True)[0] == [(0, "àb"), (0, "σασ")]
    tokens, _ = tokenize(["İI", "x"], lowercase=True)
    assert tokens[-1] == (1, "x")


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "cc"]), max_size=6), max_size=5),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_ngrams(documents, low, more):
    expected = [
        (d, " ".join(tokens[i : i + n]))
        for d, tokens in enumerate(documents)
        for n in range(low, low + more + 1)
        for i in range(len(tokens) - n + 1)
    ]
    texts = [" ".join(tokens) for tokens in documents]
    grams, _ = tokenize(texts, tokenizer="whitespace", ngrams=(low, low + more))
    assert grams == expected


def test_one_group_gives_its_text():
    assert tokenize(["#tag #x no"], token_pattern=r"#(\w+)")[0] == [(0, "tag"), (0, "x")]
