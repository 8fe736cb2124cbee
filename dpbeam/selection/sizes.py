"""How many user blocks and item shards a job gets. Released items do not depend on either."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpbeam.kernels.relays import Relays

# Measured on 1 to 30 million pairs: blocks of about a million pairs keep a worker near 200 MB, and messages of
# fewer than ten thousand links cost more in overhead than they carry.
PAIRS_PER_BLOCK = 1_000_000
LINKS_PER_MESSAGE = 10_000
# A process wants no more tasks than these. With messages of twice the size 10^9 pairs took 2.1 GB and no less CPU.
LINKS_IN_PROCESS = 15_000
LINKS_PER_PAIR = 0.25
# In one step small arrays stay in the cache: 7 million pairs with rare items as 8 blocks took a twentieth more CPU than
# as 16. More blocks have more links: 72 million pairs with common items as 145 took a sixth more than as 29.
PAIRS_IN_STEP, BLOCKS_IN_STEP = 500_000, 20
MAX_PAIRS_IN_STEP = 2_500_000
# In one process all blocks at once take a tenth more memory, and a trip without stages and messages half of the CPU.
PAIRS_IN_PROCESS = 10_000_000
TEXT_IN_PROCESS = 256_000_000
# Bytes for each of more pairs than these, measured on 7 to 74 million; text lies there once, and what is read twice.
# Where no user and no item comes twice it is up to 2.3 times as much in all (20 million pairs; mad2r, gsu, top-k).
ROOM_PER_PAIR = 72
ROOM_PER_TEXT = 2
# Larger data take larger blocks, which have fewer links and need no second split: a worker needs up to 600 MB.
BLOCKS = 300
MAX_PAIRS_PER_BLOCK = 4_000_000
# A worker numbers the items of a shard's links at once, at about 100 bytes a link: 1 GB. Above 10^9 pairs this bound
# decides; messages become smaller than they should, which costs less than a worker that dies.
LINKS_PER_SHARD = 10_000_000
# Long items: a worker holds the text of a block's pairs, or of a shard's links, three or four times.
TEXT_PER_BLOCK = 128_000_000
TEXT_PER_SHARD = 200_000_000
# A message and its reply cost 0.15 ms of CPU, as much as 300 links (docs/reference/scaling.md). Full blocks and
# shards with so many messages a trip, at 1.3 x 10^11 pairs, have 300 links in common, and fewer with more pairs:
# from there on relays stand between them.
DIRECT_MESSAGES = 100_000_000
MIN_PARALLELISM = 4
MAX_BLOCKS = 1 << 20
DEFAULT_PAIRS = 8_000_000


@dataclass(frozen=True)
class Sizes:
    """Numbers of user blocks and item shards.

    Attributes:
      one_step: all blocks together fit one worker, which then runs all trips without the engine.
    """

    num_blocks: int
    num_shards: int
    one_step: bool = False

    @property
    def relays(self) -> Relays | None:
        """What stands between blocks and shards; None where they speak directly."""
        return choose_relays(self.num_blocks, self.num_shards)


def choose_relays(num_blocks: int, num_shards: int) -> Relays | None:
    """Relays between so many blocks and shards; None where their messages are few enough.

    With G groups of blocks and R ranges of shards a trip takes blocks x R + G x shards messages. A relay has
    links / (G x R) links, no more than a shard if G x R is the number of shards; then the sum is smallest with
    G = sqrt(blocks).
    """
    if num_blocks * num_shards <= DIRECT_MESSAGES:
        return None
    groups = math.isqrt(num_blocks)
    return Relays(num_shards, groups, min(math.ceil(num_shards / groups), num_shards))


def items_within(text: int, item_bytes: float | None) -> float:
    """How many items of `item_bytes` each (None: short ones, a byte) have so much text."""
    return text / max(item_bytes or 0, 1)


def choose_sizes(
    pairs: int | None,
    num_shards: int | None = None,
    item_bytes: float | None = None,
    *,
    in_process: bool = False,
    room: int = 0,
) -> Sizes:
    """Block and shard counts for an estimated number of (user, item) pairs (None: unknown).

    Memory per worker is one block or one shard. docs/reference/scaling.md says what that means for 4.3e10 and 7.8e11
    pairs.

    Args:
      num_shards: the caller's choice of the number of shards; taken for the blocks too where that is more. The
        engine then runs every trip, however few the pairs are.
      item_bytes: bytes of an item, on average over the pairs; None: short ones.
      in_process: the engine is Beam's in-process runner, whose worker has the memory of the whole job.
      room: bytes of memory that it may take for more pairs than it would take anyway. `pairs` is no guess then.
    """
    known = pairs is not None and num_shards is None
    pairs = DEFAULT_PAIRS if pairs is None else max(pairs, 1)
    held, text = (PAIRS_IN_PROCESS, TEXT_IN_PROCESS) if in_process else (PAIRS_PER_BLOCK, TEXT_PER_BLOCK)
    one_step = known and pairs <= min(held, items_within(text, item_bytes))
    most = min(MAX_PAIRS_PER_BLOCK, items_within(TEXT_PER_BLOCK, item_bytes))
    if not one_step and known and item_bytes is not None:
        one_step = pairs * (ROOM_PER_PAIR + ROOM_PER_TEXT * item_bytes) <= room
    few, many, largest = PAIRS_PER_BLOCK, BLOCKS, most
    if one_step:
        few, many, largest = PAIRS_IN_STEP, BLOCKS_IN_STEP, min(most, MAX_PAIRS_IN_STEP)
    blocks = max(min(math.ceil(pairs / few), many), math.ceil(pairs / largest))
    blocks = max(blocks, min(MIN_PARALLELISM, math.ceil(pairs / 50_000)))
    if MIN_PARALLELISM < blocks < BLOCKS:  # so that two or four workers end a stage together
        blocks = math.ceil(blocks / MIN_PARALLELISM) * MIN_PARALLELISM
    blocks = min(blocks, MAX_BLOCKS)
    if num_shards is not None:
        return Sizes(max(blocks, num_shards), num_shards)
    links = pairs * LINKS_PER_PAIR
    per_shard = min(LINKS_PER_SHARD, items_within(TEXT_PER_SHARD, item_bytes))
    per_message = LINKS_IN_PROCESS if in_process else LINKS_PER_MESSAGE
    shards = max(round(links / blocks / per_message), math.ceil(links / per_shard))
    return Sizes(blocks, max(1, min(blocks, shards)), one_step)
