"""The locks of the image are those of pyproject.toml. `scripts/lock --check` looks further, with a package index."""

import re
from importlib.metadata import metadata, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.locks import LOCKS, PYTHONS, entries, environment, pins

FOR_DEVELOPMENT = {"test", "plots"}
EXTRAS = sorted(set(metadata("dpbeam").get_all("Provides-Extra")) - FOR_DEVELOPMENT)


def required(extra, python):
    """What pyproject.toml requires, of the package or of one extra alone."""
    for requirement in map(Requirement, requires("dpbeam")):
        of_extra = "extra" in str(requirement.marker)
        marker = requirement.marker
        if of_extra == bool(extra) and (
            marker is None or marker.evaluate({**environment(python), "extra": extra})
        ):
            yield requirement


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_the_locks_satisfy_the_project_file(extra, python):
    locked = pins("dpbeam", python) | (pins(extra, python) if extra else {})
    wanted = list(required(extra, python))
    assert wanted
    for requirement in wanted:
        release = locked.get(canonicalize_name(requirement.name))
        assert release and requirement.specifier.contains(release), (str(requirement), release)


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("python", PYTHONS)
def test_an_extra_comes_on_top_without_a_change(extra, python):
    base, more = pins("dpbeam", python), pins(extra, python)
    assert all(base.get(name, release) == release for name, release in more.items())


@pytest.mark.parametrize("name", ["build", "dpbeam", *EXTRAS])
def test_every_release_has_its_hashes_and_names_no_place(name):
    for python in PYTHONS:
        for requirement, hashes in entries(name, python):
            assert requirement.url is None
            assert hashes and all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), requirement
    assert not re.search(r"https?:|/", (LOCKS / f"{name}.txt").read_text().replace("scripts/lock", ""))


def test_every_lock_is_looked_at():
    assert {path.stem for path in LOCKS.iterdir()} == {"build", "dpbeam", *EXTRAS}
