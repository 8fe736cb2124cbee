"""The flags that belong to Beam, by kind, known without importing Beam (0.8 s).

`dpbeam/data/beam_flags.json` is the table of one version of Beam, written by `python -m dpbeam.jobs.beam_flags`; a test
compares it with the installed Beam. With another version, a flag that the table does not know is looked up in Beam.

The job servers of Flink and Spark have further flags, which Beam asks them for when it submits a job:
`dpbeam/data/job_server_flags.json`, written by `python -m dpbeam.jobs.beam_flags HOST:PORT ...` from servers that run.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import sys
from collections.abc import Callable, Iterable
from importlib import metadata, resources
from typing import Any

from dpbeam.errors import SettingError

# Ours where both have it, and argparse's own.
_NOT_BEAMS = frozenset(("help", "h", "dry_run"))

#: Flags of dpbeam's own runner, which Beam hands on to it.
_OF_OUR_RUNNER = {"spark_conf": "list"}

#: Flags of Beam that hold credentials, which it stores with the job.
SECRETS = frozenset(
    ("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "azure_connection_string")
)
#: Variables with credentials, which a flag's value might set for the workers, such as that of `--environment_config`.
SECRET_VARIABLES = (
    "DPBEAM_FOLDER_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_CLIENT_SECRET",
    "PGPASSWORD",
)


@functools.cache
def _stored(name: str) -> dict[str, Any]:
    return json.loads(resources.files("dpbeam.data").joinpath(name).read_text(encoding="utf-8"))


def table() -> dict[str, Any]:
    """The stored table: "version", "flags" (name -> kind) and "choices" (name -> values)."""
    return _stored("beam_flags.json")


def of_job_servers() -> dict[str, str]:
    """Name -> kind of the flags that only the job servers of Flink and Spark know."""
    return _stored("job_server_flags.json")


def names() -> list[str]:
    """All flags of Beam, of the job servers and of our own runner, without dashes."""
    return [*table()["flags"], *of_job_servers(), *_OF_OUR_RUNNER]


@functools.cache
def is_current() -> bool:
    """Whether the table is that of the installed Beam."""
    return metadata.version("apache-beam") == table()["version"]


def kind_of(name: str) -> str | None:
    """ "switch", "integer", "number", "list" or "text" for a flag of Beam (without dashes), None for any other."""
    kind = table()["flags"].get(name) or of_job_servers().get(name) or _OF_OUR_RUNNER.get(name)
    if kind is None and name not in _NOT_BEAMS and not is_current():
        kind = table_of_beam()["flags"].get(name)
    return kind


def check_value(name: str, text: str) -> None:
    """Refuse a value with credentials, or that Beam would refuse, with one line for Beam's hundred.

    Raises:
      InputError: the value names a variable of SECRET_VARIABLES, is no number, or none of the choices.
    """
    secret = next((variable for variable in SECRET_VARIABLES if variable in text), None)
    if secret is not None:
        raise SettingError(
            f"--{name} names {secret}: credentials do not go with a job, which engines store and show; put it into the "
            "environment of the workers"
        )
    choices = table()["choices"].get(name)
    if choices and text not in choices and is_current():
        raise SettingError(f"--{name} must be one of {', '.join(choices)}, got '{text}'")
    convert = {"integer": int, "number": float}.get(kind_of(name) or "")
    if convert is None:
        return
    try:
        valid = math.isfinite(convert(text))
    except ValueError:
        valid = False
    if not valid:
        raise SettingError(
            f"--{name} must be {'an' if convert is int else 'a'} {kind_of(name)}, got '{text}'"
        )


def refused_by_beam(parse: Callable[[], object]) -> None:
    """Run Beam's own parsing of flags and turn its complaint into one line.

    Raises:
      InputError: Beam refuses a flag.
    """
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            parse()
    except SystemExit:
        lines = [line for line in told.getvalue().splitlines() if line.strip()]
        message = lines[-1].split("error: ", 1)[-1] if lines else "Beam refuses the flags"
        raise SettingError(message.removeprefix("argument ")) from None
    except ValueError as error:
        raise SettingError(f"Beam refuses a flag: {str(error).splitlines()[0]}") from None


def table_of_beam() -> dict[str, Any]:
    """The table of the installed Beam; imports Beam."""
    from apache_beam.options import pipeline_options

    flags, choices = {}, {}
    for cls in _below(pipeline_options.PipelineOptions):
        parser = pipeline_options._BeamArgumentParser(allow_abbrev=False)
        cls._add_argparse_args(parser)
        for option, action in parser._option_string_actions.items():
            name = option.lstrip("-")
            if name in _NOT_BEAMS:
                continue
            flags[name] = _kind(action)
            if action.choices:
                choices[name] = [str(choice) for choice in action.choices]
    return {"version": metadata.version("apache-beam"), "flags": flags, "choices": choices}


def table_of_job_servers(*endpoints: str) -> dict[str, str]:
    """The flags that these job servers know and this Beam does not; imports Beam.

    Args:
      endpoints: HOST:PORT of each.
    """
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    kinds = {"BOOLEAN": "switch", "INTEGER": "integer", "NUMBER": "number", "ARRAY": "list"}
    kind_by_name = {}
    for endpoint in endpoints:
        with grpc.insecure_channel(endpoint) as channel:
            server = beam_job_api_pb2_grpc.JobServiceStub(channel)
            described = server.DescribePipelineOptions(
                beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=60
            )
        for option in described.options:
            kind = beam_job_api_pb2.PipelineOptionType.Enum.Name(option.type)
            kind_by_name[option.name] = kinds.get(kind, "text")
    return {name: kind for name, kind in kind_by_name.items() if name not in table()["flags"]}


def _below(cls: Any) -> Iterable[Any]:
    """Subclasses that Beam itself defines: a test or a plugin may add its own."""
    for sub in cls.__subclasses__():
        if sub.__module__ == "apache_beam.options.pipeline_options":
            yield sub
        yield from _below(sub)


def _kind(action: Any) -> str:
    if action.nargs == 0:
        return "switch"
    if type(action).__name__ in ("_AppendAction", "_CommaSeparatedListAction"):
        return "list"
    return {int: "integer", float: "number"}.get(action.type, "text")


if __name__ == "__main__":
    asked = table_of_job_servers(*sys.argv[1:]) if sys.argv[1:] else table_of_beam()
    json.dump(asked, sys.stdout, indent=1, sort_keys=True)
    print()
