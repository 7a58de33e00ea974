"""The options of `dlscale plan` and `dlscale run`, and the study that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dlscale.benchmarks import definition
from dlscale.benchmarks.commands.options import BackendOptions, Counts, Words, results_option
from dlscale.benchmarks.study import Study, load_study
from dlscale.benchmarks.system import System
from dlscale.collectives import with_capability
from dlscale.models.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

# A flag that make can also give a value: --skip-bad, --skip-bad yes, --skip-bad no.
YES: dict[str, Any] = {"type": bool, "is_flag": False, "flag_value": True, "default": None}
OPTIONS = (
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
RULES = ("warmup_steps", "max_steps", "train_steps", "checkpoint_every")
NEEDS_SCHEDULER = ("account", "partition", "walltime", "max_node_hours", "ranks_per_node", "allocations")
FIELDS = (
    "workloads", "frameworks", "backends", "servers", "ranks", "nodes", "ranks_per_node", "partition", "allocations",
    "preset", "batch", "precision", "compiled", "memory_format", "device", "skip_bad", "budget", "launches", "seed",
)  # fmt: skip


def study_options(command: F) -> F:
    """All options of a study."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def study_of(name: str, machine: System, options: dict[str, Any]) -> Study:
    """The study of that name or file with what the options change. Raises UsageError."""
    if machine.scheduler == "none":
        _check_placement(machine, options)
    return load_study(
        name,
        **{field: options[field] for field in FIELDS},
        backend_options=_with_open_ports(options),
        rules={field: options[field] for field in RULES},
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
                f"(known: {', '.join(definition.names('systems'))})"
            )
