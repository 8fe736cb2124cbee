"""Simulates seeds; one that fails prints its schedule, without the faults that it does not need to fail."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace

from tests.simulation.mutations import MUTATIONS, mutated
from tests.simulation.stories import COMMANDS, Story, play, warm


def shrunk(story: Story) -> Story:
    """The same story with no fault that it does not need to fail."""
    going = True
    while going:
        going = False
        fewer = [
            replace(story, faults=story.faults[:n] + story.faults[n + 1 :]) for n in range(len(story.faults))
        ]
        for less in [*fewer, *([replace(story, between="")] if story.between else [])]:
            if play(less)[0] is not None:
                story, going = less, True
                break
    return story


def seeds(options: argparse.Namespace) -> int:
    """Play seeds, some at once; 1 where one fails."""
    began = time.monotonic()
    for command in options.command:
        warm(command)
    readers = []
    for number in range(options.processes):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, json.dumps(_some(options, number)).encode())
            os._exit(0)
        os.close(writer)
        readers.append(open(reader))  # noqa: SIM115
    parts = [json.load(reader) for reader in readers]
    failed = sorted(seed for _, some in parts for seed in some)
    operations, seconds = sum(count for count, _ in parts), time.monotonic() - began
    print(f"{options.seeds} seeds, {operations} operations, {seconds:.0f} s; failed: {failed or 'none'}")
    return bool(failed)


def _some(options: argparse.Namespace, number: int) -> tuple[int, list[int]]:
    """Of one process: the operations of its seeds, and those that fail."""
    operations, failed = 0, []
    for seed in range(options.first + number, options.first + options.seeds, options.processes):
        story = Story.drawn(seed, options.command)
        wrong, world = play(story)
        operations += sum(process.count for process in world.processes)
        if options.lines:
            print(story, *world.lines, sep="\n", flush=True)
        if wrong is not None:
            failed.append(seed)
            again, its_world = play(story := shrunk(story))
            if again is None:
                print("once, and not again:")
            else:
                wrong, world = again, its_world
            print("\n".join([str(story), *world.lines[-60:], wrong]), flush=True)
    return operations, failed


def first_seen(name: str, options: argparse.Namespace) -> tuple[int, str] | None:
    """After how many seeds a fault that is put back is seen, and by what; None: it is not."""
    for command in options.command:
        warm(command)
    with mutated(name):
        for number in range(options.seeds):
            story = Story.drawn(options.first + number, options.command)
            wrong = play(story)[0]
            if wrong is not None:
                return number + 1, wrong.splitlines()[0]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first (default: %(default)s)")
    parser.add_argument("--command", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="at once (default: %(default)s)"
    )
    parser.add_argument("--lines", action="store_true", help="print the schedule of every seed")
    parser.add_argument(
        "--faults",
        nargs="*",
        choices=MUTATIONS,
        help="put faults back, all by default: after how many seeds is each seen",
    )
    options = parser.parse_args()
    if options.faults is None:
        return seeds(options)
    print("| fault | what is wrong | seeds |\n|---|---|---|")
    missed = 0
    for name in options.faults or MUTATIONS:
        seen = first_seen(name, options)
        missed += seen is None
        print(f"| {name} | {MUTATIONS[name][0]} | {'not seen' if seen is None else seen[0]} |", flush=True)
        if options.lines and seen is not None:
            print(f"    {seen[1]}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
