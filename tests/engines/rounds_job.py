"""A small job with the shape of dpbeam's rounds, and faults on demand; run as a program on any runner.

Blocks send weights to shards and shards send values back, twice; only `(int, bytes)` messages are shuffled, state lies
in files of a shared folder that appear by rename. Everything is a function of the input, so any runner, any
parallelism and any retry must write the same bytes. It runs as `__main__`, so Beam ships its functions by value and
the engines' workers need nothing of the tests.

    python rounds_job.py --folder SHARED --output FILE [--fault KIND] [Beam options]
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

ROUNDS = 2
MODULUS = 1_000_003


class Faults:
    """Breaks once per job, at shard 0 of the last round, after some elements were already emitted.

    kinds: raise (an exception), hold (tells `reached`, waits for `go`, so that a
    test can kill something from outside), none.
    """

    def __init__(self, folder: str, kind: str):
        self.folder = folder
        self.kind = kind

    def strike(self) -> None:
        if self.kind == "none":
            return
        if self.kind == "hold":
            self._first("reached")
            while not os.path.exists(os.path.join(self.folder, "go")):
                time.sleep(0.1)
            return
        if not self._first("struck"):
            return
        raise RuntimeError("planted fault: once")

    def _first(self, name: str) -> bool:
        """Make the mark with this process's id in it; False if it was there."""
        own = os.path.join(self.folder, f"{name}.{os.getpid()}.{time.monotonic_ns()}")
        with open(own, "w") as mark:
            mark.write(str(os.getpid()))
        try:
            os.link(own, os.path.join(self.folder, name))
            return True
        except FileExistsError:
            return False


def write_state(folder: str, name: str, values: np.ndarray) -> None:
    temporary = os.path.join(folder, f"{name}.{os.getpid()}.{time.monotonic_ns()}.part")
    with open(temporary, "wb") as sink:
        sink.write(values.astype("<i8").tobytes())
    os.replace(temporary, os.path.join(folder, name))


def read_state(folder: str, name: str) -> np.ndarray:
    with open(os.path.join(folder, name), "rb") as source:
        return np.frombuffer(source.read(), dtype="<i8")


def message(sender: int, values: np.ndarray) -> bytes:
    return np.concatenate([[sender], values]).astype("<i8").tobytes()


def received(messages, senders: int, width: int) -> np.ndarray:
    """Messages in the order of their senders; a lost or doubled message is an error, not a smaller sum."""
    table = np.array(sorted(np.frombuffer(m, dtype="<i8").tolist() for m in messages), dtype="<i8")
    if table.shape != (senders, width + 1) or (table[:, 0] != np.arange(senders)).any():
        raise RuntimeError(f"expected one message from each of {senders} senders, got {len(table)}")
    return table[:, 1:]


class StartBlock(beam.DoFn):
    """block number -> first message to every shard; the block's state goes to a file."""

    def __init__(self, folder: str, shards: int, width: int):
        self.folder, self.shards, self.width = folder, shards, width

    def process(self, block: int):
        values = np.arange(self.shards * self.width, dtype="<i8") * (block + 1) % MODULUS
        write_state(self.folder, f"block-{block}-0", values)
        for shard, part in enumerate(values.reshape(self.shards, self.width)):
            yield shard, message(block, part)


class Shard(beam.DoFn):
    """(shard, messages of all blocks) -> (block, value); the shard's state is versioned by round."""

    def __init__(self, folder: str, turn: int, blocks: int, width: int, faults: Faults):
        self.folder, self.turn, self.blocks, self.width, self.faults = folder, turn, blocks, width, faults

    def process(self, element):
        shard, messages = element
        total = received(messages, self.blocks, self.width).sum(axis=0) % MODULUS
        if self.turn:
            total = (total + read_state(self.folder, f"shard-{shard}-{self.turn - 1}")) % MODULUS
        write_state(self.folder, f"shard-{shard}-{self.turn}", total)
        for block in range(self.blocks):
            if shard == 0 and block == self.blocks // 2 and self.turn == ROUNDS - 1:
                self.faults.strike()
            yield block, message(shard, (total * (block + 1)) % MODULUS)


class Block(beam.DoFn):
    """(block, values of all shards) -> (shard, message)."""

    def __init__(self, folder: str, turn: int, shards: int, width: int):
        self.folder, self.turn, self.shards, self.width = folder, turn, shards, width

    def process(self, element):
        block, messages = element
        values = received(messages, self.shards, self.width)
        state = read_state(self.folder, f"block-{block}-{self.turn}").reshape(self.shards, self.width)
        state = (3 * state + values) % MODULUS
        write_state(self.folder, f"block-{block}-{self.turn + 1}", state.ravel())
        for shard in range(self.shards):
            yield shard, message(block, state[shard])


def to_lines(element) -> str:
    block, messages = element
    table = sorted(np.frombuffer(m, dtype="<i8").tolist() for m in messages)
    return f"{block} {hash_of(np.array(table))}"


def hash_of(values: np.ndarray) -> int:
    """A checksum in plain integers, equal on every machine."""
    return int(np.dot(values.ravel() % 9973, np.arange(1, values.size + 1) % 9967))


def build(pipeline: beam.Pipeline, args: argparse.Namespace):
    faults = Faults(args.folder, args.fault)
    sent = (
        pipeline
        | "Blocks" >> beam.Create(range(args.blocks), reshuffle=True)
        | "Start"
        >> beam.ParDo(StartBlock(args.folder, args.shards, args.width)).with_output_types(tuple[int, bytes])
    )  # (shard, message)
    for turn in range(ROUNDS):
        back = (
            sent
            | f"ToShards{turn}" >> beam.GroupByKey()
            | f"Shard{turn}"
            >> beam.ParDo(Shard(args.folder, turn, args.blocks, args.width, faults)).with_output_types(
                tuple[int, bytes]
            )
        )  # (block, value)
        grouped = back | f"ToBlocks{turn}" >> beam.GroupByKey()
        if turn + 1 < ROUNDS:
            step = Block(args.folder, turn, args.shards, args.width)
            sent = grouped | f"Block{turn}" >> beam.ParDo(step).with_output_types(tuple[int, bytes])
    lines = grouped | "Lines" >> beam.Map(to_lines).with_output_types(str)
    # A second consumer: an engine that recomputes a collection for it must reach the same values.
    _ = (
        lines
        | "One" >> beam.Map(lambda line: (0, line)).with_output_types(tuple[int, str])
        | "Gather" >> beam.GroupByKey()
        | "Write" >> beam.MapTuple(lambda _, items: write_lines(args.output, sorted(items)))
    )
    _ = (
        lines
        | "Count" >> beam.combiners.Count.Globally()
        | "WriteCount" >> beam.Map(lambda n: write_lines(args.output + ".count", [str(n)]))
    )


def write_lines(path: str, lines: list[str]) -> None:
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}.part"
    with open(temporary, "w") as sink:
        sink.write("".join(line + "\n" for line in lines))
    os.replace(temporary, path)


def main(argv: list[str]) -> int:
    from dpbeam.runners import job, options  # the launcher has it; shipped functions must not need it

    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--fault", choices=["none", "raise", "hold"], default="none")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--width", type=int, default=1000)
    args, beam_flags = parser.parse_known_args(argv)
    beam_flags = options.complete(beam_flags)
    pipeline = beam.Pipeline(options=PipelineOptions(beam_flags))
    build(pipeline, args)
    try:
        job.run_and_wait(pipeline, beam_flags)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
