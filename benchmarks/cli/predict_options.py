"""Options of `dlscale predict`, each declared once as a field of `PredictOptions`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import click

from dlscale.analysis.predict.exchange import Algorithm
from dlscale.analysis.predict.grid import AXES, Axes, read_axes
from dlscale.analysis.predict.scenario import NUM_REPLICATES
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.option_kinds import BackendOptions, Backends, Counts, Words
from dlscale.benchmarks.cli.options import json_option, results_option

Kind = Literal["weak-scaling", "strong-scaling"]
ALGORITHMS = tuple(name for name in get_args(Algorithm) if name != "parameter_servers")


class Grid(click.ParamType[Axes]):
    """Axes of a grid: link_rate=0.5|1|2,batch=32|128."""

    name = "axes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Axes:
        """The axes; malformed ones are a one-line error."""
        try:
            return value if isinstance(value, Axes) else read_axes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of a field, and the settings of `click.option`."""

    name: str
    settings: dict[str, Any]


def _option(name: str, **settings: Any) -> Flag:
    return Flag(name, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """What a user asks to predict; None is the system's, the profile's or the preset's own."""

    kind: Kind
    results: Path
    as_json: bool
    system: Annotated[
        str, _option("--system", default="local", show_default=True, help="A known name or a .toml file.")
    ]
    workloads: Annotated[
        list[str],
        _option("--workloads", type=Words(), default="hep_cnn", show_default=True, help="Workloads."),
    ]
    frameworks: Annotated[
        list[str] | None,
        _option("--frameworks", type=Words(), help="Frameworks; default: all that have a profile."),
    ]
    preset: Annotated[str | None, _option("--preset", help="Preset of the profile; default: the only one.")]
    backends: Annotated[
        list[str], _option("--backends", type=Backends(), default="ring", show_default=True, help="Backends.")
    ]
    backend_options: Annotated[
        dict[str, dict[str, Any]],
        _option(
            "--backend-options",
            type=BackendOptions(),
            default="",
            help="Backend options, e.g. horovod.cycle_time_ms=5,ring.pipelined=true.",
        ),
    ]
    nodes: Annotated[
        list[int] | None,
        _option(
            "--nodes", type=Counts(), help="Numbers of nodes: 1,2,4 or 1:8192:x2; default: doubled up to all."
        ),
    ]
    ranks_per_node: Annotated[
        int | None,
        _option(
            "--ranks-per-node", type=click.IntRange(min=1), help="Ranks per node; default: the system's."
        ),
    ]
    servers: Annotated[
        str,
        _option(
            "--servers",
            default="1",
            show_default=True,
            help="Parameter servers, on nodes of their own: a number, or servers per rank, e.g. 1/2.",
        ),
    ]
    batch: Annotated[
        int | None,
        _option(
            "--batch",
            type=click.IntRange(min=1),
            help="Samples per step: per rank under weak scaling, in total under strong scaling; default: the preset's.",
        ),
    ]
    algorithm: Annotated[
        Algorithm | None,
        _option(
            "--algorithm",
            type=click.Choice(ALGORITHMS),
            help="Algorithm of the exchange between nodes; default: the backend's own.",
        ),
    ]
    profiled: Annotated[
        str | None,
        _option(
            "--from",
            metavar="STUDY",
            help="Study whose control profile was measured; default: the stored profile of the system.",
        ),
    ]
    calibrate: Annotated[
        list[str] | None,
        _option(
            "--calibrate",
            type=Words(),
            metavar="STUDY,...",
            help="Studies and collectives runs whose exchanges between nodes calibrate latency and rates; default: the "
            "system's file as it is.",
        ),
    ]
    force: Annotated[
        bool,
        _option(
            "--force", is_flag=True, help="Extrapolate beyond the calibrated range (marked in the figure)."
        ),
    ]
    explain: Annotated[
        bool,
        _option(
            "--explain", is_flag=True, help="Break down the loss at the largest size; show sensitivities."
        ),
    ]
    grid: Annotated[
        Axes | None,
        _option(
            "--grid",
            type=Grid(),
            is_flag=False,
            flag_value="",
            help=f"Also a table and a page with sliders of other inputs. Axes: {', '.join(AXES)}, with usual values or "
            "yours beside 1 and your batch: link_rate=0.5|2,batch=32|128; the first three are factors.",
        ),
    ]
    replicates: Annotated[
        int,
        _option(
            "--replicates",
            type=click.IntRange(min=100, max=100_000),
            default=NUM_REPLICATES,
            show_default=True,
            help="Replicates of the Monte Carlo.",
        ),
    ]

    def __post_init__(self) -> None:
        """Raises UsageError for options that contradict each other."""
        if self.grid and self.as_json:
            raise UsageError("--grid and --json are mutually exclusive")
        for backend, own in self.backend_options.items():
            if backend not in self.backends:
                raise UsageError(
                    f"--backend-options has {backend}, which is not among --backends {','.join(self.backends)}"
                )
            if several := next((name for name, value in own.items() if isinstance(value, list)), None):
                raise UsageError(f"{backend}.{several} has several values; a prediction takes one")

    @property
    def scaling_mode(self) -> Literal["weak", "strong"]:
        """The scaling mode that `kind` names."""
        return "weak" if self.kind == "weak-scaling" else "strong"


def predict_options(command: Callable[[PredictOptions], int]) -> Callable[..., int]:
    """Give the command its argument and options, as one value."""

    @functools.wraps(command)
    def wrapped(**values: Any) -> int:
        return command(PredictOptions(**values))

    decorated: Callable[..., int] = json_option(results_option(wrapped))
    for name, hint in reversed(get_type_hints(PredictOptions, include_extras=True).items()):
        for flag in getattr(hint, "__metadata__", ()):
            decorated = click.option(flag.name, name, **flag.settings)(decorated)
    return click.argument("kind", type=click.Choice(get_args(Kind)))(decorated)
