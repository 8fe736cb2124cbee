"""Programs whose parts meet: a greedy cover of users (blocks and hub), a vote of shards with answers, and numbers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.engine.program import Program, ReplyColumn, with_state
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block

FULL = (1 << 31) - 1


class GreedyCover(Program):
    """`picks` times the item that most users hold who hold none of those picked before; noise of scale b.

    Blocks and hub alone: a block sends how many of its remaining users hold each item, by fingerprint.
    """

    norm, cap, weight_grid, output = "none", FULL, 1.0, "hub"
    reply_columns: ClassVar = {}

    def __init__(self, picks: int, scale: float):
        self.trips, self.scale = picks, scale

    def sum_names(self, trip):
        return ()

    def noise(self, trip):
        return None

    def hub_noise(self, trip):
        return NoiseSpec("laplace", self.scale, trip + 1)

    def meets(self, trip):
        return "blocks"

    def block_state_trip(self, trip):
        return trip - 1 if trip else None

    def weigh(self, trip, block, reply, keys):
        rows = Csr(block.offsets, block.links)
        left = block.state["left"].astype(bool) if trip else np.ones(len(rows.degrees), bool)
        if trip:
            picked = (block.item_fp == block.broadcast["picked"]).all(axis=1)
            left &= rows.row_sums(picked[rows.links].astype(np.int64)) == 0
        return {}, {"left": left.astype(np.uint8)}

    def summarise(self, trip, part, keys):
        rows = Csr(part.offsets, part.links)
        kept = rows.per_pair(part.state["left"].astype(bool))
        counts = np.bincount(rows.links[kept], minlength=part.num_items)
        summary = {"fp": part.item_fp, "counts": counts}
        return summary if trip else {**summary, "items": part.items}

    def decide(self, trip, state, summaries, draw):
        empty = (np.empty((0, 2), np.uint64), np.empty(0, np.int64), pa.array([], pa.large_binary()))
        fp = np.concatenate([empty[0], *(s["fp"] for s in summaries)])
        counts = np.concatenate([empty[1], *(s["counts"] for s in summaries)])
        if trip == 0:
            names = pa.concat_arrays([empty[2], *(s["items"] for s in summaries)])
            state = {"fp": fp, "names": names, "picked": empty[0]}
        distinct, inverse = np.unique(fp, axis=0, return_inverse=True)
        total = np.bincount(inverse.ravel(), counts, minlength=len(distinct)).astype(np.int64) * UNITS
        total = draw.noisy(total, distinct)
        if trip:
            total[(distinct[:, None] == state["picked"][None]).all(axis=2).any(axis=1)] = np.iinfo(
                np.int64
            ).min
        best = distinct[[np.argmax(total)]] if len(distinct) else empty[0]
        state = {**state, "picked": np.concatenate([state["picked"], best])}
        return state, {"picked": best if len(best) else np.zeros((1, 2), np.uint64)}

    def hub_output(self, state):
        if not len(state["picked"]):
            return None
        rows = [np.flatnonzero((state["fp"] == picked).all(axis=1))[0] for picked in state["picked"]]
        return pa.record_batch([state["names"].take(pa.array(rows))], ["item"])


class Applause(Program):
    """Shards tell the hub their heaviest item; the heaviest of all is told to everybody, and each block answers.

    Trips with shards, replies and a meeting, and a result from blocks: how many of a block's users hold that item,
    and a second round in which only they add weight.
    """

    trips, norm, cap, weight_grid, output = 2, "none", FULL, 1.0, "blocks"
    reply_columns: ClassVar = {0: {"bonus": ReplyColumn(np.int64, 0)}}

    def sum_names(self, trip):
        return ("weight",)

    def noise(self, trip):
        return NoiseSpec("gaussian", 0.25, trip + 1)

    def meets(self, trip):
        return "shards"

    def weigh(self, trip, block, reply, keys):
        rows = Csr(block.offsets, block.links)
        weight = np.full(len(rows.links), 1 << 30)
        if trip:
            fans = rows.row_sums(self._is_best(block)[rows.links].astype(np.int64)) > 0
            weight = np.where(rows.per_pair(fans), weight + reply["bonus"][rows.links], 0)
        return {"weight": rows.item_sums(weight, block.num_items)}, None

    @staticmethod
    def _is_best(part):
        fp = part.item_fp if hasattr(part, "item_fp") else part.fp
        return (fp == part.broadcast["best"]).all(axis=1)

    def observe(self, trip, shard, noisy, present):
        return with_state(shard, noisy=noisy)

    def threshold(self, trip, shard):
        return shard

    def summarise(self, trip, part, keys):
        top = int(np.argmax(part.state["noisy"]))
        return {"fp": part.fp[[top]], "noisy": part.state["noisy"][[top]]}

    def decide(self, trip, state, summaries, draw):
        if not summaries:
            return {}, {"best": np.zeros((1, 2), np.uint64)}
        best = max(summaries, key=lambda s: (int(s["noisy"][0]), s["fp"][0].tolist()))
        return {}, {"best": best["fp"]}

    def reply(self, trip, shard):
        return shard, {"bonus": np.where(self._is_best(shard), 1 << 29, 0)}

    def finish_block(self, block):
        rows = Csr(block.offsets, block.links)
        fans = rows.row_sums(self._is_best(block)[rows.links].astype(np.int64)) > 0
        columns = [pa.array([int(fans.sum())]), pa.array([len(fans)])]
        return pa.record_batch(columns, ["fans", "users"])


class Tally(Program):
    """Numbers of users, where blocks meet, and of pairs, where shards do.

    Args:
      meets: who meets on each trip; sums: the trips with sums; replies: those after which shards reply.
    """

    norm, cap, weight_grid, output = "none", FULL, 1.0, "hub"

    def __init__(self, meets, sums, replies):
        self.trips, self._meets, self._sums = len(meets), meets, sums
        self.reply_columns = {trip: {"held": ReplyColumn(np.uint8, 0)} for trip in replies}

    def sum_names(self, trip):
        return ("pairs",) if trip in self._sums else ()

    def noise(self, trip):
        return None

    def meets(self, trip):
        return self._meets[trip]

    def weigh(self, trip, block, reply, keys):
        return (
            {"pairs": np.bincount(block.links, minlength=block.num_items)} if trip in self._sums else {}
        ), None

    def reply(self, trip, shard):
        return shard, {"held": (shard.sums["pairs"] > 0).astype(np.uint8)}

    def summarise(self, trip, part, keys):
        number = len(part.user_fp) if isinstance(part, Block) else part.sums["pairs"].sum()
        return {"number": np.array([number])}

    def decide(self, trip, state, summaries, draw):
        numbers = {
            f"{trip} {self._meets[trip]}": sum((s["number"] for s in summaries), np.zeros(1, np.int64))
        }
        return {**state, **numbers}, numbers

    def hub_output(self, state):
        return pa.record_batch([pa.array(state[name]) for name in sorted(state)], sorted(state))
