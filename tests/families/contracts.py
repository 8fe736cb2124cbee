"""Every kind of release of dpbeam, under the tests that all kinds inherit."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpbeam
from dpbeam.counting.family import CountConfig
from dpbeam.counts.gathered import public_domain
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import HittingSetProgram
from dpbeam.packing.batches import agent_batch, agent_messages
from dpbeam.packing.config import Market, Resource
from dpbeam.packing.family import PackingConfig
from dpbeam.packing.market import build_agents
from dpbeam.packing.program import PackingProgram
from dpbeam.selection.config import SelectionConfig
from dpbeam.series.family import SeriesConfig
from dpbeam.testing import KindContract
from dpbeam.testing.kinds import LISTED
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import topk_program

DOMAIN = public_domain(pa.array([item.encode() for item in LISTED], pa.large_binary()))
HERE = "tests/families/contracts.py"
REPLAY = "one_user_more_changes_nothing_under_the_same_noisy_numbers"


class Count(KindContract):
    kind = CountConfig

    def release(self, data, **arguments):
        return dpbeam.count(data, domain=self.listed, **arguments)

    def transform(self, **arguments):
        return dpbeam.CountItems(domain=self.listed, **arguments)

    def program(self, plan):
        return plan.program(DOMAIN)


class Select(KindContract):
    kind = SelectionConfig
    others = (
        {"method": "basic", "max_items_per_user": 3, "min_users": 25, "noisy_weights": True},
        {"method": "mad2r", "preset": "published"},
        {"method": "basic", "noisy_counts": True, "noisy_count_share": 0.3, "others": True},
    )
    listed = None

    def release(self, data, **arguments):
        return dpbeam.select(data, **arguments)

    def transform(self, **arguments):
        return dpbeam.SelectPartitions(**arguments)

    def program(self, plan):
        return plan.program


class TopKOfList(KindContract):
    kind = TopKConfig
    needed: ClassVar = {"k": 3}
    untried: ClassVar = dict.fromkeys(
        ("selector_share", "mechanism", "kbar", "noisy_counts", "noisy_count_share"), HERE
    )

    def release(self, data, **arguments):
        return dpbeam.top_k(data, domain=self.listed, **arguments)

    def transform(self, **arguments):
        return dpbeam.TopKItems(domain=self.listed, **arguments)

    def program(self, plan):
        return topk_program(plan, DOMAIN if self.listed else None)


class TopK(TopKOfList):
    needed: ClassVar = {"k": 16}
    others = (
        {"mechanism": "limited-domain", "kbar": 20},
        {"selector": "basic", "selector_share": 0.6, "noisy_counts": True, "noisy_count_share": 0.3},
    )
    untried: ClassVar = {}
    listed = None
    elsewhere: ClassVar = {REPLAY: "lab/tests/audit/test_rank_audit.py"}


class HittingSet(KindContract):
    kind = HittingSetConfig
    needed: ClassVar = {"k": 16}
    others = ({"k": 3, "selector": "basic", "selector_share": 0.6},)
    listed = None
    elsewhere: ClassVar = {REPLAY: "lab/tests/audit/test_choices.py"}

    def release(self, data, **arguments):
        return dpbeam.hitting_set(data, **arguments)

    def transform(self, **arguments):
        return dpbeam.HittingSet(**arguments)

    def program(self, plan):
        return HittingSetProgram(plan, None, gather=True)


class Pack(KindContract):
    kind = PackingConfig
    needed: ClassVar = {"alpha": 0.3}  # few rounds
    others = (
        {"failure_probability": 0.01, "integral": True},
        {
            "alpha": 0.2,
            "start_rounds": 5,
            "start_share": 0.2,
            "settle_share": 0.2,
            "max_rounds": 3,
            "margin": False,
            "max_resources_per_agent": 1,
            "allow_small_supply": True,
        },
    )
    listed = None
    elsewhere: ClassVar = {REPLAY: "tests/packing/test_privacy.py"}
    supplies: ClassVar = {"beds": 16, "nurses": 16, "rooms": 16}

    def data(self, newcomer=()):
        """The first of 100 agents has another row instead of one user more; agents demand one resource each."""
        rng = np.random.default_rng(0)
        values, demands = rng.random(100), rng.random((100, 2)) * np.eye(2)[np.arange(100) % 2]
        if newcomer:
            values[0], demands[0, 0] = 1.0, len(newcomer) / 12
        columns = {"beds": demands[:, 0], "nurses": demands[:, 1], "rooms": np.zeros(100)}
        return pa.table({"agent": [f"a{n}" for n in range(100)], "value": values, **columns})

    def release(self, data, **arguments):
        return dpbeam.pack(data, supplies=self.supplies, **arguments)

    def transform(self, **arguments):
        del arguments["num_shards"]
        return dpbeam.Packing(supplies=self.supplies, num_agents=100, **arguments)

    def plan(self, **settings):
        return self.config(**settings).plan(self._market())

    def program(self, plan):
        return PackingProgram(plan)

    def _market(self):
        return Market(tuple(Resource(name, supply) for name, supply in self.supplies.items()), 100)

    def blocks(self, program, keys, newcomer=()):
        agents = self.data(newcomer)
        names = pa.array([name.encode() for name in agents["agent"].to_pylist()], pa.large_binary())
        demands = np.stack([agents[name].to_numpy() for name in self.supplies], axis=1)
        rows = agent_batch(names, agents["value"].to_numpy(), demands, {})
        messages = agent_messages(rows, self._market(), None, keys.pairs.user, 1)
        return [build_agents(0, [part for _, part in messages])]

    def command_line(self, folder):
        pq.write_table(self.data(), os.path.join(folder, "agents.parquet"))
        with open(os.path.join(folder, "supplies.json"), "w") as file:
            json.dump(self.supplies, file)
        return [f"--agents={folder}/agents.parquet", f"--supplies={file.name}"]


class Series(KindContract):
    kind = SeriesConfig
    needed: ClassVar = {"nights": 3}
    others = (
        {
            "preset": "steady",
            "max_items_per_user": 2,
            "noisy_counts": True,
            "noisy_count_share": 0.3,
        },
    )
    untried: ClassVar = {"first_night": "tests/series/test_window.py"}
    listed = None
    elsewhere: ClassVar = {
        REPLAY: "tests/series/test_replay.py",
        "every_stated_round_matters": "tests/series/test_law.py",
        "beam_releases_what_memory_does": "tests/series/test_transforms.py",
        "the_command_releases_what_memory_does": "tests/series/test_remote.py",
    }

    def release(self, data, **arguments):
        """The first night; a series has an identifier of its own."""
        night = dpbeam.Series(**arguments).run(data)
        parameters = {**night.ledger.parameters, "series": ""}
        return replace(night, ledger=replace(night.ledger, parameters=parameters))


CONTRACTS = {one.__name__: one() for one in (Count, Select, TopKOfList, TopK, HittingSet, Pack, Series)}


def ledger_of(contract):
    """A ledger of a kind, of its last settings and a fresh key."""
    return contract.released(contract.settings()[-1], key=None).ledger


#: Kind -> a ledger of it, from data in memory.
LEDGERS = {contract.kind.name: partial(ledger_of, contract) for contract in CONTRACTS.values()}
