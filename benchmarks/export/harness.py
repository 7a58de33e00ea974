"""What another harness is asked to run, and filling its templates.

The harness has an allocation of its own, and `dlscale run` starts its ranks in there; ranks are dlscale's to start,
so no harness puts a launcher before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

# What `dlscale run` is told, on a system with a scheduler, so that it uses the allocation that it is in.
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
    more: tuple[str, ...] = ()  # words of the user's for `dlscale run`

    @property
    def name(self) -> str:
        """Of the test: an identifier in Python, and safe as a file name."""
        stem = self.study.rpartition("/")[2].removesuffix(".toml")
        return "dlscale_" + re.sub(r"\W+", "_", stem, flags=re.ASCII)

    @property
    def size_name(self) -> str:
        """The option of `dlscale run` that takes sizes, without its dashes."""
        return "nodes" if self.scheduled else "ranks"

    def words(
        self, *, sizes: str, backends: str, escape: Callable[[str], str] = lambda word: word
    ) -> list[str]:
        """The words after `dlscale`, each quoted for a shell and then escaped for the harness.

        `sizes` and `backends` are taken as they are: most harnesses have names of their own there.
        """
        before = ("run", self.study, "--system", self.system, *(IN_ALLOCATION if self.scheduled else ()))
        chosen = (f"--{self.size_name}", sizes, "--backends", backends, "--results", "results")
        return [
            *(escape(shlex.quote(word)) for word in before),
            *chosen,
            *(escape(shlex.quote(word)) for word in self.more),
        ]


def fill(template: str, **values: str) -> str:
    """The template of that name with every @PLACEHOLDER@ replaced; what is put in is not looked at again.

    Raises KeyError for a placeholder without a value. Values come escaped for the template's own language.
    """
    text = (
        resources.files("dlscale.benchmarks.export")
        .joinpath("templates", f"{template}.template")
        .read_text("utf-8")
    )
    return re.sub(r"@([A-Z_]+)@", lambda found: values[found[1].lower()], text)


def one_line(text: str) -> str:
    """Text for a comment or a docstring: one line of printable characters that ends neither."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable()).replace("\\", "/").replace('"', "'")
