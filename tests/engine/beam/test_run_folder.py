"""The folder that a pipeline makes for its own run: one for each execution, the same one for each retry."""

import json
import os
import subprocess
import sys
import threading

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam import InputError, RunFolder, SelectionConfig, SelectPartitions, TopKItems
from dpbeam.engine.beam import owner, run_folder
from dpbeam.engine.beam.receipts import FIRST, RESULT, SHARDS, ReceiptDoFn
from dpbeam.engine.beam.run_folder import LateStore, Terms, _MakeFolder
from dpbeam.engine.beam.store import RunStore
from dpbeam.errors import RunnerError
from dpbeam.randomness import RunKey
from dpbeam.storage.processes import PIPELINE, Owner
from tests.support import memory_store, pipelines
from tests.support.examples import ROOT
from tests.support.pipelines import kept, outcome

PAIRS = [
    (f"u{user}", f"i{item}") for item, users in ((1, 300), (2, 200), (3, 40), (4, 2)) for user in range(users)
]
CONFIG = SelectionConfig(epsilon=2.0, delta=1e-4, method="mad", noisy_weights=True)
TEST_KEY = "of tests"
#: Scripts in processes of their own import this module.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def select(**arguments):
    return SelectPartitions(CONFIG, **arguments)


def fail(pair):
    """For a stage that does not come to its end."""
    raise RuntimeError("of the stage")


def pipeline_in(place, transform, *flags):
    """A pipeline over PAIRS, built and not run."""
    pipeline = beam.Pipeline(
        options=PipelineOptions(["--runner=FnApiRunner", f"--temp_location={place}", *flags])
    )
    _ = kept(pipeline | beam.Create(PAIRS, reshuffle=False) | transform)
    return pipeline


@pytest.fixture
def drawn(monkeypatch):
    """The keys that are drawn."""
    keys = []

    def fresh():
        keys.append(RunKey(os.urandom(32)))
        return keys[-1]

    monkeypatch.setattr(run_folder.RunKey, "fresh", fresh)
    return keys


@pytest.mark.usefixtures("quick_pipelines")
class TestExecutions:
    def test_nothing_is_made_before_the_first_stage_and_nothing_stays(self, tmp_path, drawn):
        pipeline = pipeline_in(tmp_path, select(num_blocks=2, num_shards=3))
        assert os.listdir(tmp_path) == drawn == []
        pipeline.run().wait_until_finish()
        assert os.listdir(tmp_path) == [] and len(drawn) == 1

    def test_each_of_one_pipeline_has_its_own_folder_and_key(self, tmp_path, drawn, monkeypatch):
        removed = []
        monkeypatch.setattr(run_folder, "remove_run", lambda path: removed.append(path))
        pipeline = pipeline_in(tmp_path, select())
        template = beam.Pipeline.from_runner_api(
            pipeline.to_runner_api(), runner="FnApiRunner", options=pipeline.options
        )
        for execution in (pipeline, pipeline, template):
            execution.run().wait_until_finish()
        assert len(set(removed)) == len(os.listdir(tmp_path)) == 3
        assert len({key.secret_bytes() for key in drawn}) == 3
        assert {RunStore(path).run_key().secret_bytes() for path in removed} == {
            key.secret_bytes() for key in drawn
        }

    @pytest.mark.parametrize("sizes", [{}, {"num_blocks": 2, "num_shards": 3}])
    def test_the_result_is_that_of_a_folder_that_the_caller_holds(self, sizes, tmp_path):
        with RunFolder(str(tmp_path), RunKey.insecure_fixed(TEST_KEY)) as run:
            wanted = outcome(
                lambda p: kept(p | beam.Create(PAIRS, reshuffle=False) | select(run=run, **sizes))
            )
        late = select(run_folder=str(tmp_path), insecure_test_key=TEST_KEY, **sizes)
        assert (
            sorted(outcome(lambda p: kept(p | beam.Create(PAIRS, reshuffle=False) | late)))
            == sorted(wanted)
            != []
        )
        assert not late.ledger.private and select().ledger.private

    def test_no_elements_and_a_result_of_one_worker(self, tmp_path):
        nobody = beam.Create([]).with_output_types(tuple[str, str])
        assert outcome(lambda p: kept(p | nobody | select(run_folder=str(tmp_path)))) == []
        budget = {"epsilon": 2.0, "delta": 1e-4}
        top = TopKItems(**budget, k=2, selector="basic", run_folder=str(tmp_path), num_shards=2)
        assert len(outcome(lambda p: kept(p | beam.Create(PAIRS, reshuffle=False) | top))) == 2
        assert os.listdir(tmp_path) == []

    @pytest.mark.slow
    def test_workers_in_processes_of_their_own(self, tmp_path):
        """The key is drawn there, and the folder names no process: it may outlive each of them."""
        script = tmp_path / "job.py"
        script.write_text(
            "import apache_beam as beam, tests.engine.beam.test_run_folder as t\n"
            f"t.pipeline_in({str(tmp_path / 'temp')!r}, t.select(num_shards=2), '--direct_num_workers=1',"
            " '--direct_running_mode=multi_processing').run().wait_until_finish()\n"
        )
        (tmp_path / "temp").mkdir()
        subprocess.run([sys.executable, str(script)], env=ENVIRONMENT, check=True, timeout=300)
        assert os.listdir(tmp_path / "temp") == []


