"""Axes of a study: settings with several values, each a curve of its own; and ladders, which turn settings on in steps.

A setting is named as everywhere else: `batch`, `precision`, `compiled` and `memory_format`, a target's `learning_rate`,
a backend's option `horovod.cycle_time_ms`, an algorithm's `local_sgd.interval`, or an environment variable
`MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM`. In a study's file a list of values makes an axis, on the command line values
between `|`. Algorithms are no setting but a list, as backends are; options of one concern its own curves alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

from dlscale.base.parsing import parse_toml
from dlscale.base.quantities import split_list
from dlscale.base.redaction import SECRET
from dlscale.benchmarks.records.record import Setting
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS

FIELDS = ("batch", "precision", "compiled", "memory_format")  # of a study
TARGET_FIELDS = ("learning_rate",)  # of a study's target
MOST_VARIANTS = 64  # of a backend: more make no study that ends
OWN_VARIABLES = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS|DLSCALE_.*")
OPTION_TABLES = (
    "backend_options",
    "algorithm_options",
)  # of a study, in the order in which `placed` has them
PLAIN = "plain"  # a step of a ladder without settings

Settings = Mapping[str, Setting]
Kind = Literal["field", "target", "option", "variable"]


def kind_of(name: str) -> Kind:
    """What a setting is. Raises ValueError for a name that is none."""
    if name in FIELDS:
        return "field"
    if name in TARGET_FIELDS:
        return "target"
    if re.fullmatch(r"[a-z_0-9]+\.[A-Za-z_0-9]+", name):
        return "option"
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        return "variable"
    raise ValueError(
        f"{name!r} is no setting; give one of {', '.join(FIELDS + TARGET_FIELDS)}, BACKEND.OPTION, ALGORITHM.OPTION, "
        "or an environment variable in capitals"
    )


def check_variable(name: str) -> None:
    """Returns if a study may set that environment variable. Raises ValueError."""
    if kind_of(name) != "variable":
        raise ValueError(f"{name!r} is no environment variable; give a name in capitals")
    if OWN_VARIABLES.fullmatch(name):
        raise ValueError(f"{name} is dlscale's own: it follows from the ranks and the system's placement")
    if SECRET.search(name):
        raise ValueError(
            f"{name} looks like a secret, which would be in every record; choose another variable"
        )


def read_values(text: str) -> Setting | list[Setting]:
    """The value in `text`, or those between `|`; what is not valid TOML is a string. Raises ValueError."""
    values = [_value(word) for word in text.split("|")]
    return checked_values(values, what=repr(text)) if len(values) > 1 else values[0]


def _value(text: str) -> Setting:
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def checked_values(values: Sequence[Setting], *, what: str) -> list[Setting]:
    """The values of an axis. Raises ValueError if there is none, or one is empty or there twice."""
    if not values or "" in values:
        raise ValueError(f"{what} has an empty value; write values as in 16|32")
    for place, value in enumerate(values):
        if any(
            value == other and isinstance(value, bool) == isinstance(other, bool) for other in values[:place]
        ):
            raise ValueError(f"{what} has the value {value} twice; give each once")
    return list(values)


def read_variables(text: str) -> dict[str, Any]:
    """{variable: value or values} from NAME=VALUE, separated by commas or spaces. Raises ValueError."""
    variables: dict[str, Any] = {}
    for word in split_list(text):
        name, equals, value = word.partition("=")
        if not (equals and name and value):
            raise ValueError(f"{word!r} sets no variable; write NAME=VALUE, e.g. MPICH_ASYNC_PROGRESS=0|1")
        values = checked_values(value.split("|"), what=name) if "|" in value else value
        variables[name] = values
    return variables


def read_step(text: str, *, backend: str | None) -> dict[str, Setting]:
    """The settings of a ladder's step: `cycle_time_ms=5,compiled`; a name alone means true, `plain` nothing.

    A name that is no field and has no dot is an option of `backend`. Raises ValueError.
    """
    settings: dict[str, Setting] = {}
    for word in [] if text.strip() == PLAIN else split_list(text):
        name, equals, value = word.partition("=")
        if equals and not value:
            raise ValueError(f"{word!r} has an empty value; write NAME=VALUE")
        if name not in FIELDS and "." not in name and not name.isupper():
            if backend is None:
                raise ValueError(f"{name!r} is an option of which backend? write BACKEND.{name}")
            name = f"{backend}.{name}"
        kind_of(name)
        if name in settings:
            raise ValueError(f"{name} is twice in the step {text!r}; give it once")
        settings[name] = _value(value) if equals else True
    return settings


def read_ladder(text: str) -> list[str]:
    """The steps between `>`. Raises ValueError unless there are two or more, none of them empty."""
    steps = [step.strip() for step in text.split(">")]
    if len(steps) < 2 or not all(steps):
        raise ValueError(
            f"{text!r} is no ladder; write steps between '>', e.g. 'plain > cycle_time_ms=5 > compiled'"
        )
    return steps


def with_axes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a study with lists of values as `axes`, whose first values take the fields' places.

    Steps of a ladder that are text are read. Raises ValueError.
    """
    fields = dict(values)
    stated = fields.get("axes") or {}
    if not (isinstance(stated, dict) and all(isinstance(several, list) for several in stated.values())):
        raise ValueError("axes is no table of lists; give e.g. batch = [16, 32] without it")
    axes: dict[str, Any] = dict(stated)
    for name in FIELDS:
        if isinstance(fields.get(name), list):
            axes[name] = fields[name]
    if isinstance(target := fields.get("target"), dict):
        axes |= {name: target[name] for name in TARGET_FIELDS if isinstance(target.get(name), list)}
    for table, prefix in _tables(fields):
        axes |= {f"{prefix}{name}": value for name, value in table.items() if isinstance(value, list)}
    if axes:
        axes = {name: checked_values(several, what=name) for name, several in axes.items()}
        fields = placed(fields, {name: several[0] for name, several in axes.items()})
        fields["axes"] = {name: several for name, several in axes.items() if len(several) > 1}
    if isinstance(fields.get("ladder"), list) and isinstance(fields.get("backends"), list):
        named = [name for name in fields["backends"] if name != "none"]
        backend = named[0] if len(named) == 1 else None
        fields["ladder"] = [
            read_step(step, backend=backend) if isinstance(step, str) else step for step in fields["ladder"]
        ]
    return fields


