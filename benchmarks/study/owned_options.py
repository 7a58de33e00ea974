"""Whether a study has the backends and algorithms whose options it gives, and they such options."""

from __future__ import annotations

from dlscale.base.definitions import one_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.axes import is_option
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.study.target import TargetRules
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities, check_options
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS
from dlscale.collectives.algorithms.registry import SYNC, read_algorithm


def check_owned_options(study: Study) -> None:
    """Raises UsageError unless every backend has the options that the study gives it."""
    for backend in study.backends if study.rules.checkpoint_every else ():
        if capabilities(backend).servers:
            raise UsageError(
                f"rules.checkpoint_every does not work with backend {backend}, whose servers hold "
                f"part of the training's state; drop {backend} or the option"
            )
    for backend in study.backend_options:
        one_of("backend", backend, BACKENDS)
    _check_algorithms(study)
    for name in study.axes:
        if is_option(name):
            _check_owner(study, name)
    for backend in study.backends:
        for options in (variant.backend_options.get(backend, {}) for variant in study.variants(backend)):
            check_options(backend, options)


def _check_owner(study: Study, name: str) -> None:
    """Raises UsageError unless the study has the backend or the algorithm whose option has several values."""
    owner = name.partition(".")[0]
    kind, own = ("algorithm", study.algorithms) if owner in ALGORITHMS else ("backend", study.backends)
    if owner not in own:
        known = one_of(kind, owner, (*BACKENDS, *ALGORITHMS))
        raise UsageError(
            f"{name} has several values, but {known} is not in the study; add it "
            f"to --{kind}s {','.join(own)}, or leave the option out"
        )


def _check_algorithms(study: Study) -> None:
    """Raises UsageError for an algorithm that no backend of the study carries, and for options that none has."""
    for name in study.algorithms:
        if name == SYNC or any(name in study.algorithms_over(backend) for backend in study.backends):
            continue
        carrying = ", ".join(other for other in BACKENDS if name in capabilities(other).algorithms)
        raise UsageError(
            f"algorithm {name} over {', '.join(study.backends)}: none of these carries it; add one of: {carrying}"
        )
    for name in study.algorithm_options:
        if one_of("algorithm", name, ALGORITHMS) not in study.algorithms:
            raise UsageError(
                f"{name} has options, but is not in the study; add it to algorithms={','.join(study.algorithms)}, "
                "or leave them out"
            )
    for backend in study.backends:
        for variant in study.variants(backend):
            (name,) = variant.algorithms
            rules = read_algorithm(name, variant.algorithm_options.get(name))
            if name == "easgd" and rules.momentum and not _plain_sgd(variant.target):
                raise UsageError(
                    f"{name}.momentum={rules.momentum:g} is that of plain SGD; run it in time-to-solution with "
                    "target.optimizer=sgd, without target.momentum, or leave it out"
                )
            _check_windows(study, name, int(getattr(rules, "interval", 1)))


def _check_windows(study: Study, name: str, interval: int) -> None:
    """Raises UsageError if windows of whole rounds would be longer than a case may be."""
    rules = study.rules
    longest = (rules.max_steps - rules.longest_warm_up) // rules.min_windows
    if study.target is None and interval > longest:
        raise UsageError(
            f"{name}.interval={interval}: {rules.min_windows} windows of whole rounds are more than rules.max_steps = "
            f"{rules.max_steps} leaves; give at most {longest}, or allow more steps"
        )


def _plain_sgd(target: TargetRules | None) -> bool:
    """Whether the ranks' own updates are those of SGD without momentum."""
    return bool(target and target.optimizer == "sgd" and not target.momentum)
