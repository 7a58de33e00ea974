"""A study as a test of another harness: ReFrame, JUBE, Ramble, each from a template.

The harness has an allocation of its own, and `dlscale run` starts its ranks in there; ranks are dlscale's to start,
so no harness puts a launcher before it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

from dlscale.base.errors import UsageError

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
        resources.files("dlscale.benchmarks.exports")
        .joinpath("templates", f"{template}.template")
        .read_text("utf-8")
    )
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1].lower()], text)


def one_line(text: str) -> str:
    """Text for a comment or a docstring: one line of printable characters that ends neither."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable()).replace("\\", "/").replace('"', "'")


def reframe_test(run: HarnessRun, *, valid_systems: Sequence[str]) -> str:
    """The file: one test, whose job has as many nodes as the largest size and runs all of them on parts of it.

    Words that ReFrame writes into its job script come quoted for the shell.
    """
    sizes, backends = (shlex.quote(",".join(map(str, values))) for values in (run.sizes, run.backends))
    nodes = ""
    if run.scheduled:
        nodes = _reframe_lines(
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


def _reframe_lines(*lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines)


def jube_file(run: HarnessRun) -> str:
    """The YAML file: a work package for each size and backend. JSON strings are YAML strings."""
    words = run.words(sizes="${size}", backends="${backend}", escape=lambda word: word.replace("$", "$$"))
    return fill(
        "jube.yaml",
        name=run.name,
        title=json.dumps(one_line(f"{run.study_title} on {run.system_title}")),
        size_name=run.size_name,
        sizes=json.dumps(",".join(map(str, run.sizes))),
        backends=json.dumps(",".join(run.backends)),
        command=json.dumps(f"dlscale {' '.join(words)} --compatibility-lines"),
    )


def ramble_files(run: HarnessRun) -> dict[str, str]:
    """Path below a folder -> content: a repository that has the application, and a workspace's configuration.

    Raises UsageError for words with braces, which Ramble expands wherever they stand.
    """
    name = run.name.replace("_", "-")
    title = one_line(f"{run.study_title} on {run.system_title}")
    command = " ".join(
        run.words(sizes=f"{{n_{run.size_name}}}", backends="{backend}", escape=_without_braces)
    )
    application = fill(
        "ramble_application.py",
        class_name="".join(part.capitalize() for part in name.split("-")),
        name=repr(name),
        title=title,
        command=repr(f"dlscale {command} --compatibility-lines"),
    )
    sizes = json.dumps(list(run.sizes))
    per_node, ranks = str(run.ranks_per_node), "'{n_nodes}*{processes_per_node}'"
    workspace = fill(
        "ramble.yaml",
        name=name,
        title=title,
        size_name=f"n_{run.size_name}",
        backends=json.dumps(list(run.backends)),
        nodes=sizes if run.scheduled else "1",
        ranks=ranks if run.scheduled else sizes,
        per_node=per_node if run.scheduled else "'{n_ranks}'",
    )
    return {
        "repo/repo.yaml": "repo:\n  namespace: dlscale\n",
        f"repo/applications/{name}/application.py": application,
        "ramble.yaml": workspace,
    }


def _without_braces(word: str) -> str:
    if "{" in word or "}" in word:
        raise UsageError(
            f"{word} has braces, which Ramble would expand; leave it out, and add it to ramble.yaml"
        )
    return word
