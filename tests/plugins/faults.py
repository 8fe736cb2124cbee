"""What whoever adds a selector can get wrong, planted in the truncated geometric selection."""

from pathlib import Path

from dpbeam import plugins
from dpbeam.testing import SelectorContract, checks
from tests.support.faults import Fault, Matrix
from tests.support.plugins import Edit

PACKAGE = Path(__file__).parent / "geometric_selector"
ENTRIES = f"""
[{plugins.SELECTORS}]
geometric = {PACKAGE.name}:Geometric
[{plugins.EVENTS}]
geometric = {PACKAGE.name}.event
[{plugins.FORMATS}]
bars = {PACKAGE.name}.bars:Bars
"""


class Geometric(SelectorContract):
    method, epsilon = "geometric", 8.0


_PLAN, _EVENT = "__init__.py", "event.py"
_SHARE = (
    _PLAN,
    "(math.nextafter(total / most, 0.0) for total in (request.epsilon, request.delta))",
)
_WHOLE_EPSILON = (*_SHARE, "(request.epsilon * (1 - 1e-9), request.delta / most * (1 - 1e-9))")
_WHOLE_DELTA = (*_SHARE, "(request.epsilon / most * (1 - 1e-9), request.delta * (1 - 1e-9))")
_PROGRAM = "        program = BitsProgram(coins=[coin], moves=[((most, 1),)])\n"
_STEEP = (_EVENT, "factor = math.exp(a)", "factor = math.exp(2 * a)")
_ANY_LAW = (_EVENT, "if made.single_delta(epsilon) <= delta:", "if True:")
_TWO_ROUNDS = """        halves = [
            SplitCoinEvent(epsilon / 2, delta / 2, most, number, label=self.name) for number in (1, 2)
        ]
        coins = [half.noise for half in halves]
        program = BitsProgram(coins=coins, moves=[((most, 1),)] * 2)
        rows = tuple(RoundPlan(c, c.threshold, c, 1.0, h.outside_delta()) for c, h in zip(coins, halves))
        return Calibration(program, rows, ComposedEvent("pure", tuple(halves), label=self.name))
"""
_ONE_NUMBER = _TWO_ROUNDS.replace("in (1, 2)", "in (1, 1)")


def _program(code: str) -> Edit:
    """The program is a faulty kind of its own, of which the code is the body."""
    lines = "".join(f"            {line}\n" for line in code.splitlines())
    made = _PROGRAM.replace("BitsProgram(", "Faulty(")
    return _PLAN, _PROGRAM, f"        class Faulty(BitsProgram):\n{lines}\n{made}"


def _noise(code: str) -> tuple[Edit, Edit]:
    """The noise is a faulty kind of its own, which draws by the code."""
    kind = f"""class Faulty(CoinNoise):
    def draw(self, words, units, fraction=None, fraction_bits=0):
        {code}


"""
    return (_EVENT, "@event\n", f"{kind}@event\n"), (_EVENT, "return CoinNoise(", "return Faulty(")


_PLANNED = "it_has_a_plan_at_every_budget"
_REPLAY = "only_a_new_user_shows"
_BUDGET = "the_probabilities_that_it_states_keep_the_budget"
_SHARES = "items_are_released_as_often_as_it_states"
_NOISE = "every_round_draws_noise_of_its_own_for_every_item"

MATRIX = Matrix(
    of="a selector: truncated geometric",
    package=PACKAGE,
    entries=ENTRIES,
    checks=lambda: checks(Geometric()),
    faults=(
        Fault("epsilon is not divided by D0", _PLANNED, (_WHOLE_EPSILON,)),
        Fault(
            "epsilon is not divided by D0, and the event forgets D0 as well",
            _BUDGET,
            (_WHOLE_EPSILON, (_EVENT, "return self.max_items * self.epsilon", "return self.epsilon")),
        ),
        Fault(
            "delta is not divided by D0, and the event forgets D0 as well",
            _BUDGET,
            (_WHOLE_DELTA, (_EVENT, "return self.max_items * self.delta", "return self.delta")),
        ),
        Fault("the law rises by twice epsilon", _PLANNED, (_STEEP, _ANY_LAW)),
        Fault(
            "the law rises by twice epsilon, and the event does not look",
            _BUDGET,
            (
                _STEEP,
                _ANY_LAW,
                (_EVENT, "if self.noise.curve.single_delta(self.epsilon) > self.delta:", "if False:"),
            ),
        ),
        Fault(
            "the program counts a user too many",
            _REPLAY,
            (
                _program(
                    """def exact(self, trip, shard):
    made = super().exact(trip, shard)
    return type(made)(made.units + (1 << 30))"""
                ),
            ),
        ),
        Fault(
            "more items of a user count than are stated, in the program alone",
            _PLANNED,
            ((_PLAN, "moves=[((most, 1),)]", "moves=[((2 * most, 1),)]"),),
        ),
        Fault(
            "more items of a user count than are stated, and the program does not say so",
            _REPLAY,
            (
                _program(
                    """def touches(self, trip):
    return type(super().touches(trip)).of((self.cap // 4, 1.0))"""
                ),
            ),
        ),
        Fault("two rounds have one number", _PLANNED, ((_PLAN, _PROGRAM, _ONE_NUMBER),)),
        Fault(
            "two rounds draw one noise",
            _NOISE,
            (
                (_PLAN, _PROGRAM, _TWO_ROUNDS),
                *_noise(
                    'words._label = "noise/round 1"; return super().draw(words, units, fraction, fraction_bits)'
                ),
            ),
        ),
        Fault(
            "all items share one draw",
            "blocks_shards_order_and_duplicates_leave_no_trace",
            _noise(
                "drawn = super().draw(words, units, fraction, fraction_bits); return drawn * 0 + drawn[:1]"
            ),
        ),
        Fault(
            "a weight is stated that nobody gives",
            "weights_are_those_of_the_program",
            ((_PLAN, "return 1.0", "return 2.0"),),
        ),
        Fault(
            "probabilities of half the users are stated",
            _SHARES,
            ((_PLAN, "counted = users *", "counted = users // 2 *"),),
        ),
    ),
)
