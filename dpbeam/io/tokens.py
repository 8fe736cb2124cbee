"""Tokenisers: from documents to tokens and n-grams, vectorised over the bytes of many documents at once.

- `words`: runs of letters, digits, marks and underscores of any script (Python's `\\w` and the Unicode categories M*,
  without which Indic words fall apart); one apostrophe (' or U+2019) between two such characters belongs to the word.
- `whitespace`: runs of characters that are not white space, as Python's `str.split`.
- `regex`: Python's `re`; the match, or its group where the pattern has one. Empty tokens are dropped and counted.

`lowercase` applies the one-to-one lower-case mapping of Unicode before tokenising. An n-gram is n successive
tokens of one document, joined by one space. Nothing is normalised: canonically equivalent strings stay different.

`words` and `whitespace` look at each byte a constant number of times in numpy: ASCII through a table of 256, other
characters by decoding their code points and one table lookup each.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.kernels.canonical import bytes_views, slices_of

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

_APOSTROPHE = 0x27
_QUOTE = b"\xe2\x80\x99"  # U+2019


class Tokenizer:
    """Documents -> tokens, as an `InputSpec` says."""

    def __init__(self, spec: InputSpec):
        if spec.tokenizer is None:
            raise ValueError("spec.tokenizer is not set")
        self._name = spec.tokenizer
        self._lowercase = spec.lowercase
        self._ngrams = spec.ngrams
        self._pattern: re.Pattern[str] | None = None
        if spec.token_pattern is not None and spec.tokenizer == "regex":
            self._pattern = re.compile(spec.token_pattern)

    def __call__(self, documents: pa.Array) -> tuple[np.ndarray, pa.Array, int]:
        """Tokens of every document, in order.

        Args:
          documents: (n,) large_binary, valid UTF-8, no nulls.

        Returns:
          (t,) int64 document of each token, ascending; (t,) large_binary tokens; number of empty tokens dropped.
        """
        if self._lowercase:
            documents = pc.utf8_lower(documents.view(pa.large_string())).view(pa.large_binary())
        if self._pattern is not None:
            document, tokens, empty = _matches(self._pattern, documents)
        else:
            document, tokens = self._runs(documents)
            empty = 0
        document, tokens = ngrams(document, tokens, *self._ngrams)
        return document, tokens, empty

    def _runs(self, documents: pa.Array) -> tuple[np.ndarray, pa.Array]:
        offsets, data = bytes_views(documents)
        member = self._members(offsets, data)
        bounded = member.copy()
        bounded[1:] &= ~member[:-1]
        starts_of_documents = offsets[:-1][np.diff(offsets) > 0]
        bounded[starts_of_documents] = member[starts_of_documents]
        starts = np.flatnonzero(bounded)
        # All bytes of the tokens, side by side; a token ends where the next begins.
        token_bytes = data[member]
        position = np.cumsum(member, dtype=np.int64)
        token_offsets = np.append(position[starts] - 1, len(token_bytes))
        document = np.searchsorted(offsets, starts, side="right") - 1
        return document, slices_of(token_offsets, token_bytes)

    def _members(self, offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
        """(m,) bool: whether each byte belongs to a token."""
        table = word_characters() if self._name == "words" else non_spaces()
        member = table[:256][data]
        if data.size and data.max() >= 0x80:
            _classify_wide(data, table, member)
        if self._name == "words":
            _join_apostrophes(offsets, data, member)
        return member


def _classify_wide(data: np.ndarray, table: np.ndarray, member: np.ndarray) -> None:
    """Set `member` for all bytes of the characters beyond ASCII."""
    for low, high, mask, width in ((0xC0, 0xE0, 0x1F, 2), (0xE0, 0xF0, 0x0F, 3), (0xF0, 0xF8, 0x07, 4)):
        lead = np.flatnonzero((data >= low) & (data < high))
        if not len(lead):
            continue
        code = (data[lead] & mask).astype(np.int32)
        for k in range(1, width):
            code = code << 6 | (data[lead + k] & 0x3F)
        value = table[code]
        for k in range(width):
            member[lead + k] = value


def _join_apostrophes(offsets: np.ndarray, data: np.ndarray, member: np.ndarray) -> None:
    """Make an apostrophe between two word characters of one document part of the word."""
    joined = []
    for width, at in ((1, np.flatnonzero(data == _APOSTROPHE)), (3, _quotes(data))):
        at = at[(at > 0) & (at + width < len(data))]
        at = at[member[at - 1] & member[at + width]]
        if len(at):
            document = np.searchsorted(offsets, at, side="right")
            at = at[(offsets[document - 1] < at) & (at + width < offsets[document])]
        joined += [at + k for k in range(width)]
    for at in joined:
        member[at] = True


def _quotes(data: np.ndarray) -> np.ndarray:
    at = np.flatnonzero(data == _QUOTE[0])
    at = at[at + 2 < len(data)]
    return at[(data[at + 1] == _QUOTE[1]) & (data[at + 2] == _QUOTE[2])]


@functools.cache
def word_characters() -> np.ndarray:
    """(1114112,) bool: code points that `words` takes as part of a word. Entries of 128..255 serve no raw byte."""
    return _table(lambda c: c.isalnum() or c == "_" or unicodedata.category(c)[0] == "M")


def _matches(pattern: re.Pattern[str], documents: pa.Array) -> tuple[np.ndarray, pa.Array, int]:
    by_document = [pattern.findall(text) for text in documents.view(pa.large_string()).to_pylist()]
    counts = np.fromiter(map(len, by_document), np.int64, len(by_document))
    tokens = pa.array([token for tokens in by_document for token in tokens], pa.large_string())
    document = np.repeat(np.arange(len(by_document), dtype=np.int64), counts)
    full = pc.greater(pc.binary_length(tokens), 0)
    kept = tokens.filter(full)
    empty = len(tokens) - len(kept)
    if empty:
        document = document[full.to_numpy(zero_copy_only=False)]
    return document, kept.view(pa.large_binary()), empty


@functools.cache
def non_spaces() -> np.ndarray:
    """(1114112,) bool: code points that are not white space."""
    return _table(lambda c: not c.isspace())


def _table(belongs: Callable[[str], bool]) -> np.ndarray:
    return np.fromiter((belongs(chr(c)) for c in range(sys.maxunicode + 1)), bool, sys.maxunicode + 1)


def ngrams(document: np.ndarray, tokens: pa.Array, low: int, high: int) -> tuple[np.ndarray, pa.Array]:
    """Sequences of `low` to `high` successive tokens of one document, joined by a space.

    Args:
      document: (t,) int64, ascending; tokens: (t,) large_binary.

    Returns:
      (g,) int64 document of each n-gram, ascending; (g,) large_binary n-grams.
    """
    if (low, high) == (1, 1):
        return document, tokens
    space = pa.scalar(b" ", pa.large_binary())
    documents, grams = [document[:0]], [tokens.slice(0, 0)]
    for n in range(low, high + 1):
        last = len(tokens) - n + 1
        if last <= 0:
            break
        whole = pa.array(document[:last] == document[n - 1 :])
        parts = [tokens.slice(k, last).filter(whole) for k in range(n)]
        grams.append(pc.binary_join_element_wise(*parts, space) if n > 1 else parts[0])
        documents.append(document[:last][whole.to_numpy(zero_copy_only=False)])
    result, gram = np.concatenate(documents), pa.concat_arrays(grams)
    if low < high:
        order = np.argsort(result, kind="stable")
        result, gram = result[order], gram.take(pa.array(order))
    return result, gram
