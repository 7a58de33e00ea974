"""Starts a program of others on the CPU of its rank: python -m dlscale.benchmarks.message_sizes.bound CPUS PROGRAM ...

Rank r of the node gets number r of CPUS, a list with commas, modulo their number: as our own programs bind
themselves, whatever the launcher.
"""

from __future__ import annotations

import os
import sys

from dlscale.benchmarks.rank.affinity import local_rank


def main() -> None:
    """Never returns."""
    cpus, *command = sys.argv[1:]
    choices = [int(cpu) for cpu in cpus.split(",")]
    os.sched_setaffinity(0, {choices[local_rank() % len(choices)]})
    os.execv(command[0], command)  # noqa: S606 - no shell, and the path is ours


if __name__ == "__main__":
    main()
