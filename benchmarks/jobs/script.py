"""The batch script of a job: directives, the environment, and the program in place of the shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlscale.base.batch import END_TIME_VARIABLE, JobRequest, one_line, quoted, quoted_path, quoted_words
from dlscale.base.errors import UsageError
from dlscale.base.schedulers import SCHEDULERS
from dlscale.benchmarks.systems.start import cpus_per_rank
from dlscale.benchmarks.systems.system import Environment, System

# A login shell, because what defines `module` is often read by those alone.
INTERPRETER = "#!/bin/bash -l"
_MODULE_VERBS = ("load", "unload", "swap", "switch", "use", "unuse", "purge", "restore")


def batch_script(
    system: System, environment: Environment, request: JobRequest, command: Sequence[str]
) -> str:
    """The whole script, which runs `command` on the first of the job's nodes. Raises UsageError for unfit values.

    The program replaces the shell: it gets the script's signals, and its exit status is the job's. Its path may name
    $VARIABLES of the job, as those of environments do; everything else is taken literally.
    """
    commands = SCHEDULERS[system.scheduler]
    cores = 0 if system.node.cores == "detect" else system.node.cores.value
    request = replace(
        request,
        directives=(*request.directives, *environment.directives),
        cores_per_node=request.cores_per_node or cores,
        cpus_per_rank=request.cpus_per_rank or cpus_per_rank(system, request.ranks_per_node),
    )
    facts = {END_TIME_VARIABLE: f"$(($(date +%s) + {60 * request.minutes}))", **commands.facts}
    own = [one_line(line) for line in environment.commands]
    parts = [
        [INTERPRETER, *commands.directives(request)],
        ["set -eo pipefail", f"cd {quoted(request.folder)}"],
        # Assigned first, exported later: `export NAME=$(...)` succeeds even where the command fails.
        [*(f"{name}={text}" for name, text in facts.items()), f"export {' '.join(facts)}"],
        # Unset variables become errors after modules only, because the scripts behind modules use such variables.
        [*map(_module, environment.modules), *own, "set -u"],
        _exports(system, environment),
        [f"exec {quoted_path(command[0])} {quoted_words(command[1:])}"],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _module(text: str) -> str:
    """A module's name, or another verb and its arguments: "unload darshan"."""
    words = one_line(text).split()
    verb = [] if words[:1] and words[0] in _MODULE_VERBS else ["load"]
    return f"module {quoted_words([*verb, *words])}"


def _exports(system: System, environment: Environment) -> list[str]:
    """Variables of the placement and the environment, taken literally; the environment's win where both set one."""
    variables = (system.placement.variables if system.placement else {}) | environment.variables
    for name in variables:
        if not name.isidentifier() or not name.isascii():
            raise UsageError(
                f"{name!r} is not a variable name; correct it in the file of system {system.name}"
            )
    return [f"export {name}={_value(environment, value)}" for name, value in variables.items()]


def _value(environment: Environment, value: str) -> str:
    prefix = environment.prefix
    if "$" in prefix and "{prefix}" in value:  # a centre's, which is another folder for each user
        return quoted_path(value.replace("{prefix}", prefix))
    folder = Path(sys.prefix) if prefix == "current" else Path(prefix).absolute()
    return quoted(value.replace("{prefix}", str(folder)))
