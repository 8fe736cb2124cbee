"""What the author of a kind of release can get wrong, planted into `frequency`."""

from __future__ import annotations

import importlib

from dpbeam.testing import checks
from tests.support.faults import TESTS, Checks, Fault, Matrix

_LEDGER = "a_ledger_leads_back_to_its_settings"
_KEY = "noise_follows_from_the_key"
_NEIGHBOURS = "ledgers_of_neighbours_are_equal"
_ROUNDS = "every_stated_round_matters"
_REPLAY = "one_user_more_changes_nothing_under_the_same_noisy_numbers"
_BEAM = "beam_releases_what_memory_does"
_COMMAND = "the_command_releases_what_memory_does"

_EVENTS = (
    'parts = (GaussianEvent(users, round=1, label="all users"), GaussianEvent(sums, round=2, label="sums"))'
)
_STATES_NOISE = 'return NoiseSpec("gaussian", self.sigmas[trip], trip + 1)'
_NOISY_USERS = "draw.noisy(exact * UNITS, _USERS_FP)"
_NOISY_SUMS = "draw.noisy(sums, draw.fingerprints(self.items))"
_KEYS = "Keys({}).hub(NoiseSpec('gaussian', self.sigmas[1], 2), 1).noisy"


def _planned() -> None:
    importlib.import_module("frequency.family").FrequencyConfig(1.0, 1e-5).plan()


def _checks() -> Checks:
    """Its plan is made first, as `dpbeam plan` does; then what its author inherits."""
    contract = importlib.import_module("frequency.contract").TestFrequency()
    return [("plan", _planned), *checks(contract)]