def _tables(fields: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The tables of settings in a study's fields, each with what begins their names."""
    tables = [
        (own, f"{owner}.")
        for options in (fields.get(table) for table in OPTION_TABLES)
        for owner, own in (options.items() if isinstance(options, dict) else ())
        if isinstance(own, dict)
    ]
    variables = fields.get("environment_variables")
    return [*tables, (variables, "")] if isinstance(variables, dict) else tables


def placed(fields: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The fields of a study with these settings in place. Raises ValueError for a name that is no setting."""
    changed = dict(fields)
    variables, *tables = (changed.get(table) or {} for table in ("environment_variables", *OPTION_TABLES))
    if not (
        isinstance(variables, dict)
        and all(isinstance(options, dict) and all(map(_is_table, options.values())) for options in tables)
    ):
        return changed  # no study: its fields are refused one by one
    backends, algorithms = ({owner: dict(own) for owner, own in options.items()} for options in tables)
    variables = dict(variables)
    for name, value in settings.items():
        kind = kind_of(name)
        if kind == "field":
            changed[name] = value
        elif kind == "target":
            if not _is_table(changed.get("target")):
                raise ValueError(
                    f"{name} is a setting of a study's target, and this one has none; leave it out"
                )
            changed["target"] = {**changed["target"], name: value}
        elif kind == "option":
            owner, _, option = name.partition(".")
            (algorithms if owner in ALGORITHMS else backends).setdefault(owner, {})[option] = value
        else:
            variables[name] = str(value)
    changed |= {
        table: options
        for table, options in zip(OPTION_TABLES, (backends, algorithms), strict=True)
        if options
    }
    if variables:
        changed["environment_variables"] = variables
    return changed


def cumulative(ladder: Iterable[Settings]) -> list[dict[str, Setting]]:
    """The settings that hold on each step of a ladder: its own and those of the steps before."""
    steps: list[dict[str, Setting]] = []
    for step in ladder:
        steps.append({**(steps[-1] if steps else {}), **step})
    return steps


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def variant_settings(
    axes: Mapping[str, Sequence[Setting]], ladder: Sequence[Settings], *, backend: str, algorithm: str
) -> list[dict[str, Setting]]:
    """The settings of each variant of a backend with an algorithm, without options of others; the first one's first.

    Those of axes are all combinations of their values, those of a ladder each step with all before it. Raises
    ValueError for too many.
    """

    def concerns(name: str) -> bool:
        return kind_of(name) != "option" or name.partition(".")[0] in (backend, algorithm)

    if ladder:
        kept = [
            {name: value for name, value in step.items() if concerns(name)} for step in cumulative(ladder)
        ]
        return [step for place, step in enumerate(kept) if step not in kept[:place]]
    own = {name: values for name, values in axes.items() if concerns(name)}
    if (number := math.prod(map(len, own.values()))) > MOST_VARIANTS:
        raise ValueError(
            f"the axes {', '.join(own)} make {number} curves of {backend}, and {MOST_VARIANTS} are the most; "
            "give fewer values"
        )
    return [dict(zip(own, values, strict=True)) for values in product(*own.values())]
