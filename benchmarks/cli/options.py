"""Options that several verbs share, and the study that they name.

`study_options` declares the options of `dlscale plan` and `dlscale run`, `study_of` makes the study from them, and
`choose_study` finds the study that a verb reads in a results folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from dlscale.analysis.statistics import blocks_needed
from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.control_option import CONTROLS_OPTION
from dlscale.benchmarks.cli.option_kinds import (
    AlgorithmOptions,
    BackendOptions,
    ByProfile,
    Compute,
    Counts,
    Goal,
    Several,
    Variables,
    Words,
)
from dlscale.benchmarks.launch import own_models
from dlscale.benchmarks.records.files import RECORDS_FOLDER
from dlscale.benchmarks.records.record import BASES
from dlscale.benchmarks.records.target import LearningRateScaling
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import Plan, num_comparisons
from dlscale.benchmarks.study.sizes import check_slept, shape
from dlscale.benchmarks.study.study import Study, load_study, with_own_models
from dlscale.benchmarks.study.tuned import read_tuned
from dlscale.benchmarks.systems.emulation import with_emulation
from dlscale.benchmarks.systems.system import System, default_environment, find_installation, load_system
from dlscale.collectives import with_capability
from dlscale.models.optimizers import OPTIMIZERS
from dlscale.models.own import is_file

F = TypeVar("F", bound=Callable[..., Any])


def results_option(command: F) -> F:
    """Add --results."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path, file_okay=True),
        default=Path("results"),
        show_default=True,
        help="Folder of the studies' records.",
    )(command)


def system_option(command: F) -> F:
    """Add --system, for verbs that read a study."""
    return click.option("--system", help="System of the study: a known name or a .toml file; default: any.")(
        command
    )


def base_option(command: F) -> F:
    """Add --base."""
    return click.option(
        "--base",
        type=click.Choice(BASES),
        help="Base case of efficiencies: 1 rank, the ranks of one node, or the smallest number of ranks; default: 1 "
        "where the study has it, else the smallest.",
    )(command)


