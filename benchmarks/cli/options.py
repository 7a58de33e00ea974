"""Options that several verbs share: types of values, the options of `plan` and `run`, and the study that is meant.

`study_options` declares the options of `dlscale plan` and `dlscale run` and `study_of` makes the study from them;
`choose_study` finds the study in a results folder that a verb reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.quantities import parse_counts, split_list
from dlscale.benchmarks.records.files import RECORDS_FOLDER
from dlscale.benchmarks.records.record import Setting
from dlscale.benchmarks.study.study import Study, load_study, parse_backend_options
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import with_capability

F = TypeVar("F", bound=Callable[..., Any])


class Words(click.ParamType[list[str]]):
    """Words separated by commas or spaces."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:  # noqa: ARG002
        """The words of `value`."""
        return value if isinstance(value, list) else split_list(value)


class Counts(click.ParamType[list[int]]):
    """Positive counts as a list or a range."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """The counts in `value`; a malformed one ends in one line."""
        try:
            return value if isinstance(value, list) else parse_counts(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class BackendOptions(click.ParamType[dict[str, dict[str, Setting]]]):
    """BACKEND.OPTION=VALUE, separated by commas or spaces."""

    name = "options"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """{backend: {option: value}}; a malformed one ends in one line."""
        try:
            return value if isinstance(value, dict) else parse_backend_options(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def results_option(command: F) -> F:
    """--results."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path, file_okay=True),
        default=Path("results"),
        show_default=True,
        help="Folder of all studies' records.",
    )(command)


def json_option(command: F) -> F:
    """--json."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of a table."
    )(command)


def say_given_up(cases: Sequence[str], max_attempts: int | None) -> None:
    """Which cases are not tried again."""
    if cases:
        what = f"{len(cases)} cases failed {max_attempts} times and are"
        what = what if len(cases) > 1 else f"1 case failed {max_attempts} times and is"
        click.echo(
            f"{what} left: {', '.join(cases[:3])}{' ...' * (len(cases) > 3)}; --max-attempts tries again"
        )


# A flag that make can also give a value: --skip-bad, --skip-bad yes, --skip-bad no.
YES: dict[str, Any] = {"type": bool, "is_flag": False, "flag_value": True, "default": None}
STUDY_OPTIONS = (
    click.option("--system", default="local", show_default=True, help="A machine's name, or its .toml file."),
    click.option("--environment", help="One of the system's environments; default: the running one."),
    click.option("--workloads", type=Words(), help="For example hep_cnn,resnet50, or all."),
    click.option("--frameworks", type=Words(), help="torch, tensorflow or all."),
    click.option("--backends", type=Words(), help="For example none,mpi,gloo,ring, or all."),
    click.option(
        "--backend-options",
        type=BackendOptions(),
        help="For example horovod.cycle_time_ms=0.5,grpc_ps.asynchronous=true.",
    ),
    click.option(
        "--servers",
        type=Words(),
        help="Of backends with servers: counts, or ratios to the ranks such as 1/2 (default), several for an axis.",
    ),
    click.option(
        "--allow-open-ports",
        **YES,
        help="Let backends whose sockets ask nobody who connects work across machines; recorded.",
    ),
    click.option(
        "--ranks", type=Counts(), help="1,2,4 or 1:8 or 1:512:x2; default: 1 to the machine's cores."
    ),
    click.option(
        "--nodes", type=Counts(), help="1,2,4 or 1:64:x2, instead of --ranks, on a system with a scheduler."
    ),
    click.option("--ranks-per-node", type=int, help="On systems with a scheduler; default: the system's."),
    click.option("--preset", help="paper, small or tiny; default: the workload's."),
    click.option(
        "--batch",
        type=int,
        help="Samples per step: of each rank in weak scaling, of all together in strong; default: the preset's.",
    ),
    click.option("--precision", help="fp32 or bf16."),
    click.option("--compiled", **YES, help="torch.compile, and XLA in TensorFlow."),
    click.option("--memory-format", help="channels_last (default) or channels_first (torch only)."),
    click.option(
        "--device", help="cpu (default) or gpu, one for each rank; backends none, horovod and nccl."
    ),
    click.option(
        "--data",
        help="Input file or folder, WORKLOAD=PATH,... for several, or the word synthetic; default: the sample "
        "that ships.",
    ),
    click.option("--skip-bad", **YES, help="Leave out and count samples that cannot be read."),
    click.option("--budget", help="Wall time to fit the windows into: 240s, 4min, 1h."),
    click.option("--launches", type=int, help="Launches per cell; fewer than 6 carry no 95 % interval."),
    click.option("--warmup-steps", type=int, help="Steps before the first window, at least."),
    click.option("--max-steps", type=int, help="Steps of a launch at most, warm-up included."),
    click.option(
        "--train-steps",
        type=int,
        help="Steps of each training, over as many launches as it takes; see docs/jobs.md.",
    ),
    click.option(
        "--checkpoint-every", type=int, help="Save a training's state after so many steps; recorded."
    ),
    click.option("--seed", type=int, help="Of the randomised order and of the initial weights."),
    click.option(
        "--allocations", type=int, help="Jobs that the launches of a cell are spread over, at least."
    ),
    click.option("--account", help="That the jobs are charged to."),
    click.option("--partition", help="Of the system; default: the one that its file names."),
    click.option("--walltime", help="Of a job at most: 30min, 4h; default: the partition's limit."),
    click.option("--max-node-hours", type=float, help="Refuse a study whose jobs may be billed more."),
    results_option,
)
RULE_OPTIONS = ("warmup_steps", "max_steps", "train_steps", "checkpoint_every")
NEEDS_SCHEDULER = ("account", "partition", "walltime", "max_node_hours", "ranks_per_node", "allocations")
STUDY_FIELDS = (
    "workloads", "frameworks", "backends", "servers", "ranks", "nodes", "ranks_per_node", "partition", "allocations",
    "preset", "batch", "precision", "compiled", "memory_format", "device", "skip_bad", "budget", "launches", "seed",
)  # fmt: skip


def study_options(command: F) -> F:
    """All options of a study."""
    for option in reversed(STUDY_OPTIONS):
        command = option(command)
    return command


def study_of(name: str, machine: System, options: dict[str, Any]) -> Study:
    """The study of that name or file with what the options change. Raises UsageError."""
    if machine.scheduler == "none":
        _check_placement(machine, options)
    return load_study(
        name,
        **{field: options[field] for field in STUDY_FIELDS},
        backend_options=_with_open_ports(options),
        rules={field: options[field] for field in RULE_OPTIONS},
    )


def _with_open_ports(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The backends' options, and that of every backend which has it if its ports may be open."""
    found: dict[str, dict[str, Any]] = {
        name: dict(own) for name, own in (options["backend_options"] or {}).items()
    }
    if options["allow_open_ports"]:
        for backend in with_capability("open_ports"):
            found.setdefault(backend, {})["allow_open_ports"] = True
    return found


