"""What emulated hosts have measured, for predictions to be held to: results/reference/emulated.json.

It has what a prediction needs, the profiles of one host and the exchanges between some, and what it is compared with,
the steps of trainings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from dlscale.analysis.predict.profile import Profile
from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.benchmarks.records.cell import Setting

FILE = Path(__file__).resolve().parents[2] / "results" / "reference" / "emulated.json"
SAME = {"framework": "torch", "evidence": "emulated"}
_PROFILE = TypeAdapter(Profile)


class BucketTime(Frozen):
    """The exchange of `num_bytes`, which a step of `workload` has `count` of; None: of a message-size benchmark."""

    backend: str
    workload: str | None
    num_nodes: PositiveInt
    num_bytes: PositiveInt
    count: PositiveInt = 1
    num_launches: PositiveInt
    seconds: PositiveFloat  # of one, median over launches


class StepTime(Frozen):
    """The seconds of a training's steps, or why there are none."""

    workload: str
    backend: str
    backend_options: dict[str, Setting]
    num_nodes: PositiveInt  # of workers
    num_servers: NonNegativeInt
    seconds: list[list[PositiveFloat]]  # of each launch, the slowest rank's in each window
    failures: list[str]  # of launches that gave none
    foreign_cpu: list[float]  # of each launch, the share of its cores' time that other programs took

    @property
    def center(self) -> float:
        """The median over launches of each one's median."""
        return float(np.median([np.median(launch) for launch in self.seconds]))


class MeasuredHosts(Frozen):
    """The file. Rates are in bytes per second of one direction."""

    date: str
    commit: str
    versions: dict[str, str]
    node: dict[str, Setting]
    system: str
    link_bytes_per_second: PositiveFloat  # headers included
    load: list[NonNegativeFloat]  # averages over the minute before each launch, ascending
    profiles: list[dict[str, Any]]  # `profile.Profile` of one host, but for what is the same of all
    buckets: list[BucketTime]
    steps: list[StepTime]

    def profile(self, workload: str) -> Profile:
        """The profile of a workload. Raises UsageError if there is none."""
        for found in self.profiles:
            if found["workload"] == workload:
                return _PROFILE.validate_python(found | SAME)
        raise UsageError(f"{FILE.name} has no profile of {workload}")


def load_measured(path: Path = FILE) -> MeasuredHosts:
    """The file's content. Raises UsageError if it is missing or damaged."""
    try:
        return MeasuredHosts.model_validate_json(read_regular(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"])) or "top level"
        raise UsageError(f"{path}: {where}: {problem['msg']}") from None
