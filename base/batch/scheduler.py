"""What a scheduler is: a row of words and patterns, which `Scheduler` makes scripts and commands of.

Values from the user become words of a script here: quoted, or refused where a line cannot hold them.
"""

from __future__ import annotations

import math
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

# Set by a script for its program where the scheduler has no variable of its own. Records keep variables that begin
# with DLSCALE_: these differ from job to job, and must not make records differ.
END_TIME_VARIABLE = "_DLSCALE_END_TIME"  # seconds since the epoch
NODES_VARIABLE = "_DLSCALE_NODES"  # a host list


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVariables:
    """Variables in which a scheduler describes a job. `hosts` names a file with a line per slot, `listed` the nodes."""

    job_id: str
    partition: str = ""
    listed: str = ""
    hosts: str = ""
    end_time: str = ""  # of the wall time, in seconds since the epoch
    restarts: str = ""  # how often the job was started before, or Y if it was


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job to submit. It gets whole nodes."""

    name: str
    num_nodes: int
    ranks_per_node: int
    seconds: float  # wall time; schedulers count whole minutes, and it is rounded up to them
    directives: tuple[str, ...] = ()  # the partition's own
    account: str | None
    output: str  # where stdout and stderr go, as a path seen from `folder`
    folder: str  # where the script runs
    after: str | None  # id of a job after whose end, however it ended, this may start
    warn_seconds: int = 120  # from SIGTERM to the end of the wall time, where the scheduler can send it
    # By which some schedulers count; 0: `batch_script` takes them from the system.
    cores_per_node: int = 0
    cpus_per_rank: int = 0

    @property
    def minutes(self) -> int:
        """The wall time in whole minutes, at least one."""
        return max(1, math.ceil(self.seconds / 60))

    @property
    def clock(self) -> str:
        """The wall time as HH:MM:SS."""
        return f"{self.minutes // 60:02d}:{self.minutes % 60:02d}:00"

    @property
    def output_path(self) -> str:
        """Where stdout and stderr go, wherever the job was submitted."""
        return str(PurePosixPath(self.folder) / self.output)

    @property
    def quoted_output(self) -> str:
        return quoted(self.output_path, "the output of the job")

    @property
    def quoted_folder(self) -> str:
        """The folder as a word."""
        return quoted(self.folder, "the folder of the job")


def table(text: str) -> list[tuple[str, str]]:
    """Id and state of each line of two words."""
    rows = (line.split() for line in text.splitlines())
    return [(row[0], row[1]) for row in rows if len(row) == 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One scheduler. Its methods go from values to texts and start nothing themselves.

    Patterns of states match the scheduler's whole word for one; what is neither pending nor ended runs. A scheduler
    may fail a query for one id that it has forgotten; `forgotten` is found in the failure's stderr if that was the
    reason, and not, for instance, that the scheduler is down.
    """

    name: str
    variables: JobVariables
    marker: str  # begins a directive
    job_name: str  # begins the option with the job's name
    options: Callable[[JobRequest], list[str]]  # those between its name and its account
    account: str
    after: str  # begins the option with the job before
    after_value: str = "{}"  # that job as the option has it
    longest_name: int = 100
    replaced: str = ""  # what the scheduler would replace in the path of the output
    submit: tuple[str, ...]  # the command that takes a script
    accepted: str  # pattern of what it prints; group 1 is the job's id
    query: Callable[[Sequence[str]], list[str]]  # the command that prints the states of jobs
    rows: Callable[[str], Iterable[tuple[str, str]]] = table  # ids and states in what it prints
    pending: str
    ended: str
    forgotten: str
    cancel: tuple[str, ...]  # the command that takes an id
    own_nodes: Callable[[Mapping[str, str]], list[str]] | None = None  # where `variables` do not say
    facts: Mapping[str, str] = field(default_factory=dict)  # variables that a script asks for by shell words
    # For the template that the probe writes: what tells that the scheduler is installed, and its option for queues.
    # Empty where the probe asks the scheduler itself.
    command: str = ""
    queue_option: str = "-q"

    def directives(self, request: JobRequest) -> list[str]:
        """Whole lines of a script, the partition's own last. Raises UsageError for what a line cannot hold."""
        if self.replaced and self.replaced in request.output_path:
            raise UsageError(
                f"the output of the job, {request.output_path}, has {self.replaced!r}, which {self.name} replaces or "
                "reads otherwise; take another folder for results"
            )
        lines = [self.job_name + _job_name(request.name, longest=self.longest_name), *self.options(request)]
        if request.account:
            lines.append(self.account + quoted(request.account, "the account"))
        if request.after:
            lines.append(self.after + quoted(self.after_value.format(request.after), "the job before"))
        lines += [one_line(directive, "a directive of the partition") for directive in request.directives]
        return [f"{self.marker} {line}" for line in dict.fromkeys(lines)]

    def job_id(self, text: str) -> str:
        """The id in what `submit` printed, after whatever a site's filter says. Raises ValueError if there is none."""
        ids = re.findall(self.accepted, _plain(text), re.MULTILINE)
        if not ids:
            raise ValueError(f"{self.name} printed no job id: {text!r}")
        return str(ids[-1])

    def states(self, text: str, ids: Sequence[str]) -> dict[str, State]:
        """The state of each of `ids` in what `query` printed, whose ids may have a longer or shorter server's name."""
        known = {_number(job): self._state(name) for job, name in self.rows(_plain(text))}
        return {job: known.get(_number(job), "unknown") for job in ids}

    def _state(self, name: str) -> State:
        if re.fullmatch(self.pending, name):
            return "pending"
        return "ended" if re.fullmatch(self.ended, name) else "running"

    def forgot(self, errors: str) -> bool:
        """Whether a query failed because the scheduler does not know a job any more."""
        return bool(re.search(self.forgotten, errors))

    def nodes(self, variables: Mapping[str, str]) -> list[str]:
        """The nodes of the surrounding job, in order. Raises ValueError outside one, OSError for a lost file."""
        if self.own_nodes:
            return self.own_nodes(variables)
        if self.variables.listed:
            return expand_hostlist(needed(variables, self.variables.listed))
        return hosts_in(variables, self.variables.hosts)

    def end_time(self, variables: Mapping[str, str]) -> float | None:
        """When the surrounding job's wall time ends, by its scheduler or else as its script computed it; if known."""
        found = (_finite(variables.get(name)) for name in (self.variables.end_time, END_TIME_VARIABLE))
        return next((seconds for seconds in found if seconds is not None), None)

    def restarts(self, variables: Mapping[str, str]) -> int:
        """How often the surrounding job was started before, as far as its scheduler says."""
        text = variables.get(self.variables.restarts)
        return int(text == "Y" or _finite(text) or 0)


