"""Keys, fingerprints and pseudo-random bits."""

import copy
import hashlib
import pickle

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.randomness import KEY_BYTES, RunKey, fingerprints, pair_bits, prf_bits
from tests.support.forks import in_fork
from tests.support.statistics import FALSE_ALARM, binomial_p

KEY = bytes(range(32))
LENGTHS = [*range(41), 127, 128, 1023, 1024]


def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def slow_fingerprint(key: bytes, text: bytes) -> tuple[int, int]:
    """CBC-MAC from its definition: blocks of 8 + 4 bytes of text and the length, then of 16 bytes, zero-padded."""
    head = text[:12].ljust(12, b"\0") + len(text).to_bytes(4, "little")
    blocks = [head] + [text[at : at + 16].ljust(16, b"\0") for at in range(12, len(text), 16)]
    state = bytes(16)
    for block in blocks:
        state = aes(key, bytes(a ^ b for a, b in zip(state, block)))
    return int.from_bytes(state[:8], "little"), int.from_bytes(state[8:], "little")


def text_of(length: int, seed: int = 0) -> bytes:
    return np.random.default_rng([length, seed]).bytes(length)


def as_tuples(fp: np.ndarray) -> list[tuple[int, int]]:
    assert fp.dtype == np.uint64
    return [tuple(map(int, row)) for row in fp]


def test_fingerprints_equal_cbc_mac_at_every_length():
    texts = [text_of(n, s) for n in LENGTHS for s in range(3)]
    expected = [slow_fingerprint(KEY, text) for text in texts]
    assert as_tuples(fingerprints(KEY, pa.array(texts, pa.binary()))) == expected
    assert as_tuples(fingerprints(KEY, pa.array(texts, pa.large_binary()))) == expected


@given(st.lists(st.binary(max_size=80), max_size=12), st.binary(min_size=32, max_size=32))
def test_fingerprints_equal_cbc_mac(texts, key):
    hashed = fingerprints(key, pa.array(texts, pa.large_binary()))
    assert hashed.shape == (len(texts), 2)
    assert as_tuples(hashed) == [slow_fingerprint(key, text) for text in texts]


def test_strings_and_bytes_share_fingerprints_in_all_four_types():
    texts = ["", "a", "é" * 30, "wörd", "x" * 2000, "日本語のとても長い文字列です"]
    expected = as_tuples(fingerprints(KEY, pa.array([t.encode() for t in texts], pa.binary())))
    for kind in (pa.string(), pa.large_string()):
        assert as_tuples(fingerprints(KEY, pa.array(texts, kind))) == expected
    assert len(set(expected)) == len(texts)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_sliced_arrays(kind):
    texts = [text_of(n) for n in (3, 0, 40, 12, 1500, 13, 28, 8)]
    array = pa.array(texts, kind)
    whole = as_tuples(fingerprints(KEY, array))
    for start in range(len(texts) + 1):
        for stop in range(start, len(texts) + 1):
            part = array.slice(start, stop - start)
            assert as_tuples(fingerprints(KEY, part)) == whole[start:stop]


def test_long_strings_depend_on_key_and_every_byte():
    text = text_of(5000)
    changed = [text[:i] + bytes([text[i] ^ 1]) + text[i + 1 :] for i in (0, 999, 1024, 4999)]
    texts = [text, text[:-1], text + b"\0", text[:1024], text[:1025], *changed]
    hashed = as_tuples(fingerprints(KEY, pa.array(texts, pa.binary())))
    assert len(set(hashed)) == len(texts)
    assert hashed[0] == as_tuples(fingerprints(KEY, pa.array([text], pa.large_binary())))[0]
    assert hashed[0] != as_tuples(fingerprints(bytes(32), pa.array([text])))[0]
    # Not the AES key itself: two primitives never share one.
    shared = hashlib.blake2b(text, digest_size=16, key=KEY, person=b"dpbeam long").digest()
    assert np.frombuffer(shared, np.uint64).tolist() != list(hashed[0])


def test_prefixes_and_zero_padding_do_not_collide():
    """Every prefix of a text, and every prefix followed by zero bytes, has a fingerprint of its own."""
    texts = {bytes(n) for n in range(60)}
    for fill in (b"\0", b"a", b"\xff"):
        texts |= {fill * n for n in range(60)}
        texts |= {fill * n + bytes(m) for n in (1, 7, 8, 11, 12, 13, 27, 28, 29) for m in range(40)}
    # A text whose first twelve bytes and length look like those of another text's later block.
    texts |= {b"\0" * 12 + (12).to_bytes(4, "little"), b"\0" * 12}
    assert len(set(as_tuples(fingerprints(KEY, pa.array(sorted(texts), pa.binary()))))) == len(texts)


