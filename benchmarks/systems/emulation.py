"""What a command line changes of emulated hosts: `emulation=link_rate=400Mb/s,slow_link=3:0.5`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from dlscale.base.definitions import problems
from dlscale.base.errors import UsageError
from dlscale.base.quantities import split_list
from dlscale.benchmarks.systems.system import System

OPTION = "--set emulation"
SETTINGS = ("link_rate", "queue", "congestion_control", "slow_link")


def with_emulation(system: System, text: str | None) -> System:
    """The system with the settings of `text` in place of its file's. Raises UsageError.

    Numbers that come from there have the command line as their source, and so has the study's copy of the system.
    """
    if not text:
        return system
    if system.emulation is None:
        raise UsageError(
            f"{OPTION} on {system.name}, whose nodes are not emulated; leave it out, or give --system emulated-4"
        )
    fields: dict[str, Any] = system.model_dump(mode="json")
    emulation = fields["emulation"]
    slow: dict[str, str] = {}
    for word in split_list(text):
        name, mark, value = word.partition("=")
        if name not in SETTINGS or not mark:
            raise UsageError(f"{OPTION}={word}: give one of {', '.join(f'{one}=...' for one in SETTINGS)}")
        if name == "slow_link":
            host, _, slow[host] = value.partition(":")
        elif name == "link_rate":
            fields["fabric"]["bandwidth"] = _stated(value)
        else:
            emulation[name] = _stated(value) if name == "queue" else value
    if slow:
        emulation["slow_links"] = slow
    fields["sources"]["command line"] = f"the option {OPTION} of this study"
    try:
        return System.model_validate(fields)
    except ValidationError as error:
        raise UsageError(f"{OPTION}={text}: {problems(error)[0]}") from None


def _stated(value: str) -> dict[str, str]:
    return {"value": value, "source": "command line"}