def json_option(command: F) -> F:
    """Add --json."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of a table."
    )(command)


def say_given_up(cases: Sequence[str], max_attempts: int | None) -> None:
    """Print which cases are not retried."""
    if cases:
        number = f"{len(cases)} cases" if len(cases) > 1 else "1 case"
        click.echo(
            f"{number} failed {max_attempts} times, not retried: {', '.join(cases[:3])}"
            f"{' ...' * (len(cases) > 3)}; raise --max-attempts to retry"
        )


# A flag with an optional value, which make needs: --skip-bad, --skip-bad yes, --skip-bad no.
YES: dict[str, Any] = {"type": bool, "is_flag": False, "flag_value": True, "default": None}
YES_OR_BOTH = YES | {"type": Several(click.BOOL)}
STUDY_OPTIONS = (
    click.option(
        "--system", default="local", show_default=True, help="System: a known name or a .toml file."
    ),
    click.option(
        "--emulation",
        help="Links between emulated hosts, e.g. link_rate=400Mb/s,queue=2MB,congestion_control=cubic,slow_link=3:0.5.",
    ),
    click.option("--environment", help="Environment of the system; default: the current one."),
    click.option(
        "--workloads",
        type=Words(),
        help="Workloads, e.g. hep_cnn,resnet50, or all; a file of your own: mine.py.",
    ),
    click.option(
        "--frameworks", type=Words(), help="Frameworks: torch, tensorflow, all of both; jax by name."
    ),
    click.option("--backends", type=Words(), help="Backends, e.g. none,mpi,gloo,ring, or all."),
    click.option(
        "--backend-options",
        type=BackendOptions(),
        help="Backend options, e.g. horovod.cycle_time_ms=0.5,grpc_ps.asynchronous=true; several values make a "
        "curve each: horovod.cycle_time_ms=0.5|1|5.",
    ),
    click.option(
        "--algorithms",
        type=Words(),
        help="Algorithms, each with every backend that carries it, e.g. sync,local_sgd,easgd; default: sync.",
    ),
    click.option(
        "--algorithm-options",
        type=AlgorithmOptions(),
        help="Options of algorithms, e.g. local_sgd.interval=8,easgd.moving_rate=0.9; several values make a curve "
        "each: local_sgd.interval=1|8|64.",
    ),
    click.option(
        "--environment-variables",
        type=Variables(),
        help="Environment variables of the launches (stored in the record), e.g. MPICH_ASYNC_PROGRESS=0|1.",
    ),
    click.option(
        "--servers",
        type=Words(),
        help="Parameter servers: a number, or servers per rank, e.g. 1/2 (default); several values make a sweep.",
    ),
    CONTROLS_OPTION,
    click.option(
        "--allow-open-ports",
        **YES,
        help="Allow backends with unauthenticated sockets to span hosts (stored in the record).",
    ),
    click.option(
        "--ranks",
        type=Counts(),
        help="Numbers of ranks: 1,2,4 or 1:8 or 1:512:x2; default: 1 to one per core.",
    ),
    click.option(
        "--nodes",
        type=Counts(),
        help="Numbers of nodes, instead of --ranks, on a system with a scheduler: 1,2,4 or 1:64:x2.",
    ),
    click.option(
        "--base",
        type=click.Choice(BASES),
        help="Base case of efficiencies: 1 rank (default; --ranks without it gets it), the ranks of one node, or the "
        "smallest number of ranks.",
    ),
    click.option(
        "--ranks-per-node",
        type=int,
        help="Ranks per node, on a system with a scheduler; default: the system's.",
    ),
    click.option("--preset", help="Preset: paper, small or tiny; default: the system's, or the workload's."),
    click.option(
        "--batch",
        type=Several(click.INT),
        help="Samples per step: per rank under weak scaling, in total under strong scaling; default: the preset's. "
        "16|32 makes a curve each.",
    ),
    click.option(
        "--precision",
        type=Several(click.STRING),
        help="Precision: fp32 or bf16; fp32|bf16 makes a curve each.",
    ),
    click.option(
        "--compiled",
        **YES_OR_BOTH,
        help="Compiled networks: torch.compile, or XLA in TensorFlow; no|yes makes a curve each.",
    ),
    click.option(
        "--memory-format",
        type=Several(click.STRING),
        help="Memory format: channels_last (default) or channels_first (torch only), or both with | between.",
    ),
    click.option(
        "--compute",
        type=Compute(),
        help="Computation of a step: real (default), or sleep:20ms,40ms in the place of forward pass and "
        "backpropagation, on emulated hosts; profile:STUDY sleeps as its control profile measured.",
    ),
    click.option(
        "--device",
        help="Device: cpu, or gpu (one per rank, not with backend tf_collective); default: gpu on systems whose "
        "file has any.",
    ),
    click.option(
        "--data",
        help="Input file or folder, WORKLOAD=PATH,... for several workloads, or synthetic; default: the included "
        "sample.",
    ),
    click.option("--skip-bad", **YES, help="Skip and count samples that cannot be read."),
    click.option("--budget", help="Wall time for the study, e.g. 240s, 4min or 1h."),
    click.option(
        "--launches",
        type=int,
        help="Launches per cell; a 95 % interval needs 6. Default: as many as the comparisons of backends need.",
    ),
    click.option("--warmup-steps", type=int, help="Minimum steps before the first window."),
    click.option("--max-steps", type=int, help="Maximum steps per case, warm-up included."),
    click.option(
        "--train-steps",
        type=int,
        help="Steps of each training, over as many launches as needed (docs/jobs.md).",
    ),
    click.option(
        "--checkpoint-every", type=int, help="Steps between checkpoints of a training (stored in the record)."
    ),
    click.option(
        "--target",
        type=Goal(),
        help="METRIC=THRESHOLD that trainings of time-to-solution must reach, e.g. auc=0.95; default: the study's.",
    ),
    click.option("--evaluate-samples", type=int, help="Samples between two evaluations of time-to-solution."),
    click.option(
        "--evaluate-seconds",
        help="Training time between two evaluations of time-to-solution, e.g. 5s, instead of samples.",
    ),
    click.option(
        "--max-seconds", help="Time after which a training of time-to-solution gives up, e.g. 5min."
    ),
    click.option(
        "--max-samples",
        type=int,
        help="Samples after which a training of time-to-solution gives up; default: no limit.",
    ),
    click.option("--learning-rate", type=float, help="Learning rate of 1 rank, in time-to-solution."),
    click.option(
        "--learning-rate-scaling",
        type=click.Choice(get_args(LearningRateScaling)),
        help="How the learning rate follows the global batch, in time-to-solution: not at all (default), linearly, or "
        "with its square root.",
    ),
    click.option(
        "--warm-up-samples",
        type=int,
        help="Samples over which the learning rate rises from that of 1 rank to the scaled one, in time-to-solution.",
    ),
    click.option(
        "--decay-samples",
        type=Counts(),
        help="Numbers of samples, e.g. 20000,40000, from each of which on the learning rate is multiplied by "
        "--decay-factor.",
    ),
    click.option("--decay-factor", type=float, help="Factor of --decay-samples; default: 0.1."),
    click.option(
        "--growth-samples",
        type=Counts(),
        help="Numbers of samples, e.g. 20000,40000, from each of which on the batch is multiplied by --growth-factor.",
    ),
    click.option("--growth-factor", type=int, help="Factor of --growth-samples; default: 5."),
    click.option(
        "--optimizer",
        type=click.Choice(("workload", *OPTIMIZERS)),
        help="Optimizer in time-to-solution: the workload's own (default), or one by name, with --learning-rate.",
    ),
    click.option(
        "--momentum", type=float, help="Momentum of --optimizer; default: sgd 0, lars and larc 0.9."
    ),
    click.option(
        "--weight-decay",
        type=float,
        help="Weight decay of --optimizer; default: sgd and larc 0, lars 0.0005.",
    ),
    click.option(
        "--trust-coefficient",
        type=float,
        help="Trust coefficient of --optimizer lars (default: 0.001) and larc (0.02).",
    ),
    click.option(
        "--tuned",
        type=click.Path(path_type=Path),
        help="File of learning rates that dlscale tune found for this study's configurations, in time-to-solution.",
    ),
    click.option("--seed", type=int, help="Seed for launch order and initial weights."),
    click.option(
        "--allocations", type=int, help="Minimum number of jobs to spread the launches of a cell over."
    ),
    click.option("--account", help="Account to charge the jobs to."),
    click.option("--partition", help="Partition of the system; default: the one its file names."),
    click.option(
        "--walltime", help="Maximum wall time per job, e.g. 30min or 4h; default: the partition's limit."
    ),
    click.option(
        "--max-node-hours", type=float, help="Limit on the node-hours that a study's jobs may be billed."
    ),
    results_option,
)
START_OPTIONS = (
    click.option("--dry-run", is_flag=True, help="Print the exact commands and scripts, and start nothing."),
    click.option(
        "--in-allocation", is_flag=True, help="Use the nodes of the job that this runs in; submit nothing."
    ),
    click.option(
        "--wait-quiet",
        help="Maximum wait until no other program uses this machine, e.g. 30min; then the study starts.",
    ),
)
LEAST_LAUNCHES = 6  # that carry a 95 % interval of a median (docs/metrics.md)
RULE_OPTIONS = ("warmup_steps", "max_steps", "train_steps", "checkpoint_every")
TARGET_OPTIONS = (
    "evaluate_samples", "evaluate_seconds", "max_seconds", "max_samples", "learning_rate",
    "warm_up_samples", "decay_samples", "decay_factor", "growth_samples", "growth_factor",
    "optimizer", "momentum", "weight_decay", "trust_coefficient",
)  # fmt: skip
NEEDS_SCHEDULER = ("account", "partition", "walltime", "max_node_hours", "ranks_per_node", "allocations")
OF_NODES = ("partition", "ranks_per_node")  # which emulated hosts have, too
STUDY_FIELDS = (
    "workloads", "frameworks", "backends", "algorithms", "algorithm_options", "environment_variables", "servers",
    "controls",
    "ranks", "nodes", "base", "ranks_per_node", "partition",
    "allocations", "preset", "batch", "precision", "compiled", "memory_format", "device", "skip_bad", "budget",
    "launches", "seed",
)  # fmt: skip


def study_options(command: F) -> F:
    """Add all options of a study."""
    for option in reversed(STUDY_OPTIONS):
        command = option(command)
    return command


def start_options(command: F) -> F:
    """How a study starts, beside `study_options`."""
    for option in reversed(START_OPTIONS):
        command = option(command)
    return command


def system_of(options: dict[str, Any]) -> System:
    """The system that --system names, with what --emulation changes of it. Raises UsageError."""
    return with_emulation(load_system(options["system"]), options["emulation"])


def study_of(name: str, machine: System, options: dict[str, Any], /, **fields: Any) -> Study:
    """The named study, or the one in that file, changed by the options and by further `fields`. Raises UsageError.

    One that says no number of launches gets what the comparisons of its backends need, and an interval at least.
    """
    if not machine.has_jobs:
        _check_placement(machine, options)
    compute = options["compute"]
    study = load_study(
        name,
        system=machine,
        **{field: options[field] for field in STUDY_FIELDS} | fields,
        backend_options=_with_open_ports(options, private=bool(machine.emulation)),
        slept=None if isinstance(compute, ByProfile) else compute,
        rules={field: options[field] for field in RULE_OPTIONS},
        target=(options["target"] or {})
        | {field: options[field] for field in TARGET_OPTIONS}
        | {"scaling": options["learning_rate_scaling"]}
        | {"tuned": read_tuned(options["tuned"]) if options["tuned"] else None},
    )
    if study.target and options["controls"]:
        raise UsageError(
            f"--controls {','.join(options['controls'])} in {study.name}, whose trainings to a target have none; "
            "leave it out, or run weak-scaling"
        )
    if study.slept:
        check_slept(study, machine)
    study = _with_files(study, machine, options, from_file=name.endswith(".toml"))
    if isinstance(compute, ByProfile):
        # Here, because profiles take longer to import than a plan takes.
        from dlscale.benchmarks.cli.slept_profiles import with_profiles

        check_slept(study, machine, asked=compute.option)
        cells = [case.cell for launch in expanded(study, machine, options).launches for case in launch.cases]
        study = with_profiles(study, compute, cells, results=options["results"])
    if study.launches:
        return study
    comparisons = num_comparisons(launch.cell for launch in expanded(study, machine, options).launches)
    enough = max(LEAST_LAUNCHES, blocks_needed(comparisons) if comparisons else 0)
    return study.model_copy(update={"launches": enough})


def expanded(study: Study, machine: System, options: dict[str, Any]) -> Plan:
    """The plan, as far as it is the same in every environment."""
    return expand(
        study,
        environment="",
        shape=shape(study, machine),
        data=data_of(machine, options),
        policy=machine.policy,
    )


def _with_files(study: Study, machine: System, options: dict[str, Any], *, from_file: bool) -> Study:
    """The study with the facts of those workloads that are files. Raises UsageError for one that cannot be trained.

    What a study `from_file` says is the user's word as an option is.
    """
    paths = [name for name in study.workloads if is_file(name)]
    if not paths:
        return study
    python = Path(sys.executable)
    if machine.is_here():  # elsewhere it is only rehearsed
        name = options.get("environment") or default_environment(machine)
        python = find_installation(machine, name).python
    models = {path: own_models.ask(Path(path), python) for path in paths}
    named = {
        field for field in ("frameworks", "preset", "batch") if from_file or options.get(field) is not None
    }
    return with_own_models(study, models, named=named)


def data_of(machine: System, options: dict[str, Any]) -> str | None:
    """The data that --data names, or the system's own, which belong to its preset."""
    if options["data"] is None and options["preset"] is None and machine.defaults:
        return machine.defaults.data
    data: str | None = options["data"]
    return data


