"""What a scheduler is: a row of words and patterns, which `Scheduler` makes directives and commands of.

Values from the user become words of a script here: quoted, or refused where a line cannot hold them.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.base.hostlist import expand_hostlist

# unknown: the scheduler does not know the job any more.
State = Literal["pending", "running", "ended", "unknown"]

# Set by a script for its program where the scheduler has no variable for it. Records keep variables that begin with
# DLSCALE_: these differ from job to job, and must not make records differ.
END_TIME_VARIABLE = "_DLSCALE_END_TIME"  # seconds since the epoch
NODES_VARIABLE = "_DLSCALE_NODES"  # a host list


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job to submit. It gets whole nodes."""

    name: str
    num_nodes: int
    ranks_per_node: int
    seconds: float  # wall time; schedulers count whole minutes, and it is rounded up to them
    directives: tuple[str, ...] = ()  # the partition's
    account: str | None
    output: str  # where stdout and stderr go, as a path seen from `folder`
    folder: str  # where the script runs
    warn_seconds: int = 120  # from SIGTERM to the end of the wall time, where the scheduler can send it
    # By which some schedulers count; 0: `batch_script` takes them from the system.
    cores_per_node: int = 0
    cpus_per_rank: int = 0

    @property
    def minutes(self) -> int:
        """The wall time in whole minutes, at least one."""
        return max(1, math.ceil(self.seconds / 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One scheduler. Its methods go from values to texts and start nothing themselves.

    Patterns of states match the scheduler's whole word; what is neither pending nor ended runs. A scheduler may fail a
    query for one id that it has forgotten; `forgotten` is found in the failure's stderr if that was the reason, and
    not, for instance, that the scheduler is down.
    """

    name: str
    # Variables of a job: its id, a file with a line per slot, a host list, and the end of the wall time in seconds
    # since the epoch.
    id_variable: str
    file_variable: str = ""
    list_variable: str = ""
    end_variable: str = ""
    launch_nodes: str = r"(?!)"  # pattern of hosts in that file that start no ranks
    marker: str  # begins a directive
    options: tuple[str, ...]  # directives with {fields} of `_fields`; left out where a field is empty
    longest_name: int = 100
    replaced: str = ""  # what the scheduler would replace in the path of the output
    submit: tuple[str, ...]  # the command that takes a script
    accepted: str  # pattern of what it prints; group 1 is the job's id
    query: Callable[[Sequence[str]], list[str]]  # the command that prints the states of jobs
    rows: str = r"^[ \t]*(\S+)[ \t]+(\S+)[ \t]*$"  # pattern of a job's id and state in what it prints
    pending: str
    ended: str
    forgotten: str
    facts: Mapping[str, str] = field(default_factory=dict)  # variables that a script asks for by shell words

    def directives(self, request: JobRequest) -> list[str]:
        """Whole lines of a script, the partition's last. Raises UsageError for what a line cannot hold."""
        output = str(PurePosixPath(request.folder) / request.output)
        if self.replaced and self.replaced in output:
            raise UsageError(
                f"the output of the job, {output}, has {self.replaced!r}, which {self.name} replaces or reads "
                "otherwise; take another folder for results"
            )
        minutes = request.minutes
        fields = {
            "name": self._job_name(request.name),
            "num_nodes": request.num_nodes,
            "ranks_per_node": request.ranks_per_node,
            "cpus_per_rank": request.cpus_per_rank,
            "cores_per_node": request.cores_per_node or request.ranks_per_node,
            "minutes": minutes,
            "short_clock": f"{minutes // 60}:{minutes % 60:02d}",
            "clock": f"{minutes // 60:02d}:{minutes % 60:02d}",
            "warn_seconds": request.warn_seconds,
            "warn_minutes": math.ceil(request.warn_seconds / 60),
            "folder": quoted(request.folder),
            "output": quoted(output),
            "account": quoted(request.account or "") if request.account else "",
        }
        lines = [
            line.format_map(fields)
            for line in self.options
            if all(fields[name] for name in re.findall(r"\{(\w+)\}", line))
        ]
        lines += map(one_line, request.directives)
        return [f"{self.marker} {line}" for line in dict.fromkeys(lines)]

    def _job_name(self, value: str) -> str:
        """A job's name as every scheduler takes it: it is only for people, so what does not fit is replaced.

        A long one keeps its end, which tells a study's jobs apart.
        """
        name = re.sub(r"[^A-Za-z0-9._-]", "-", value)
        name = name if name[:1].isalpha() else f"dlscale-{name}"
        tail = len("-job-000")
        return name if len(name) <= self.longest_name else name[: self.longest_name - tail] + name[-tail:]

    def job_id(self, text: str) -> str:
        """The id in what `submit` printed, after whatever a site's filter says. Raises ValueError if there is none."""
        ids = re.findall(self.accepted, _plain(text), re.MULTILINE)
        if not ids:
            raise ValueError(f"{self.name} printed no job id: {text!r}")
        return str(ids[-1])

    def states(self, text: str, ids: Sequence[str]) -> dict[str, State]:
        """The state of each of `ids` in what `query` printed, whose ids may have a longer or shorter server's name."""
        known: dict[str, State] = {}
        for job, word in re.findall(self.rows, _plain(text), re.MULTILINE | re.DOTALL):
            ended: State = "ended" if re.fullmatch(self.ended, word) else "running"
            known[job.partition(".")[0]] = "pending" if re.fullmatch(self.pending, word) else ended
        return {job: known.get(job.partition(".")[0], "unknown") for job in ids}

    def nodes(self, variables: Mapping[str, str]) -> list[str]:
        """The nodes of the surrounding job, in order. Raises ValueError outside one, OSError for a lost file."""
        if (path := variables.get(self.file_variable)) and (not self.list_variable or os.path.isfile(path)):
            lines = read_regular(path, links=True).decode().split()
            names = list(dict.fromkeys(lines))  # such files have a line per rank
            return [name for name in names if not re.match(self.launch_nodes, name)] or names
        if not (text := variables.get(self.list_variable)):
            raise ValueError(
                f"{self.list_variable or self.file_variable} is not set: this is not inside a job"
            )
        return expand_hostlist(f"[{text}]" if re.fullmatch(r"[\d,-]+", text) else text)

    def end_time(self, variables: Mapping[str, str]) -> float | None:
        """When the surrounding job's wall time ends, by its scheduler or else as its script computed it; if known."""
        return _finite(variables.get(self.end_variable)) or _finite(variables.get(END_TIME_VARIABLE))


def _plain(text: str) -> str:
    """Flux begins its ids with f where the terminal has no ƒ, and takes that everywhere."""
    return text.replace("ƒ", "f")


def _finite(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_NAME = re.compile(r"\$(?:\w+|\{\w+\})")


def one_line(value: str) -> str:
    """`value`, if it fits into a line. Raises UsageError for a line break or a NUL in it."""
    if re.search(r"[\x00\n\r]", value):
        raise UsageError(
            f"{value!r} has a line break or a NUL in it, which no batch script can hold; remove it"
        )
    return value


def quoted(value: str) -> str:
    """`value` as one word for the shell and for the parsers of directives, taken literally."""
    return shlex.quote(one_line(value))


def quoted_words(values: Iterable[str]) -> str:
    """Each of `values` as `quoted`, with blanks between them."""
    return " ".join(map(quoted, values))


def quoted_path(value: str) -> str:
    """Quote like `quoted`, but leave $NAME and ${NAME} to the job's shell: such paths differ from user to user."""
    if not _NAME.search(one_line(value)):
        return shlex.quote(value)
    literal = [re.sub(r'(["$`\\])', r"\\\1", part) for part in _NAME.split(value)]
    names = [*_NAME.findall(value), ""]
    return '"' + "".join(part + name for part, name in zip(literal, names, strict=True)) + '"'
