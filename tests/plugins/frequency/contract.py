"""What every kind of release must do, tried on `frequency`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from frequency.family import FrequencyConfig
from frequency.memory import frequency
from frequency.plan import FrequencyPlan
from frequency.program import Shares
from frequency.transforms import ItemFrequencies

from dpbeam.counts.gathered import public_domain
from dpbeam.in_memory.select import Selection
from dpbeam.testing import KindContract


class TestFrequency(KindContract):
    kind = FrequencyConfig
    others = ({"clip": 2, "users_share": 0.3},)

    def release(self, data: pa.Table, **arguments: Any) -> Selection:
        return frequency(data, domain=self.listed, **arguments)

    def transform(self, **arguments: Any) -> ItemFrequencies:
        return ItemFrequencies(domain=self.listed, **arguments)

    def program(self, plan: FrequencyPlan) -> Shares:
        return plan.program(
            public_domain(pa.array([item.encode() for item in self.listed], pa.large_binary()))
        )