def own_defaults(study: Study, machine: System, options: dict[str, Any]) -> str:
    """A line on what the user left to the system, and why it is so; empty if that is nothing."""
    if machine.defaults is None:
        return ""
    own = {
        "device": study.device if study.device != "cpu" else "",
        "frameworks": ", ".join(study.frameworks),
        "preset": study.preset,
        "batch": study.batch,
    }
    parts = [f"{name} {value}" for name, value in own.items() if value and options[name] is None]
    parts += [f"data {data_of(machine, options)}"] if options["data"] != data_of(machine, options) else []
    return f"defaults of {machine.name}: {'; '.join(parts)} ({machine.defaults.reason})" if parts else ""


def _with_open_ports(options: dict[str, Any], *, private: bool) -> dict[str, dict[str, Any]]:
    """The backends' options, with `allow_open_ports` set where a backend has it and the user allows it.

    On a `private` network, which nobody else can reach, it is allowed unless the user forbids it.
    """
    by_backend: dict[str, dict[str, Any]] = {
        name: dict(own) for name, own in (options["backend_options"] or {}).items()
    }
    if options["allow_open_ports"] or (private and options["allow_open_ports"] is None):
        for backend in with_capability("open_ports"):
            by_backend.setdefault(backend, {})["allow_open_ports"] = True
    return by_backend