def needed(variables: Mapping[str, str], name: str) -> str:
    """A variable's value. Raises ValueError where it is not set."""
    if name not in variables:
        raise ValueError(f"{name} is not set: this is not inside a job")
    return variables[name]


def hosts_in(variables: Mapping[str, str], name: str) -> list[str]:
    """The hosts in the file that a variable names, each once: such files have a line per rank."""
    lines = read_regular(needed(variables, name), links=True).decode().splitlines()
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _plain(text: str) -> str:
    """Flux begins its ids with f where the terminal has no ƒ, and takes that everywhere."""
    return text.replace("ƒ", "f")


def _number(job: str) -> str:
    return job.partition(".")[0]


def _finite(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_UNFIT = re.compile(r"[\x00\n\r]")
_TAIL = len("-job-000")
_NAME = re.compile(r"\$(?:\w+|\{\w+\})")


def one_line(value: str, what: str) -> str:
    """`value`, if it fits into a line. Raises UsageError for a line break or a NUL in it."""
    if _UNFIT.search(value):
        raise UsageError(
            f"{what} has a line break or a NUL in it ({value!r}), which no batch script can hold; remove it"
        )
    return value


def quoted(value: str, what: str) -> str:
    """`value` as one word for the shell and for the parsers of directives, taken literally."""
    return shlex.quote(one_line(value, what))


def quoted_words(values: Iterable[str], what: str) -> str:
    """Each of `values` as `quoted`, with blanks between them."""
    return " ".join(quoted(value, what) for value in values)


def quoted_path(value: str, what: str) -> str:
    """Quote like `quoted`, but leave $NAME and ${NAME} to the job's shell: such paths differ from user to user."""
    one_line(value, what)
    if not _NAME.search(value):
        return shlex.quote(value)
    literal = [re.sub(r'(["$`\\])', r"\\\1", part) for part in _NAME.split(value)]
    names = [*_NAME.findall(value), ""]
    return '"' + "".join(part + name for part, name in zip(literal, names, strict=True)) + '"'


def _job_name(value: str, *, longest: int) -> str:
    """A job's name as every scheduler takes it: it is only for people, so what does not fit is replaced.

    A long one keeps its end, which tells a study's jobs apart.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", value)
    name = name if name[:1].isalpha() else f"dlscale-{name}"
    return name if len(name) <= longest else name[: longest - _TAIL] + name[-_TAIL:]