MATRIX = Matrix(
    of="frequency, a kind of release",
    package=TESTS / "plugins" / "frequency",
    entries="[dpbeam.kinds]\nfrequency = frequency.family:FrequencyConfig\n",
    checks=_checks,
    faults=(
        Fault(
            "weights are not clipped: a user gives 1 to each of its items",
            _REPLAY,
            [
                (
                    "program.py",
                    "clipped_weights(rows, self.clip), part",
                    "np.full(len(rows.links), UNITS), part",
                )
            ],
        ),
        Fault(
            "half the sensitivity is stated, and half the noise drawn",
            _REPLAY,
            [
                ("plan.py", "GaussianEvent(users, round=1,", "GaussianEvent(users / 2, 0.5, round=1,"),
                ("plan.py", "FrequencyPlan(config, users,", "FrequencyPlan(config, users / 2,"),
            ],
        ),
        Fault(
            "no event for the number of all users",
            "plan",
            [("plan.py", _EVENTS, 'parts = (GaussianEvent(sums, round=2, label="sums"),)')],
        ),
        Fault(
            "no event and no noise for the number of all users",
            _REPLAY,
            [
                ("plan.py", _EVENTS, 'parts = (GaussianEvent(sums, round=2, label="sums"),)'),
                ("program.py", _STATES_NOISE, f"{_STATES_NOISE} if trip else None"),
                ("program.py", _NOISY_USERS, "(exact * UNITS)"),
            ],
        ),
        Fault(
            "no event for the sums, whose noise the program draws by the key of the run",
            _LEDGER,
            [
                ("plan.py", _EVENTS, 'parts = (GaussianEvent(users, round=1, label="all users"),)'),
                ("program.py", _STATES_NOISE, f"{_STATES_NOISE} if trip == 0 else None"),
                ("program.py", "draw.noisy(sums,", f"{_KEYS.format('draw.run_key')}(sums,"),
            ],
        ),
        Fault(
            "all items get the same noise",
            _REPLAY,
            [("program.py", _NOISY_SUMS, "draw.noisy(sums, np.zeros_like(draw.fingerprints(self.items)))")],
        ),
        Fault(
            "the noise has a key that stands in the source",
            _ROUNDS,
            [
                ("program.py", "import Shard", "import Shard\nfrom dpbeam.randomness import RunKey"),
                (
                    "program.py",
                    "draw.noisy(sums,",
                    f"{_KEYS.format('RunKey.insecure_fixed(str(7))')}(sums,",
                ),
            ],
        ),
        Fault(
            "the noise of all users is numpy's",
            _KEY,
            [
                (
                    "program.py",
                    _NOISY_USERS,
                    "(exact * UNITS + np.random.default_rng().normal(0, self.sigmas[0] * UNITS, 1))",
                )
            ],
        ),
        Fault(
            "both rounds have one number, and so one noise",
            "plan",
            [
                ("plan.py", "GaussianEvent(sums, round=2,", "GaussianEvent(sums, round=1,"),
                ("program.py", "self.sigmas[trip], trip + 1)", "self.sigmas[trip], 1)"),
            ],
        ),
        Fault(
            "both rounds get the whole budget",
            "plan",
            [
                (
                    "plan.py",
                    "split_sigma(sigma, [config.users_share, 1 - config.users_share])",
                    "(sigma, sigma)",
                )
            ],
        ),
        Fault(
            "half the noise is drawn that the events state",
            "plan",
            [("program.py", _STATES_NOISE, 'return NoiseSpec("gaussian", self.sigmas[trip] / 2, trip + 1)')],
        ),
        Fault(
            "verify calibrates without the share",
            _LEDGER,
            [
                (
                    "family.py",
                    "    @classmethod\n    def follows",
                    "    @classmethod\n    def of_ledger(cls, ledger):\n"
                    "        return cls(ledger.epsilon, ledger.delta, ledger.parameters['clip'])\n\n"
                    "    @classmethod\n    def follows",
                )
            ],
        ),
        Fault(
            "the ledger does not state the share",
            _LEDGER,
            [("family.py", '(default 0.1)", metavar="X"', '(default 0.1)", metavar="X", stated=False')],
        ),
        Fault(
            "the function forgets the share",
            _LEDGER,
            [
                (
                    "memory.py",
                    "FrequencyConfig(epsilon, delta, clip, users_share)",
                    "FrequencyConfig(epsilon, delta, clip)",
                )
            ],
        ),
        Fault(
            "the command forgets the flags of the settings",
            _COMMAND,
            [
                (
                    "command.py",
                    "    def how",
                    "    def asked(self, options):\n"
                    "        return FrequencyConfig(options.epsilon, options.delta)\n\n    def how",
                )
            ],
        ),
        Fault(
            "the transform forgets the share",
            _BEAM,
            [
                (
                    "transforms.py",
                    "FrequencyConfig(epsilon, delta, clip, users_share)",
                    "FrequencyConfig(epsilon, delta, clip)",
                )
            ],
        ),
        Fault(
            "the sums go out exact, their noise is drawn and thrown away",
            _ROUNDS,
            [("program.py", "share = noisy / UNITS", "share = sums / UNITS")],
        ),
        Fault(
            "the hub halves the noise that it was given",
            _REPLAY,
            [("program.py", "share = noisy / UNITS", "share = (sums + (noisy - sums) / 2) / UNITS")],
        ),
        Fault(
            "the exact number of users divides, its noise is drawn and thrown away",
            _ROUNDS,
            [
                (
                    "program.py",
                    f"np.rint({_NOISY_USERS} / UNITS)",
                    f"np.rint(({_NOISY_USERS} * 0 + exact * UNITS) / UNITS)",
                )
            ],
        ),
        Fault(
            "the exact number of users goes out in a broadcast",
            _REPLAY,
            [
                (
                    "program.py",
                    '{"users": users}, {"users": users}',
                    '{"users": users}, {"users": users, "exact": exact}',
                )
            ],
        ),
        Fault(
            "the exact number of pairs stands in the ledger",
            _NEIGHBOURS,
            [
                (
                    "memory.py",
                    "input_parameters=pairs.parameters",
                    "input_parameters={**pairs.parameters, 'pairs': len(pairs.items)}",
                )
            ],
        ),
        Fault(
            "items that nobody holds are left out",
            _REPLAY,
            [
                ("program.py", '"kinds": kinds}, {}', '"kinds": kinds, "held": sums > 0}, {}'),
                (
                    "program.py",
                    "return pa.RecordBatch.from_arrays(arrays, schema=schema)",
                    'return pa.RecordBatch.from_arrays(arrays, schema=schema).filter(pa.array(state["held"]))',
                ),
            ],
        ),
        Fault(
            "on Beam the pairs of the list alone reach the blocks",
            _COMMAND,
            [("family.py", "    listed_alone = False", "    listed_alone = True")],
        ),
    ),
)
