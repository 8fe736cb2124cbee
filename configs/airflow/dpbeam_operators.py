"""Airflow operators that run dpbeam, which lives in a Python environment of its own. For Airflow 3.

Both do the same with the end of a run: exit code 2 fails the task without a retry, any other failure leaves it to
Airflow's retries, and what the run has released, public values alone, goes to XCom.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from airflow.providers.apache.beam.hooks.beam import BeamHook
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

REFUSED = 2
#: Of the result, what is worth a row in Airflow's database.
TO_XCOM = (
    *("command", "status", "dataset", "release_id", "charge", "epsilon", "delta"),
    *("items_released", "private", "outputs", "ledger", "software"),
)


class DpbeamOperator(BaseOperator):
    """Runs `dpbeam COMMAND`, without a shell: a template cannot become a command.

    Args:
      program: path of `dpbeam`.
      arguments: of the command line; templated.
      result_file: where the run says how it ended, for commands that release; templated.
    """

    template_fields: Sequence[str] = ("arguments", "result_file")

    def __init__(
        self, *, program: str, arguments: Sequence[str], result_file: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.program = program
        self.arguments = list(arguments)
        self.result_file = result_file
        self._hook = SubprocessHook()

    def execute(self, context: Any) -> dict[str, Any] | None:
        command = [self.program, *self.arguments]
        if self.result_file is not None:
            _make_folder(self.result_file)
            command.append(f"--result_file={self.result_file}")
        return conclude(self._hook.run_command(command).exit_code, self.result_file)

    def on_kill(self) -> None:
        """Stopped from outside, or past its time: dpbeam cancels its job, cleans up and gives its budget back."""
        self._hook.send_sigterm()


class DpbeamBeamOperator(BaseOperator):
    """Runs a module of `pipelines/` through the Apache Beam provider.

    By the provider's hook: around that its `BeamRunPythonPipelineOperator` has what Dataflow needs, and wants Google's
    provider with all of its client libraries, whatever the runner (6.3.1).

    Args:
      py_file: the module; templated.
      py_interpreter: Python of dpbeam's environment.
      runner: of Beam; templated.
      pipeline_options: flags of the command and of Beam, `result_file` among them; templated.
    """

    template_fields: Sequence[str] = ("py_file", "runner", "pipeline_options")

    def __init__(
        self,
        *,
        py_file: str,
        py_interpreter: str,
        runner: str,
        pipeline_options: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.py_file = py_file
        self.py_interpreter = py_interpreter
        self.runner = runner
        self.pipeline_options = pipeline_options

    def execute(self, context: Any) -> dict[str, Any] | None:
        result_file = self.pipeline_options["result_file"]
        _make_folder(result_file)
        code = 0
        try:
            BeamHook(runner=self.runner).start_python_pipeline(
                variables=dict(self.pipeline_options),
                py_file=self.py_file,
                py_options=[],
                py_interpreter=self.py_interpreter,
            )
        except AirflowException as error:
            found = re.search(r"return code (-?\d+)$", str(error))
            if found is None:
                raise
            code = int(found[1])
        return conclude(code, result_file)


def conclude(code: int, result_file: str | None) -> dict[str, Any] | None:
    """What becomes of a task whose run has ended.

    Returns:
      What goes to XCom.

    Raises:
      AirflowFailException: the run was refused, and would be again.
      AirflowException: it failed, and may be tried again.
    """
    result = _read(result_file) if result_file is not None else {}
    if code == REFUSED:
        raise AirflowFailException(f"dpbeam refuses, no retry: {result.get('error') or 'its log says why'}")
    if code != 0:
        raise AirflowException(f"dpbeam ended with {code}: {result.get('error') or 'its log says why'}")
    if result_file is None:
        return None
    if result.get("exit_code") != 0:  # the next try finds the release out, and writes it
        raise AirflowException(f"dpbeam ended with 0, and '{result_file}' does not tell of it")
    return {name: result[name] for name in TO_XCOM}


def _make_folder(path: str) -> None:
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
