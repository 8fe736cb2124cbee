"""Where jobs run: the tested matrix, the flags that each engine needs, a preflight, and waiting for a job.

- `options.complete(argv)` turns `--runner=FlinkRunner --flink_master=HOST:PORT` into the full list of Beam flags.
- `check.preflight(argv, paths)` says in one table what is missing.
- `job.run_and_wait(pipeline, argv)` runs a job and cancels it on Ctrl-C.

Nothing is imported here: a worker needs none of it.
"""
