"""The interface of a scheduler: a job's request, the table of functions that each scheduler fills, and quoting.

There is one module per scheduler of `base/schedulers.py`, loaded on demand. Values from the user become words of a
script here: quoted, or refused where a line cannot hold them.
"""

from __future__ import annotations

import importlib
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from dlscale.base.errors import UsageError
from dlscale.base.schedulers import SCHEDULERS
from dlscale.benchmarks.systems.system import Partition

State = Literal[
    "pending", "running", "ended", "unknown"
]  # unknown: the scheduler does not know the job any more

# Set by a script for its program where the scheduler has no variable of its own. Records keep variables that begin
# with DLSCALE_: these differ from job to job, and must not make records differ.
END_TIME_VARIABLE = "_DLSCALE_END_TIME"  # seconds since the epoch
NODES_VARIABLE = "_DLSCALE_NODES"  # a host list


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job to submit. It gets whole nodes."""

    name: str
    num_nodes: int
    ranks_per_node: int
    seconds: float  # wall time; schedulers count whole minutes, and it is rounded up to them
    partition: Partition
    account: str | None
    output: str  # where stdout and stderr go, as a path seen from `folder`
    folder: str  # where the script runs
    after: str | None  # id of a job after whose end, however it ended, this may start
    warn_seconds: int = (
        120  # before its wall time ends the job's program gets SIGTERM, where the scheduler can do it
    )
    # By which some schedulers count; 0: `batch_script` takes them from the system.
    cores_per_node: int = 0
    cpus_per_rank: int = 0

    @property
    def minutes(self) -> int:
        """The wall time in whole minutes, at least one."""
        return max(1, math.ceil(self.seconds / 60))

    @property
    def output_path(self) -> str:
        """Where stdout and stderr go, wherever the job was submitted."""
        return str(PurePosixPath(self.folder) / self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The commands and formats of one scheduler: functions from values to texts, which start nothing themselves.

    `states` is given what `query` printed on stdout, and calls an id that is not in there "unknown". A scheduler may
    fail a query for one id that it has forgotten; `forgot` is true if that was the reason by the failure's stderr,
    and not, for instance, a scheduler that is down.
    """

    directives: Callable[[JobRequest], list[str]]  # whole lines of a script, "#SBATCH --nodes=4"
    submit: Callable[[Path], list[str]]  # the command that hands it a script
    job_id: Callable[[str], str]  # from what that printed; ValueError if there is none
    query: Callable[[Sequence[str]], list[str]]  # the command that prints the states of jobs
    states: Callable[[str, Sequence[str]], dict[str, State]]
    forgot: Callable[[str], bool]
    cancel: Callable[[str], list[str]]
    nodes: Callable[
        [Mapping[str, str]], list[str]
    ]  # inside a job: its nodes in order, from its variables and files
    end_time: Callable[
        [Mapping[str, str]], float | None
    ]  # inside a job: when its wall time ends (epoch), if known
    requeues: Callable[[Mapping[str, str]], int]  # inside a job: how often it was started before
    # Variables that a script sets for its program, as shell words that ask for what no variable says.
    facts: Mapping[str, str] = field(default_factory=dict)


def clock(minutes: int) -> str:
    """HH:MM:SS."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def script_end_time(variables: Mapping[str, str]) -> float | None:
    """End of the wall time as the script computed it when it started, for schedulers that have no variable for it."""
    return number(variables, END_TIME_VARIABLE)


def number(variables: Mapping[str, str], name: str) -> float | None:
    """A variable's value, if it has one that is a finite number."""
    try:
        value = float(variables[name])
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) else None


def directive_lines(
    marker: str, request: JobRequest, options: Iterable[str], *, account: str = "", after: str = ""
) -> list[str]:
    """The lines of a script: `options`, those for the account and the job before, and the partition's own last.

    `account` and `after` are what stands before the value; empty: `options` has it.
    """
    lines = list(options)
    if account and request.account:
        lines.append(account + quoted(request.account, "the account"))
    if after and request.after:
        lines.append(after + quoted(request.after, "the job before"))
    lines += [
        one_line(directive, "a directive of the partition") for directive in request.partition.directives
    ]
    return [f"{marker} {line}" for line in lines]


def table_states(text: str, ids: Sequence[str], state: Callable[[str], State]) -> dict[str, State]:
    """The states of `ids` in lines of two words, id and the name of its state; other lines do not count."""
    rows = (line.split() for line in text.splitlines())
    return states_of({row[0]: state(row[1]) for row in rows if len(row) == 2}, ids)


def states_of(known: Mapping[str, State], ids: Sequence[str]) -> dict[str, State]:
    """The state of each of `ids`: "unknown" where `known` has none."""
    return {job: known.get(job, "unknown") for job in ids}


def unique(names: Sequence[str]) -> list[str]:
    """Each once, in the order of their first appearance: node files have a line per rank."""
    return list(dict.fromkeys(name for name in names if name))


def lines_of(variables: Mapping[str, str], name: str) -> list[str]:
    """The lines of the file that a variable names. Raises ValueError outside a job, where it is not set."""
    if name not in variables:
        raise ValueError(f"{name} is not set: this is not inside a job")
    return [line.strip() for line in Path(variables[name]).read_text(encoding="utf-8").splitlines()]


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


def job_name(value: str, *, longest: int = 100) -> str:
    """A job's name as every scheduler takes it: it is only for people, so what does not fit is replaced.

    A long one keeps its end, which tells a study's jobs apart.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", value)
    name = name if name[:1].isalpha() else f"dlscale-{name}"
    return name if len(name) <= longest else name[: longest - _TAIL] + name[-_TAIL:]


NAMES = tuple(facts.name for facts in SCHEDULERS)


def scheduler(name: str) -> Scheduler:
    """The functions of that scheduler. Raises ValueError for a system without one ("none")."""
    if name not in NAMES:
        raise ValueError(f"no scheduler {name!r}; there are: {', '.join(NAMES)}")
    functions: Scheduler = importlib.import_module(f"dlscale.benchmarks.jobs.{name}").SCHEDULER
    return functions
