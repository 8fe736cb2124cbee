"""The audit looks on from around a program: it forwards all, and meets or refuses a hub inside."""

import numpy as np
import pytest

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import build_blocks, run_blocks
from dpbeam.engine.program import Keys
from dpbeam_lab.audit.neighbours import names_of
from dpbeam_lab.audit.transcript import run_observed
from tests.engine.test_forwarding import HubSelection, holders, selection
from tests.support.running import key


def test_whoever_holds_a_program_forwards():
    kinds = holders("dpbeam_lab.")
    assert kinds and all(issubclass(kind, Forwarding) for kind in kinds)


def test_the_audit_meets_the_hub_of_a_selection():
    keys = Keys(key("audited"))
    users, items = np.repeat(np.arange(40), 2), np.tile([0, 1], 40)

    def blocks():
        pairs = [(names_of(users), names_of(items))]
        return list(build_blocks(pairs, keys, 5, num_blocks=1, num_shards=1))

    seen = run_observed(selection(), blocks(), keys, 2)
    assert sorted(seen.sums) == [0, 1] and seen.released[1].all()
    assert len(run_blocks(selection(), blocks(), keys)) == 2


def test_noise_of_a_hub_is_refused_by_the_audit():
    class Noisy(HubSelection):
        def hub_noise(self, trip):
            return NoiseSpec("gaussian", 1.0, 9)

    with pytest.raises(ValueError, match="the hub of Noisy draws noise, which a transcript"):
        run_observed(selection(Noisy), [], Keys(key()), 1)
