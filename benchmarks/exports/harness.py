"""A study as a test of the harness ReFrame, from a template.

The harness has an allocation of its own, and `dlscale run` starts its ranks in there; ranks are dlscale's to start,
so the harness puts no launcher before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

# Makes `dlscale run`, on a system with a scheduler, use the allocation that it runs in.
IN_ALLOCATION = ("--in-allocation",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessRun:
    """A study on a system, at some sizes. `study` and `system` are names, or absolute paths of TOML files."""

    study: str
    study_title: str
    system: str
    system_title: str
    backends: tuple[str, ...]
    scheduled: bool  # whether sizes are nodes of an allocation, or ranks on the only machine
    sizes: tuple[int, ...]
    ranks_per_node: int
    cpus_per_rank: int  # hardware threads
    minutes: int  # of wall time that the whole study may take
    more: tuple[str, ...] = ()  # the user's options for `dlscale run`

    @property
    def name(self) -> str:
        """The test's name: an identifier in Python, and safe as a file name."""
        stem = self.study.rpartition("/")[2].removesuffix(".toml")
        return "dlscale_" + re.sub(r"\W+", "_", stem, flags=re.ASCII)

    def words(self) -> list[str]:
        """The words after `dlscale`, each quoted for a shell."""
        sizes, backends = (",".join(map(str, values)) for values in (self.sizes, self.backends))
        words = (
            *("run", self.study, "--system", self.system, *(IN_ALLOCATION if self.scheduled else ())),
            *(
                "--nodes" if self.scheduled else "--ranks",
                sizes,
                "--backends",
                backends,
                "--results",
                "results",
            ),
            *self.more,
        )
        return [shlex.quote(word) for word in words]


def one_line(text: str) -> str:
    """Text for a comment or a docstring: one line of printable characters that ends neither."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable()).replace("\\", "/").replace('"', "'")


def reframe_test(run: HarnessRun, *, valid_systems: Sequence[str]) -> str:
    """The file: one test, whose job has as many nodes as the largest size and runs all of them on parts of it.

    Words that ReFrame writes into its job script come quoted for the shell; what is put into the template is not
    looked at again.
    """
    nodes = ""
    if run.scheduled:
        nodes = _reframe_lines(
            f"num_tasks = {max(run.sizes) * run.ranks_per_node}",
            f"num_tasks_per_node = {run.ranks_per_node}",
            f"num_cpus_per_task = {run.cpus_per_rank}",
            "exclusive_access = True",
        )
    values = {
        "NAME": run.name,
        "TITLE": one_line(f"{run.study_title} on {run.system_title}"),
        "VALID_SYSTEMS": repr(list(valid_systems)),
        "WORDS": "".join(f"\n        {word!r}," for word in run.words()) + "\n    ",
        "TIME_LIMIT": repr(f"{run.minutes}m"),
        "NODES": nodes,
    }
    template = (
        resources.files("dlscale.benchmarks.exports").joinpath("reframe.py.template").read_text("utf-8")
    )
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], template)


def _reframe_lines(*lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines)
