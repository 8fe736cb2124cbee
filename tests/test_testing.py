"""`dpbeam.testing`: every name is there, and one call runs all tests of a contract."""

import pytest

from dpbeam import testing


class Contract:
    ran: tuple[str, ...] = ()

    def test_first(self):
        self.ran += ("first",)

    def test_second(self):
        self.ran += ("second",)


class Failing(Contract):
    def test_second(self):
        raise AssertionError("not so")


class Without(Failing):
    test_second = None


def test_every_name_is_there():
    assert all(callable(getattr(testing, name)) for name in testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        testing.other  # noqa: B018


@pytest.mark.parametrize("seam", ["selector", "format", "kind", "store"])
def test_one_call_runs_all_tests(seam):
    check = getattr(testing, f"check_{seam}")
    contract, without = Contract(), Without()
    check(contract)
    check(without)
    assert (contract.ran, without.ran) == (("first", "second"), ("first",))
    with pytest.raises(AssertionError, match="not so"):
        check(Failing())
