"""The backends by name: their options, whether they can be used here, and how to join ranks over them.

A backend's module has `connect` and `Options` or
`OPTION_KINDS`. It may have `check(framework)`, which raises UsageError with the reason why it cannot be used here
and imports what must be imported to know; `check_setup(options, setup)`, which a plan calls and whose checks its ranks
repeat; `check_installed(framework, options)`, likewise of what is installed here; `preload(framework)`; and,
with servers, `serve`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms import SYNC, read_algorithm
from dlscale.collectives.algorithms.rounds import RoundsBackend
from dlscale.collectives.backend import Backend, Setup
from dlscale.collectives.capabilities import NAMES, TABLE, Capabilities, capabilities
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.option_kinds import read_into_kinds
from dlscale.collectives.sharding import NONE, check_sharding


def connect(
    name: str,
    *,
    control: Any,
    framework: str = "torch",
    options: Mapping[str, str | int | float | bool] | None = None,
    job: ServerSplit | None = None,
    algorithm: str = SYNC,
    algorithm_options: Mapping[str, str | int | float | bool] | None = None,
    shard: str = NONE,
) -> Backend:
    """Join all ranks of `control`, an mpi4py communicator, over the named backend; collective.

    `framework` is what will be trained in, by `algorithm`; `shard`, of `sharding.NAMES`, is what of a training's state
    is sharded. A backend with servers needs `job`, whose workers are the
    ranks of `control`; its servers call `serve` meanwhile. Raises UsageError for an unknown name, framework,
    algorithm, sharding or option, and if the backend is not installed here.
    """
    row = capabilities(name)  # an unknown name ends here, with the list of the known ones
    check_framework(row, framework)
    known = dict(options or {})
    check_algorithm(name, known, framework=framework, algorithm=algorithm)
    check_sharding(name, known, framework=framework, shard=shard, algorithm=algorithm)
    rules = read_algorithm(algorithm, algorithm_options)
    module = backend_module(name)
    if not row.servers:
        backend: Backend = module.connect(control=control, framework=framework, options=known)
        if shard != NONE:
            from dlscale.collectives.sharding import backends

            return backends.over(backend, shard)
        return backend if algorithm == SYNC else RoundsBackend(backend, rules)
    if job is None:
        raise UsageError(f"backend {name} needs servers, which are ranks of their own; give servers")
    served: Backend = module.connect(
        control=control, framework=framework, options=known, job=job, **_rules_for(row, rules)
    )
    return served


def serve(
    name: str,
    *,
    job: ServerSplit,
    framework: str,
    options: Mapping[str, str | int | float | bool] | None = None,
    algorithm: str = SYNC,
    algorithm_options: Mapping[str, str | int | float | bool] | None = None,
) -> None:
    """On a server rank of `job`: serve the workers, which `connect`, until they have closed; collective."""
    row, known = capabilities(name), dict(options or {})
    check_framework(row, framework)
    check_algorithm(name, known, framework=framework, algorithm=algorithm)
    rules = read_algorithm(algorithm, algorithm_options)
    backend_module(name).serve(job=job, framework=framework, options=known, **_rules_for(row, rules))


def _rules_for(row: Capabilities, rules: Any) -> dict[str, Any]:
    """What servers that carry several algorithms are told: the options of the one to run."""
    return {"algorithm": rules} if len(row.algorithms) > 1 else {}


def preload(name: str, framework: str) -> None:
    """Import what the backend will need, to separate the time for imports from that of connecting.

    Raises UsageError if it is not installed here.
    """
    check_framework(capabilities(name), framework)
    if load := getattr(backend_module(name), "preload", None):
        load(framework)


def check_options(name: str, options: Mapping[str, str | int | float | bool]) -> None:
    """Returns if the backend has these options; `check_setup` tells whether they fit a launch. Raises UsageError."""
    module = backend_module(name)
    kinds = getattr(module, "OPTION_KINDS", None) or (module.Options,)
    read_into_kinds(kinds, options, owner=f"backend {name}")


def check_setup(name: str, options: Mapping[str, str | int | float | bool], setup: Setup) -> None:
    """Returns if ranks would accept these options in that setup; asked before anything starts. Raises UsageError."""
    if check := getattr(backend_module(name), "check_setup", None):
        check(dict(options), setup)


# Options that decide how gradients travel, with the values that change nothing where weights travel instead.
OF_GRADIENTS = {
    "pipelined": False,
    "pipelined_until_step": 0,
    "check_every": 0,
    "teams": -1,
    "compression": "none",
    "bucket_cap_mb": 25,
}


def has_other_updates(options: Mapping[str, Any]) -> bool:
    """Whether ranks of a backend with these options make late updates, or do not wait for each other.

    Compression is none of it: its updates are meant to be the same.
    """
    return any(options.get(name) for name in ("asynchronous", "pipelined"))


def check_algorithm(name: str, options: Mapping[str, Any], *, framework: str, algorithm: str) -> None:
    """Returns if the backend with these options carries the algorithm in that framework. Raises UsageError."""
    read_algorithm(algorithm)
    row = capabilities(name)
    if algorithm == SYNC:
        return
    if algorithm not in row.algorithms:
        carrying = ", ".join(other for other in NAMES if algorithm in TABLE[other].algorithms)
        raise UsageError(f"backend {name} does not carry algorithm {algorithm}; choose from: {carrying}")
    if not row.servers and framework not in row.collective:
        raise UsageError(
            f"algorithm {algorithm} over {name} needs operations on host buffers, which {name} has in "
            f"{', '.join(row.collective)}, not in {framework}"
        )
    for option, unchanged in OF_GRADIENTS.items():
        if not row.servers and options.get(option, unchanged) != unchanged:
            raise UsageError(
                f"{name}.{option}={options[option]} with algorithm {algorithm}: that is for gradients, and weights "
                "travel here; leave one of the two out"
            )


def check_framework(row: Capabilities, framework: str) -> None:
    """Returns if the backend trains in that framework. Raises UsageError."""
    if framework not in row.frameworks:
        raise UsageError(
            f"backend {row.name} does not train in {framework}; it trains in: {', '.join(row.frameworks)}"
        )


def backend_module(name: str) -> Any:
    """What has a backend's functions: the module that its row names, or an object in it. Imports no framework."""
    file, _, owner = (capabilities(name).module or name).partition(":")
    module = importlib.import_module(f"dlscale.collectives.{file}")
    return getattr(module, owner) if owner else module


def unavailable_because(
    name: str, framework: str, options: Mapping[str, str | int | float | bool] | None = None
) -> str | None:
    """Why the backend cannot be used in that framework here, with those options; None if it can.

    Raises UsageError for unknown names.
    """
    row = capabilities(name)
    if framework not in row.frameworks:
        return f"{name} does not train in {framework}"
    if not importlib.util.find_spec(framework):
        return f"{framework} is not installed"
    module = backend_module(name)
    try:
        if hasattr(module, "check"):
            module.check(framework)
        if options and hasattr(module, "check_installed"):
            module.check_installed(framework, dict(options))
    except UsageError as error:
        return str(error)
    return None
