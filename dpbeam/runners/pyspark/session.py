"""The Spark that a job runs on: the session that stands, that of `spark-submit`, or one of our own.

A session that stands is taken as it is: a notebook's, or what a program made before. Otherwise one is made from
`--spark_master_url` and `--spark_conf`, beside what Spark reads itself (`spark-defaults.conf`, its environment),
and stopped when the program ends.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

from dpbeam.errors import SettingError, SetupError

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Where a session is made and no master named.
ALL_CORES = "local[*]"
_ON_THIS_MACHINE = re.compile(r"local(\[[^\]]*\])?|local-cluster\[[^\]]*\]")
#: By which spark-submit tells the program that it starts where its Java listens.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_CONNECT = (
    "--runner=PySparkRunner: this is a session of Spark Connect, which has no RDDs; take a classic session (--master "
    "of spark-submit, not --remote; on Databricks a cluster with dedicated access)"
)


def is_on_this_machine(master: str) -> bool:
    """Whether all of this Spark runs here: `local[...]`, or `local-cluster[...]`, whose workers are processes."""
    return _ON_THIS_MACHINE.fullmatch(master) is not None


def standing() -> SparkContext | None:
    """The context of a session that this process has made; of `spark-submit`'s, made now.

    Raises:
      InputError: it is one of Spark Connect.
    """
    if "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        raise SetupError(_CONNECT)
    if "pyspark" not in sys.modules and _SUBMITTED not in os.environ:
        return None
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    return SparkContext.getOrCreate() if _SUBMITTED in os.environ else None


def open_session(master: str | None, settings: Sequence[str], name: str) -> SparkContext:
    """The context that a job runs on.

    Args:
      master: as Spark spells it; None: the standing session's, or Spark's own default, all cores of this machine.
      settings: "key=value" each, of Spark's configuration.
      name: of the application, where one is made.

    Raises:
      InputError: the standing session has another master or other settings, or a setting is no "key=value".
    """
    wanted = parse(settings)
    context = standing()
    if context is not None:
        _check_same(context, master, wanted)
        return context
    return _new_context(master or ALL_CORES, wanted, name)


def parse(settings: Sequence[str]) -> dict[str, str]:
    """Settings by their keys.

    Raises:
      InputError: one is no "key=value", or names the master.
    """
    by_key = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (equals and key.startswith("spark.")):
            raise SettingError(f"--spark_conf must be spark.KEY=VALUE, got '{key}'")
        if key == "spark.master":
            raise SettingError("--spark_conf: the master is --spark_master_url")
        by_key[key] = value
    return by_key


def _check_same(context: SparkContext, master: str | None, wanted: dict[str, str]) -> None:
    if master is not None and context.master != master:
        raise SettingError(
            f"--spark_master_url: the session that stands here has the master {context.master}; drop the flag, or stop "
            "the session"
        )
    conf = context.getConf()
    other = next((key for key, value in wanted.items() if conf.get(key) != value), None)
    if other is not None:
        raise SettingError(
            f"--spark_conf: the session that stands here has another {other}; drop the setting"
        )


def _new_context(master: str, wanted: dict[str, str], name: str) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    # Spark would take whatever python3 is on the path, which may lack dpbeam.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName(name).setMaster(master)
    conf.set("spark.ui.showConsoleProgress", "false")
    if is_on_this_machine(master):
        # Nothing of it is for other machines to see.
        for key in ("spark.driver.bindAddress", "spark.driver.host"):
            conf.set(key, "127.0.0.1")
        conf.set("spark.ui.enabled", "false")
        conf.set("spark.python.daemon.module", "dpbeam.runners.pyspark.daemon")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    verbose = logging.getLogger().isEnabledFor(logging.INFO)
    if not verbose:
        # Its traces would bury the one line that says what is wrong; that comes with the exception.
        quiet = resources.files("dpbeam.data").joinpath("spark_log4j2.properties")
        conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
    for key, value in wanted.items():
        conf.set(key, value)
    context = SparkContext(conf=conf)
    if not verbose:
        context.setLogLevel("OFF")
    atexit.register(_stop, context, verbose)
    return context


def _stop(context: SparkContext, verbose: bool) -> None:
    """End our own session; what its threads say of what they no longer reach is for --verbose."""
    if not verbose:
        with contextlib.suppress(Exception):  # Java before 11, or one that is gone
            java = context._jvm.java
            java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
    context.stop()