def test_nulls_and_other_types_are_refused():
    with pytest.raises(ValueError, match="cannot fingerprint nulls"):
        fingerprints(KEY, pa.array(["a", None]))
    with pytest.raises(TypeError, match="cannot fingerprint values of type int64"):
        fingerprints(KEY, pa.array([1, 2]))
    assert fingerprints(KEY, pa.array([], pa.string())).shape == (0, 2)


def test_prf_bits_are_aes_of_each_fingerprint_wherever_it_stands():
    rng = np.random.default_rng(1)
    fp = rng.integers(0, 2**64, (50, 2), np.uint64)
    bits = prf_bits(KEY, fp)
    expected = [aes(KEY, row.tobytes()) for row in fp]
    assert [row.tobytes() for row in bits] == expected
    order = rng.permutation(50)[:20]
    assert (prf_bits(KEY, fp[order]) == bits[order]).all()  # subsets, retries and orders see the same bits
    assert (prf_bits(KEY, fp[::2]) == bits[::2]).all()  # not contiguous
    assert prf_bits(KEY, fp[:0]).shape == (0, 2)


def test_pair_bits_are_cbc_mac_of_user_and_item():
    rng = np.random.default_rng(2)
    user, item = (rng.integers(0, 2**64, (20, 2), np.uint64) for _ in range(2))
    expected = [
        aes(KEY, bytes(a ^ b for a, b in zip(aes(KEY, u.tobytes()), i.tobytes()))) for u, i in zip(user, item)
    ]
    assert [row.tobytes() for row in pair_bits(KEY, user, item)] == expected
    for count in (0, 7, 3 * 2**16 // 2):  # pairs by their rows, also more than are encrypted at once
        of_user, of_item = rng.integers(0, 20, (2, count))
        bits = pair_bits(KEY, user, item, of_user, of_item)
        np.testing.assert_array_equal(bits, pair_bits(KEY, user[of_user], item[of_item]))
    assert (pair_bits(KEY, item, user) != pair_bits(KEY, user, item)).any(axis=1).all()  # roles differ


def test_labels_and_keys_give_unrelated_bits():
    """Bits of two labels agree in half of their positions: each of three comparisons false alarms below 1e-9."""
    run, fp = RunKey.insecure_fixed("labels"), np.arange(20_000, dtype=np.uint64).reshape(-1, 2)
    first = prf_bits(run.derive("noise/round 1"), fp)
    for other in (
        prf_bits(run.derive("noise/round 2"), fp),
        prf_bits(RunKey.insecure_fixed("other").derive("noise/round 1"), fp),
        np.zeros_like(first),
    ):
        equal = 64 * first.size - int(np.unpackbits((first ^ other).view(np.uint8)).sum())
        assert binomial_p(equal, 64 * first.size, 0.5) > FALSE_ALARM
        assert binomial_p(equal, 64 * first.size, 0.505) < FALSE_ALARM


def test_derived_keys_are_deterministic_and_distinct():
    run = RunKey.insecure_fixed("text")
    assert run.derive("a") == RunKey.insecure_fixed("text").derive("a")
    labels = ["", "a", "b", "a/b", "noise/round 1", "noise/round 11", "sample/round 1", "sample"]
    assert len({run.derive(label) for label in labels}) == len(labels)
    assert all(len(run.derive(label)) == KEY_BYTES for label in labels)
    assert run.derive("a") != RunKey.insecure_fixed("other").derive("a")


def test_fresh_keys_come_from_the_operating_system_and_never_repeat():
    keys = {RunKey.fresh().secret_bytes() for _ in range(100)}
    assert len(keys) == 100
    assert not RunKey.fresh().insecure
    assert RunKey.insecure_fixed("x").insecure


def test_key_never_shows_and_never_travels():
    for run in (RunKey.fresh(), RunKey.insecure_fixed("x")):
        secret = run.secret_bytes()
        for text in (repr(run), str(run), f"{run}", "%s" % (run,), repr([run]), repr({"key": run})):  # noqa: UP031
            assert secret.hex() not in text
            assert repr(secret) not in text
            assert "secret" in text or "NOT PRIVATE" in text
        for travel in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="must not be pickled"):
                travel(run)
        assert not hasattr(run, "__dict__")


class TestSpending:
    def test_a_forked_process_gets_none_that_was_made_before(self):
        key = RunKey.fresh()
        assert "or was made from bytes that may have, or before this process was forked" in in_fork(key.spend)
        key.spend()
        with pytest.raises(ValueError, match="this key has served a run"):
            key.spend()
        assert in_fork(lambda: RunKey.fresh().spend()) == ""

    def test_fixed_keys_of_tests_serve_whoever_asks(self):
        key = RunKey.insecure_fixed("x")
        key.spend(), key.spend()
        assert in_fork(key.spend) == ""


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_key_length_is_checked(length):
    with pytest.raises(ValueError, match=f"a run key has 32 bytes, got {length}"):
        RunKey(bytes(length))
