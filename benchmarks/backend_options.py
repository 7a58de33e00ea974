"""Reading `horovod.cycle_time_ms=0.5,grpc_ps.asynchronous=true` as people type it."""

from __future__ import annotations

import tomllib

from dlscale.benchmarks.record import Setting
from dlscale.benchmarks.units import split_list


def parse_backend_options(text: str) -> dict[str, dict[str, Setting]]:
    """{backend: {option: value}}; values are TOML's, and what is none of these is a text. Raises ValueError."""
    found: dict[str, dict[str, Setting]] = {}
    for word in split_list(text):
        name, equals, value = word.partition("=")
        backend, dot, option = name.partition(".")
        if not (equals and dot and backend and option and value):
            raise ValueError(
                f"{word!r} is no option of a backend; write BACKEND.OPTION=VALUE, as in horovod.cycle_time_ms=0.5"
            )
        found.setdefault(backend, {})[option] = _value(value)
    return found


def _value(text: str) -> Setting:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, str | int | float | bool) else text