class TestRetries:
    @pytest.fixture(params=["disk", "objects"])
    def make(self, request, tmp_path, monkeypatch):
        memory_store.install(monkeypatch)
        place = "s3://bucket/temp" if request.param == "objects" else str(tmp_path)
        store = LateStore()
        store.write_bytes("program", b"what runs")
        assert store.bind("sizes", b"1")
        return lambda: _MakeFolder(place, None, PIPELINE, Terms(), store)

    def test_the_first_stage_again(self, make):
        (path,) = make().process("name")
        key = RunStore(path).run_key().secret_bytes()
        assert list(make().process("name")) == [path]
        assert RunStore(path).run_key().secret_bytes() == key
        (other,) = make().process("another name")
        assert RunStore(other).run_key().secret_bytes() != key
        assert RunStore(path).read_bytes("program") == b"what runs"

    def test_after_it_has_died_at_any_step(self, make, monkeypatch):
        """Each later attempt goes on with what is there."""
        steps = ["mark", "write_once", "bind", "write_bytes"]
        for step in steps:
            place = owner if step == "mark" else RunStore
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(place, step, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
                list(make().process("name"))
        (path,) = make().process("name")
        assert RunStore(path).has_key and RunStore(path).read_bytes("program") == b"what runs"

    def test_several_attempts_at_once_have_one_key(self, make):
        seen, together = [], threading.Barrier(8)

        def attempt():
            together.wait()
            for _ in range(100):
                try:
                    (path,) = make().process("name")
                except Exception:  # another one makes it: an engine tries again
                    continue
                seen.append(RunStore(path).run_key().secret_bytes())
                return

        threads = [threading.Thread(target=attempt) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 8 and len(set(seen)) == 1

    def test_other_settings_are_refused(self, tmp_path):
        first, second = LateStore(), LateStore()
        first.bind("program", b"1")
        second.bind("program", b"2")
        list(_MakeFolder(str(tmp_path), None, PIPELINE, Terms(), first).process("name"))
        with pytest.raises(InputError, match="the noise of this run belongs to other data or settings"):
            list(_MakeFolder(str(tmp_path), None, PIPELINE, Terms(), second).process("name"))


class TestFolders:
    def test_what_a_dead_job_leaves_is_known_as_a_pipelines(self, tmp_path):
        (path,) = _MakeFolder(str(tmp_path), None, PIPELINE, Terms(), LateStore()).process("name")
        assert owner.state_of(path) == "elsewhere"
        assert json.loads((tmp_path / "dpbeam-run-name" / owner.FILE).read_text())["host"] == "a pipeline"
        assert os.stat(path).st_mode & 0o777 == 0o700
        assert os.stat(os.path.join(path, owner.KEY)).st_mode & 0o777 == 0o600

    def test_a_failure_in_the_builders_process_leaves_nothing_at_its_end(self, tmp_path, monkeypatch):
        at_exit = []
        monkeypatch.setattr(run_folder.atexit, "register", lambda *call: at_exit.append(call))
        failing = beam.Map(fail).with_output_types(tuple[str, str]) | select()
        with pytest.raises(RuntimeError, match="of the stage"):
            pipeline_in(tmp_path, failing).run()
        for remove, *path in at_exit:
            assert os.listdir(tmp_path) != []
            remove(*path)
        assert os.listdir(tmp_path) == [] != at_exit

    def test_a_folder_is_the_processes_that_builds_and_runs(self, tmp_path, monkeypatch):
        monkeypatch.setattr(run_folder.atexit, "register", lambda *_: None)
        (path,) = _MakeFolder(str(tmp_path), None, Owner.this_process(), Terms(), LateStore()).process("name")
        assert owner.state_of(path) == "alive"


@pytest.mark.parametrize("elements", [PAIRS, []])
def test_the_metrics_tell_the_trips_and_nothing_of_the_data(elements, tmp_path):
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    source = beam.Create(elements).with_output_types(tuple[str, str])
    _ = pipeline | source | select(run_folder=str(tmp_path), num_shards=2)
    result = pipeline.run()
    counted = result.metrics().query(MetricsFilter().with_namespace("dpbeam"))
    assert [(one.key.metric.name, one.committed) for one in counted["counters"]] == [("trips", 2)]
    assert not counted["distributions"] and not counted["gauges"]


@pytest.mark.usefixtures("quick_pipelines")
class TestLosses:
    @pytest.mark.parametrize("kind", [RESULT, SHARDS, FIRST])
    def test_nothing_leaves_where_something_is_lost(self, kind, tmp_path, monkeypatch):
        leave = ReceiptDoFn.receipt

        def lose(self, what, part, number):
            if what != kind or part:
                leave(self, what, part, number)

        monkeypatch.setattr(ReceiptDoFn, "receipt", lose)
        with pytest.raises(RunnerError, match="the runner lost or doubled"):
            fixed = select(run_folder=str(tmp_path), num_shards=2, insecure_test_key="ab")  # no part is empty
            outcome(lambda p: kept(p | beam.Create(PAIRS, reshuffle=False) | fixed))
        assert pipelines._came == []

    def test_nothing_leaves_once_the_folder_is_gone(self, tmp_path, monkeypatch):
        def check(store):
            run_folder.remove_run(store.path)

        monkeypatch.setattr(run_folder, "check_receipts", check)
        real = run_folder._Check.process

        def process(self, number):
            list(real(self, number))
            return real(self, number)  # tried again

        monkeypatch.setattr(run_folder._Check, "process", process)
        with pytest.raises(Exception, match="the run has ended"):
            outcome(lambda p: p | beam.Create(PAIRS, reshuffle=False) | select(run_folder=str(tmp_path)))


def test_arguments_that_do_not_go_together(tmp_path):
    with RunFolder(str(tmp_path)) as run:
        for more in ({"run_folder": "x"}, {"insecure_test_key": "x"}):
            with pytest.raises(InputError, match=f"drop {next(iter(more))}"):
                select(run=run, **more)
    with pytest.raises(InputError, match="run_folder"):
        select(run_folder=3)
    with pytest.raises(TypeError, match="there is no argument 'run_foldr'"):
        select(run_foldr="x")
