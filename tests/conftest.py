"""Property tests run the same examples every time, without deadlines that a busy machine would miss.

Tests marked `engines` need Java, Maven, Go and minutes: they run alone, with `--engines`, and are left out otherwise.
"""

import gc
import os
import pathlib
import shutil
import sys
import tempfile

import pytest
from hypothesis import settings

from dpbeam.runners.instructions import prepare_numpy

prepare_numpy()  # as commands do: else plans differ in their last digits from theirs, on some processors

gc.disable()  # until all tests are collected: nearly half of the time of that goes into garbage that is none

settings.register_profile("dpbeam", derandomize=True, deadline=None, database=None)
settings.load_profile("dpbeam")


def pytest_addoption(parser) -> None:
    parser.addoption(
        "--engines",
        action="store_true",
        help="run the tests on real engines, and only these (./scripts/test engines)",
    )


def _memory() -> str | None:
    """A folder in memory, if there is room: on a disk small tests wait half of their time for flushes and removals."""
    try:
        about = os.statvfs("/dev/shm")
    except OSError:
        return None
    room = about.f_bavail * about.f_frsize > 4 << 30 and os.access("/dev/shm", os.W_OK | os.X_OK)
    return "/dev/shm" if room and not about.f_flag & os.ST_NOEXEC else None


@pytest.hookimpl(trylast=True)  # what measures coverage has its folder by then, and needs it after the end
def pytest_configure(config) -> None:
    """Temporary files of all tests lie in one folder: what another run left when it was killed is seen by none.

    Those on engines take gigabytes, on a disk.
    """
    # In pyproject.toml it would import numpy before `prepare_numpy`.
    config.addinivalue_line("filterwarnings", "error::numpy.exceptions.ComplexWarning")
    if not hasattr(config, "workerinput"):
        chosen = config.getoption("--engines") or "TMPDIR" in os.environ
        config.temporary = tempfile.mkdtemp(prefix="dpbeam-tests-", dir=None if chosen else _memory())
        tempfile.tempdir = config.temporary
        os.chmod(tempfile.tempdir, 0o711)  # PostgreSQL has a user of its own
        os.environ["TMPDIR"] = tempfile.tempdir


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus) -> None:
    """Where a test failed, its files stay."""
    passed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if hasattr(session.config, "temporary") and passed:
        shutil.rmtree(session.config.temporary, ignore_errors=True)


#: Files that take minutes on engines, the longest first: else one process would begin one when the other has ended.
LONGEST = [
    "test_pipelines",
    "test_stores",
    "test_stores_series",
    "test_packaging",
    "test_rounds",
    "test_series_nights",
    "test_hosts",
    "test_yarn",
    "test_hostile",
    "test_orchestrators",
    "test_guides",
    "test_packing",
    "test_resume",
    "test_matrix",
    "test_image",
]


#: Files that run in one process, since they share what one of them has started.
TOGETHER = {
    "clusters": {
        "test_pipelines",
        "test_rounds",
        "test_series_nights",
        "test_guides",
        "test_packing",
        "test_resume",
    },
    "stores": {"test_stores", "test_stores_series", "test_yarn"},
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """File by file, but for those that are together."""
    if not config.getoption("--engines"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("::")[0]
            stem = os.path.basename(name).removesuffix(".py")
            return next((group for group, files in TOGETHER.items() if stem in files), name)

    return Scheduling(config, log)


def _place(item) -> int:
    return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)


@pytest.hookimpl(trylast=True)  # tests/engines/conftest.py marks its tests first
def pytest_collection_modifyitems(config, items) -> None:
    """What takes long first, so that several processes end together; one alone begins with the fast tests."""
    wanted = config.getoption("--engines")
    left_out = [item for item in items if (item.get_closest_marker("engines") is not None) != wanted]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if (item.get_closest_marker("engines") is not None) == wanted]
    several = hasattr(config, "workerinput")
    items.sort(key=_place if wanted else lambda item: (item.get_closest_marker("slow") is None) == several)


@pytest.fixture
def beams_runner():
    """A test that asks for it runs pipelines on Beam's in-process runner, as they are."""


@pytest.fixture
def quick_pipelines(request, monkeypatch):
    """Pipelines run on the simulator's runner: a third of the CPU of Beam's."""
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

    from tests.support import quick_beam
    from tests.support.quick_runner import QuickRunner

    quick_beam.remember()
    if "beams_runner" not in request.fixturenames:
        monkeypatch.setattr(FnApiRunner, "run_pipeline", QuickRunner.run_pipeline)


#: Folders whose commands and pipelines prove what does not lie in Beam's runner.
QUICK = {"cli", "counts", "families", "hitting", "in_memory", "io", "jobs", "selection", "series", "topk"}


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """In these folders plans are calibrated once, too."""
    folder = request.path.relative_to(pathlib.Path(__file__).parent).parts[0]
    if folder not in QUICK or request.config.getoption("--engines"):
        return
    from tests.support.plans import PLANS

    request.getfixturevalue("quick_pipelines")
    for family, plan in PLANS.items():
        monkeypatch.setattr(family, "plan", plan)


def pytest_collection_finish(session) -> None:
    """Modules and tests stay to the end: no collection of garbage has to look through them, and few are made."""
    # On engines workers run Beam as it is.
    if "apache_beam" in sys.modules and not session.config.getoption("--engines"):
        from tests.support import quick_beam

        quick_beam.remember()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()
