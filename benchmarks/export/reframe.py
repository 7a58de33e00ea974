"""A ReFrame test of a study."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dlscale.benchmarks.export.harness import HarnessRun, fill, one_line


def reframe_test(run: HarnessRun, *, valid_systems: Sequence[str]) -> str:
    """The file: one test, whose job has as many nodes as the largest size and runs all of them on parts of it.

    Words that ReFrame writes into its job script come quoted for the shell.
    """
    sizes, backends = (shlex.quote(",".join(map(str, values))) for values in (run.sizes, run.backends))
    nodes = ""
    if run.scheduled:
        nodes = _lines(
            f"num_tasks = {max(run.sizes) * run.ranks_per_node}",
            f"num_tasks_per_node = {run.ranks_per_node}",
            f"num_cpus_per_task = {run.cpus_per_rank}",
            "exclusive_access = True",
        )
    return fill(
        "reframe.py",
        name=run.name,
        title=one_line(f"{run.study_title} on {run.system_title}"),
        valid_systems=repr(list(valid_systems)),
        words="".join(f"\n        {word!r}," for word in run.words(sizes=sizes, backends=backends))
        + "\n    ",
        time_limit=repr(f"{run.minutes}m"),
        nodes=nodes,
    )


def _lines(*lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines)
