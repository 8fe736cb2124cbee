"""How many user blocks and item shards a job gets. Released items do not depend on either."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Measured on 1 to 30 million pairs: blocks of about a million pairs keep a worker near 200 MB, and messages of
# fewer than ten thousand links cost more in overhead than they carry.
PAIRS_PER_BLOCK = 1_000_000
LINKS_PER_MESSAGE = 10_000
LINKS_PER_PAIR = 0.25
MIN_PARALLELISM = 4
MAX_BLOCKS = 1 << 20
DEFAULT_PAIRS = 8_000_000


@dataclass(frozen=True)
class Sizes:
    """Numbers of user blocks and item shards."""

    num_blocks: int
    num_shards: int


def choose_sizes(pairs: int | None, num_shards: int | None = None) -> Sizes:
    """Block and shard counts for an estimated number of (user, item) pairs (None: unknown).

    Memory per worker is one block or one shard. A shard holds about pairs * 0.25 / shards links of 4 bytes, plus
    its items; at 10^9 pairs the rule gives 1,000 blocks and 25 shards of 10^7 links.

    Args:
      num_shards: the caller's choice of the number of shards; taken for the blocks too where that is more.
    """
    pairs = DEFAULT_PAIRS if pairs is None else max(pairs, 1)
    blocks = min(
        max(math.ceil(pairs / PAIRS_PER_BLOCK), min(MIN_PARALLELISM, math.ceil(pairs / 50_000))), MAX_BLOCKS
    )
    if num_shards is not None:
        return Sizes(max(blocks, num_shards), num_shards)
    links_per_block = pairs * LINKS_PER_PAIR / blocks
    shards = max(1, min(blocks, round(links_per_block / LINKS_PER_MESSAGE)))
    return Sizes(blocks, shards)
