"""What the distribution says of itself: the version of dpbeam, and no requirement that dpbeam does not have."""

import re
from importlib.metadata import entry_points, metadata, requires

from dpbeam import __version__
from dpbeam.cli import ADDED_BY, ENTRY_POINTS
from dpbeam_lab.commands import COMMANDS


def test_it_needs_dpbeam_of_its_own_version_alone():
    assert metadata("dpbeam-lab")["Version"] == __version__
    needed = [requirement for requirement in requires("dpbeam-lab") if "extra ==" not in requirement]
    assert needed == [f"dpbeam=={__version__}"]


def test_dpbeam_knows_which_commands_it_adds():
    [entry] = [entry for entry in entry_points(group=ENTRY_POINTS) if entry.dist.name == "dpbeam-lab"]
    assert entry.load() == COMMANDS and dict.fromkeys(COMMANDS, "dpbeam-lab") == ADDED_BY


def test_the_licence_is_that_of_dpbeam():
    assert re.match(r"Apache-2\.0", metadata("dpbeam-lab")["License-Expression"])
    assert metadata("dpbeam-lab")["License-Expression"] == metadata("dpbeam")["License-Expression"]