def _check_placement(system: System, options: dict[str, Any]) -> None:
    """What only makes sense with several nodes or a scheduler is an error elsewhere, not ignored."""
    if options["nodes"] not in (None, [1]):
        raise UsageError(
            f"--nodes {','.join(map(str, options['nodes']))} on {system.name}, which has 1 node; "
            "leave it out, or name a system with more"
        )
    for name in NEEDS_SCHEDULER:
        if options[name] is not None:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} on {system.name}, which has no scheduler; leave it out, or name a system that has one "
                f"(known: {', '.join(definitions.names('systems'))})"
            )


def study_folders(results: Path) -> list[Path]:
    """All study folders, the one measured into last at the end. Raises UsageError if there is none."""
    found = [path.parent for path in results.glob("*/*/study.json")]
    if not found:
        raise UsageError(f"no study in {results}; run one first, for instance: dlscale run weak-scaling")

    def last_record(folder: Path) -> float:
        records = folder / RECORDS_FOLDER  # a folder's time is that of the last file that came into it
        return (records if records.is_dir() else folder / "study.json").stat().st_mtime

    return sorted(found, key=last_record)


def choose_study(results: Path, name: str | None) -> Path:
    """The folder of the study that `name` names or begins; the latest without a name. Raises UsageError."""
    folders = study_folders(results)
    matching = [folder for folder in folders if name is None or folder.name.startswith(name)]
    if not matching:
        known = ", ".join(sorted({folder.name for folder in folders}))
        raise UsageError(f"no study {name!r} in {results}; choose one of: {known}")
    return matching[-1]
