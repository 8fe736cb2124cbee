"""Messages between stages: small ones travel through the engine's shuffle, large ones lie in the run's folder.

An engine holds what passes its shuffles several times: the messages of one group on its heap, what is on its way to a
worker outside of it, and on Flink and Spark the worker its share of all that a stage sends. None of that can spill. So
a message of `inline_bytes` or more goes into a file, one for all large messages of a sender, and a reference takes its
place: memory then is that of the group at work, whatever the size of the shuffle.

A file has a name of its own for every attempt to send, and is complete before a reference to it leaves: a retry
repeats the messages and never touches what an earlier attempt has sent. Files stay until the end of the run, for the
retries of those who read them; but the pairs on their way to blocks, a third of a folder, go once all blocks are stored
(`let_pairs_go`): who reads them again takes the stored block.

Where all steps are made in one process with room for all (`RunStore.in_memory`), a message is handed over as it is.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dpbeam.engine.ahead import few_ahead
from dpbeam.engine.beam.store import RunStore
from dpbeam.kernels.columns import Columns, decode, encode

#: Below it, a request to an object store costs much more than the bytes; an engine queues a hundred messages.
INLINE_BYTES = 1 << 16
#: To read a piece of a local file takes less than an engine's work for an element. Beam's in-process runner holds all
#: inline messages of a trip three times over: with 10^9 pairs they are 25,000, in late rounds of less than 16 kB.
LOCAL_INLINE_BYTES = 1 << 12
FILE_PREFIX = "sent-"
PAIRS_PREFIX = f"{FILE_PREFIX}pairs-"
#: Stands for pairs that were let go before they could be sent on.
PAIRS_GONE = b"\x00gone"
_PAIRS_GONE_FILE = "pairs-gone"
_REFERENCE = b"\x00file "  # a message begins with the mark of a map
_HANDED_OVER = b"\x00held "
_REQUESTS = 16  # at once, to a store that takes milliseconds to answer


class PairsGoneError(Exception):
    """Pairs on their way to blocks were let go: every block of the run is stored."""


def replies_prefix(trip: int) -> str:
    """Files of what shards reply to blocks on a trip: the next job may read them."""
    return f"{FILE_PREFIX}replies-{trip}-"


def inline_bytes(store: RunStore) -> int:
    """Messages below this size travel through the engine's shuffle."""
    return min(INLINE_BYTES, LOCAL_INLINE_BYTES) if store.is_near else INLINE_BYTES


def send(
    store: RunStore,
    messages: Iterable[tuple[int, Any]],
    prefix: str = FILE_PREFIX,
    pack: Callable[[Any], Columns] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """(receiver, columns) messages as elements for a shuffle; large ones come last, as references.

    Args:
      prefix: how their file is called, before a name of its own.
      pack: makes the columns of a message, of another type; not called where it stays in memory.
    """
    if store.in_memory:
        for receiver, message in messages:
            yield receiver, _HANDED_OVER + store.hand_over(message).encode()
        return
    name = prefix + uuid.uuid4().hex
    references = []
    limit = inline_bytes(store)
    with store.create(name) as file:
        for receiver, message in messages:
            data = encode(pack(message) if pack else message)
            if len(data) < limit:
                yield receiver, data
                continue
            references.append((receiver, *file.write(data)))
    for receiver, offset, size in references:
        yield receiver, _REFERENCE + f"{offset} {size} {name}".encode()


def receive(
    store: RunStore,
    elements: Iterable[bytes],
    unpack: Callable[[Columns], Any] | None = None,
    packed: Callable[[str], bool] | None = None,
) -> Iterator[Any]:
    """The columns of elements that `send` made, in their order.

    Args:
      unpack: inverse of `pack`; messages are then what it returns.
      packed: see `decode`.

    Raises:
      OSError: a file with messages is gone or too short.
      PairsGoneError: it held pairs that were let go.
    """
    if store.is_near:
        yield from (_open(store, element, unpack, packed) for element in elements)
        return
    with ThreadPoolExecutor(_REQUESTS) as pool:
        yield from few_ahead(
            pool, _REQUESTS + 1, functools.partial(_open, store, unpack=unpack, packed=packed), elements
        )


def let_pairs_go(store: RunStore) -> None:
    """Remove the pairs that were sent to blocks: every block of the run is stored."""
    _let_pairs_go_once(store.path, store.encrypted)


@functools.lru_cache(maxsize=4)
def _let_pairs_go_once(path: str, encrypted: bool) -> None:
    """A worker lists the folder once, not for every shard: what a retry sends later on stays."""
    store = RunStore(path, encrypted=encrypted)
    sent = store.names(PAIRS_PREFIX)
    if sent:
        store.write(_PAIRS_GONE_FILE, {})  # before: what cannot be read is then known to be needed by nobody
        store.remove(sent)


def pairs_gone(store: RunStore) -> bool:
    """Whether pairs were let go: every block is stored."""
    return store.exists(_PAIRS_GONE_FILE)


def _open(
    store: RunStore,
    element: bytes,
    unpack: Callable[[Columns], Any] | None,
    packed: Callable[[str], bool] | None,
) -> Any:
    if element == PAIRS_GONE:
        raise PairsGoneError
    if element.startswith(_HANDED_OVER):
        return store.take(element[len(_HANDED_OVER) :].decode())
    if element.startswith(_REFERENCE):
        offset, size, name = element[len(_REFERENCE) :].decode().split(" ")
        try:
            element = store.read_range(name, int(offset), int(size))
        except OSError:
            if name.startswith(PAIRS_PREFIX) and pairs_gone(store):
                raise PairsGoneError from None
            raise
    columns = decode(element, packed)
    return unpack(columns) if unpack else columns
