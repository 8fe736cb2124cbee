"""Every kind of release of dpbeam passes what every kind inherits, and each of its settings is tried."""

import pytest

from dpbeam.families.registry import families
from dpbeam.testing import checks
from tests.families.contracts import CONTRACTS
from tests.support.examples import ROOT


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{name}-{what}")
        for name, contract in CONTRACTS.items()
        for what, check in checks(contract)
    ],
)
def test_contract(check):
    check()


@pytest.mark.parametrize("name", families())
def test_every_kind_and_every_setting_is_tried(name):
    mine = [contract for contract in CONTRACTS.values() if contract.kind.name == name]
    assert mine, f"tests/families/contracts.py has no contract of {name}"
    tried = {setting for contract in mine for settings in contract.others for setting in settings}
    elsewhere = [path for contract in mine for path in contract.elsewhere.values()]
    for contract in mine:
        for setting, path in contract.untried.items():
            assert setting in tried or path != "tests/families/contracts.py", setting
            elsewhere.append(path)
    assert all((ROOT / path).exists() for path in elsewhere)
