"""Faulty builds of the selectors that both the replay test and the audit must see."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from dpbeam.engine.program import Program
from dpbeam.kernels.csr import Csr
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.selectors.mad.program import Mad2rProgram
from dpbeam.selectors.uniform.program import sample_rows


def recast(program: Program, kind: type) -> Program:
    """A copy of `program` whose class is `kind`."""
    other = copy.copy(program)
    other.__class__ = kind
    return other


class MovingSample(GsuProgram):
    """Planted fault: a fresh sample of a larger set in every round."""

    def weigh(self, trip, block, reply, keys):
        rows = sample_rows(Csr(block.offsets, block.links), block, keys.sample(trip + 1), len(self.caps) - 1)
        return super().weigh(trip, replace(block, offsets=rows.offsets, links=rows.links), reply, keys)


class CurrentDegreeCap(GsuProgram):
    """Planted fault: the cap of the items that are left instead of the degree of the sample."""

    def weigh(self, trip, block, reply, keys):
        if not trip:
            return super().weigh(trip, block, reply, keys)
        rows = Csr(block.offsets, block.links)
        kept = rows.restrict(reply["score"][rows.links] > 0)
        return super().weigh(trip, replace(block, offsets=kept.offsets, links=kept.links), reply, keys)


class KeepAbsent(Mad2rProgram):
    """Planted fault: an item that nobody gave weight to in the first round is kept with bias one."""

    def _biases(self, shard):
        return np.where(shard.state["present"], super()._biases(shard), np.uint16(1 << 15))
