"""Our allreduce between four hosts with 1 Gbit/s links, beside what the wire allows and beside others.

    python tests/network/four_hosts.py [--launches 3] [--rounds 5] [--sizes 25MiB,100MiB] [--raw FILE]

The hosts are network namespaces on this machine (hosts.py), so this is emulated, and it needs root. In every round
of every launch, one after the other and each in lockstep on the slowest rank:

  sockets     2 (P - 1) / P of the message to the next host over plain TCP, all four at once: the bound
  bare        as many bytes by a bare Isend / Irecv ring, in the best of the segment sizes that were tried before
  mpi         MPI_Allreduce
  exchange    the part of our engine between nodes, called from C++
  ring        our engine, as users call it from Python
  gloo        torch.distributed, in launches of its own with `ring`, in turn with the others

Ends with 0 if our engine takes at most 1 / 0.92 of the time of the bound or 1 / 0.97 of that of the bare ring,
whichever is longer, and less than MPI and Gloo, at every size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from hosts import missing, run_on_hosts

TOP = Path(__file__).parents[2]
SOURCES = TOP / "collectives/ring/src"
EXCHANGE = [
    "arithmetic",
    "broadcast",
    "direct",
    "doubling",
    "exchange",
    "mpi_transport",
    "plan",
    "ring",
    "schedule",
]
SEGMENTS = [1 << i for i in range(14, 23)]  # 16 KiB .. 4 MiB
OF_BOUND, OF_BARE = 0.92, 0.97
NAMES = {"ours": "exchange"}

Rows = list[dict[str, Any]]


def compile_race(folder: Path) -> Path:
    """The program four_hosts.cpp for the MPI of this environment."""
    executable = folder / "four_hosts"
    files = [f"network/{name}.cpp" for name in [*EXCHANGE, "tuning"]]
    files += ["reduction/dispatch.cpp", "reduction/kernels_portable.cpp"]
    subprocess.run(
        [
            *(str(Path(sys.prefix) / "bin" / "mpicxx"), "-std=c++17", "-O3", "-pthread", f"-I{SOURCES}"),
            *(str(Path(__file__).with_suffix(".cpp")), *(str(SOURCES / file) for file in files)),
            *("-o", str(executable)),
        ],
        check=True,
    )
    return executable


def launch(command: list[str], *, number: int) -> Rows:
    """The rows that one launch printed. Raises RuntimeError with its output if it failed."""
    done = run_on_hosts(command, num_hosts=4, limit_seconds=400)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        row["launch"] = number
        row["way"] = NAMES.get(row["way"], row["way"])
    return rows


def seconds_by_way(rows: Rows) -> dict[str, float]:
    """Median over all rounds of all launches."""
    samples = defaultdict(list)
    for row in rows:
        samples[row["way"]].append(row["seconds"])
    return {way: statistics.median(seconds) for way, seconds in samples.items()}


def best_segment(race: Path, message_bytes: int) -> int:
    """Of the bare ring at this size, by a few rounds before those that count."""
    ways = [f"bare:{segment}" for segment in SEGMENTS]
    seconds = seconds_by_way(launch([str(race), str(message_bytes), "2", *ways], number=-1))
    for way, taken in seconds.items():
        write(f"  {way.replace('bare:', 'bare ring in segments of '):38s}{taken * 1e3:9.1f} ms")
    return int(min(seconds, key=seconds.__getitem__).split(":")[1])


def measure(race: Path, message_bytes: int, *, launches: int, rounds: int) -> Rows:
    """All ways at one size."""
    segment = best_segment(race, message_bytes)
    rows: Rows = []
    size, times = str(message_bytes), str(rounds)
    for number in range(launches):
        rows += launch([str(race), size, times, "sockets", f"bare:{segment}", "mpi", "ours"], number=number)
        program = [sys.executable, str(Path(__file__).with_name("python_ranks.py"))]
        rows += launch([*program, size, times, "ring", "gloo"], number=number)
    return rows


def judge(rows: Rows, message_bytes: int) -> bool:
    """Print the times of one size and whether they are good enough."""
    seconds = seconds_by_way(rows)
    bare = next(way for way in seconds if way.startswith("bare:"))
    bound, ours = seconds["sockets"], seconds["ring"]
    write(f"{message_bytes / 2**20:g} MiB, fp32 sum, 4 hosts x 1 rank, 1 Gbit/s (emulated)")
    write(f"  {'way':20s}{'median ms':>10s}{'algbw GB/s':>12s}{'of bound':>10s}{'of bare':>10s}")
    for way, taken in sorted(seconds.items(), key=lambda item: item[1]):
        speed = message_bytes / taken / 1e9
        write(
            f"  {way:20s}{taken * 1e3:10.1f}{speed:12.4f}{bound / taken:10.3f}{seconds[bare] / taken:10.3f}"
        )
    allowed = max(bound / OF_BOUND, seconds[bare] / OF_BARE)
    verdicts = {
        f"at least {OF_BOUND} of the bound or {OF_BARE} of the bare ring, whichever is lower": ours
        <= allowed,
        "ahead of MPI_Allreduce": ours < seconds["mpi"],
        "ahead of Gloo": ours < seconds["gloo"],
    }
    for what, met in verdicts.items():
        write(f"  {'met   ' if met else 'MISSED'} {what}")
    return all(verdicts.values())


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def size_in_bytes(text: str) -> int:
    """25MiB -> 26214400."""
    for unit, factor in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)


def main() -> int:
    """All sizes, one after the other."""
    parser = argparse.ArgumentParser(description="Time our allreduce between four emulated hosts")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="25MiB,100MiB")
    parser.add_argument("--raw", type=Path, help="append every sample to this file, as lines of JSON")
    arguments = parser.parse_args()
    reason = missing()
    if reason:
        sys.stderr.write(f"no hosts can be made here: {reason}\n")
        return 1
    good = True
    with tempfile.TemporaryDirectory() as folder:
        race = compile_race(Path(folder))
        for size in (size_in_bytes(text) for text in arguments.sizes.split(",")):
            rows = measure(race, size, launches=arguments.launches, rounds=arguments.rounds)
            if arguments.raw:
                with arguments.raw.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
            good = judge(rows, size) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
