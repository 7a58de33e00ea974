"""Axes of a study: settings with several values, each a curve of its own.

A setting is named as everywhere else: a field such as `batch` or `shard` (`FIELDS`), a target's `learning_rate`, a
backend's option `horovod.cycle_time_ms`, an algorithm's `easgd.interval`, or an environment variable
`MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM`. In a study's file a list of values makes an axis, on the command line values
between `|`. Algorithms are no setting but a list, as backends are; options of one concern its own curves alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from dlscale.base.parsing import parse_toml
from dlscale.base.quantities import split_list
from dlscale.base.redaction import SECRET
from dlscale.benchmarks.records.cell import Setting
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS

FIELDS = ("batch", "precision", "compiled", "shard", "split")  # of a study
TARGET_FIELDS = ("learning_rate",)  # of a study's target
MOST_VARIANTS = 64  # of a backend: more make no study that ends
OPTION = re.compile(r"[a-z_0-9]+\.[A-Za-z_0-9]+")  # of a backend or an algorithm
OWN_VARIABLES = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS|DLSCALE_.*")
OPTION_TABLES = ("backend_options", "algorithm_options")  # of a study
VARIABLES = "environment_variables"

Settings = Mapping[str, Setting]


def path_of(name: str) -> tuple[str, ...]:
    """Where a setting is in a study's fields: the names of tables, and its own. Raises ValueError for no setting."""
    if name in FIELDS:
        return (name,)
    if name in TARGET_FIELDS:
        return ("target", name)
    if OPTION.fullmatch(name):
        owner, _, option = name.partition(".")
        return ("algorithm_options" if owner in ALGORITHMS else "backend_options", owner, option)
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        return (VARIABLES, name)
    raise ValueError(
        f"{name!r} is no setting; give one of {', '.join(FIELDS + TARGET_FIELDS)}, BACKEND.OPTION, ALGORITHM.OPTION, "
        "or an environment variable in capitals"
    )


def is_option(name: str) -> bool:
    """Whether a setting is a backend's or an algorithm's. Raises ValueError for no setting."""
    return path_of(name)[0] in OPTION_TABLES


def stated(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among a study's fields, by name; values may be lists."""
    found = {name: fields[name] for name in FIELDS if name in fields}
    found |= {name: value for name, value in _table(fields, "target").items() if name in TARGET_FIELDS}
    for table in OPTION_TABLES:
        for owner in _table(fields, table):
            own = _table(fields[table], owner)
            found |= {f"{owner}.{option}": value for option, value in own.items()}
    return found | _table(fields, VARIABLES)


def _table(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def check_variable(name: str) -> None:
    """Returns if a study may set that environment variable. Raises ValueError."""
    if path_of(name)[0] != VARIABLES:
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
        check_variable(name)
        variables[name] = checked_values(value.split("|"), what=name) if "|" in value else value
    return variables


def read_options(text: str) -> dict[str, dict[str, Any]]:
    """{backend or algorithm: {option: value or values}} from OWNER.OPTION=VALUE, likewise. Raises ValueError."""
    options: dict[str, dict[str, Any]] = {}
    for word in split_list(text):
        name, _, value = word.partition("=")
        if not (OPTION.fullmatch(name) and value):
            raise ValueError(
                f"{word!r} is not an option of a backend or an algorithm; write OWNER.OPTION=VALUE, e.g. "
                "horovod.cycle_time_ms=0.5 or easgd.interval=4"
            )
        owner, _, option = name.partition(".")
        options.setdefault(owner, {})[option] = read_values(value)
    return options


def with_axes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a study with lists of values as `axes`, whose first values take the fields' places.

    Raises ValueError.
    """
    fields = dict(values)
    known = fields.get("axes") or {}
    if not (isinstance(known, dict) and all(isinstance(several, list) for several in known.values())):
        raise ValueError("axes is no table of lists; give e.g. batch = [16, 32] without it")
    axes = known | {name: value for name, value in stated(fields).items() if isinstance(value, list)}
    if axes:
        axes = {name: checked_values(several, what=name) for name, several in axes.items()}
        fields = placed(fields, {name: several[0] for name, several in axes.items()})
        fields["axes"] = {name: several for name, several in axes.items() if len(several) > 1}
    return fields


def placed(fields: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The fields of a study with these settings in place. Raises ValueError for a name that is no setting.

    What has no tables where settings belong is no study: it stays, and its fields are refused one by one.
    """
    changed = dict(fields)
    for name, value in settings.items():
        *tables, last = path_of(name)
        place = changed
        for table in tables:
            inner = place.get(table)
            if table == "target" and not isinstance(inner, dict):
                raise ValueError(
                    f"{name} is a setting of a study's target, and this one has none; leave it out"
                )
            if not isinstance(inner, dict | None):
                break
            place[table] = dict(inner or {})
            place = place[table]
        else:
            place[last] = str(value) if tables == [VARIABLES] else value
    return changed


def changed_value(own: Any, change: Any, *, depth: int) -> Any:
    """A field's value with a change that is not None, in whose tables what is not None replaces the field's own."""
    if not depth or not isinstance(change, dict):
        return own if change is None else change
    kept = own or {}
    merged = kept | {
        key: changed_value(kept.get(key), value, depth=depth - 1)
        for key, value in change.items()
        if value is not None
    }
    return merged or own


def variant_settings(
    axes: Mapping[str, Sequence[Setting]], *, backend: str, algorithm: str
) -> list[dict[str, Setting]]:
    """The settings of each variant of a backend with an algorithm, without options of others; the first one's first.

    They are all combinations of the axes' values. Raises ValueError for too many.
    """

    def concerns(name: str) -> bool:
        return not is_option(name) or name.partition(".")[0] in (backend, algorithm)

    own = {name: values for name, values in axes.items() if concerns(name)}
    if (number := math.prod(map(len, own.values()))) > MOST_VARIANTS:
        raise ValueError(
            f"the axes {', '.join(own)} make {number} curves of {backend}, and {MOST_VARIANTS} are the most; "
            "give fewer values"
        )
    return [dict(zip(own, values, strict=True)) for values in product(*own.values())]


def leave_out(values: dict[str, Any], table: str, *, left: set[str], named: set[str]) -> None:
    """Leave out a study's own options of backends, or of algorithms, that are not `left` of it; the user's stay."""
    known = set(ALGORITHMS if table == "algorithm_options" else BACKENDS)
    gone = known - left - named
    values[table] = {owner: own for owner, own in values.get(table, {}).items() if owner not in gone}
    values["axes"] = {
        name: several for name, several in values["axes"].items() if name.partition(".")[0] not in gone
    }