def _check_placement(system: System, options: dict[str, Any]) -> None:
    """Raises UsageError for options that need several nodes or a scheduler, instead of ignoring them."""
    if options["nodes"] not in (None, [1]) and not system.emulation:
        raise UsageError(
            f"--nodes {','.join(map(str, options['nodes']))} on {system.name}, which has 1 node; "
            "leave it out, or name a --system with more nodes"
        )
    for name in NEEDS_SCHEDULER:
        if options[name] is not None and not (system.emulation and name in OF_NODES):
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} on {system.name}, which has no scheduler; leave it out, or name a --system with one "
                f"(known: {', '.join(definitions.names('systems'))})"
            )


def study_folders(results: Path) -> list[Path]:
    """All study folders, the most recently measured last. Raises UsageError if there is none."""
    folders = [path.parent for path in results.glob("*/*/study.json")]
    if not folders:
        raise UsageError(f"no study in {results}; run one first, e.g.: dlscale run weak-scaling")

    def last_record(folder: Path) -> float:
        records = folder / RECORDS_FOLDER  # a folder's time is that of its newest entry
        return (records if records.is_dir() else folder / "study.json").stat().st_mtime

    return sorted(folders, key=last_record)


def choose_study(results: Path, name: str | None, *, system: str | None = None) -> Path:
    """The folder of the latest study whose name starts with `name`, on that `system`, if given. Raises UsageError."""
    folders = study_folders(results)
    if system is not None:
        place = load_system(system).name
        found = sorted({folder.parent.name for folder in folders})
        folders = [folder for folder in folders if folder.parent.name == place]
        if not folders:
            raise UsageError(f"no study of {place} in {results}; there are studies of: {', '.join(found)}")
    matching = [folder for folder in folders if name is None or folder.name.startswith(name)]
    if not matching:
        known = ", ".join(sorted({folder.name for folder in folders}))
        raise UsageError(f"no study {name!r} in {results}; choose one of: {known}")
    return matching[-1]


def named_folder(results: Path, name: str | None, *, system: str | None = None) -> Path:
    """The folder of a study named by its path, else as in `choose_study`."""
    if name is not None and (Path(name) / "study.json").is_file():
        return Path(name)
    return choose_study(results, name, system=system)
