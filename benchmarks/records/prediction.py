"""Records of predictions: what is predicted of one backend on one number of nodes, a line of JSON each.

They are a separate type: nothing ran, and what averages records of launches cannot take a prediction for one of them.
`dlscale predict` writes a file per training, next to its figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, ValidationError

from dlscale.base.definitions import Frozen, first_problem, where_given
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular, write_atomically
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.records.cell import ScalingMode, Setting
from dlscale.benchmarks.records.windows import Count, CountFromZero
from dlscale.collectives.sharding import NONE

PREDICTIONS_FOLDER = "predictions"  # in the system's folder of results
ENDING = ".jsonl"
# Options of backends that change no time that is predicted.
HARMLESS = {"allow_open_ports", "port", "timeout_seconds", "check_every", "error_feedback"}
LARGEST_BYTES = 64 << 20  # of a file
AGAIN = "give a file that dlscale predict wrote, or predict again"


class Band(Frozen):
    """A predicted value: the median of the replicates, and what 90 % of them lie between."""

    low: PositiveFloat
    center: PositiveFloat
    high: PositiveFloat


class Origin(Frozen):
    """Where one input of predictions comes from, in words; `kind`: stated, published, measured, derived, assumed ..."""

    input: Text
    value: Text
    kind: Text
    source: Text


class PredictionRecord(Frozen, extra="ignore"):  # earlier versions wrote more
    """The prediction for one backend on one number of nodes, and what it was made from.

    Efficiency is relative to one rank without a communication layer, whose time is the profile's. `parts` are shares of
    the predicted step that are lost, by their names in a waterfall; they add up to 1 - efficiency.
    """

    schema_version: Literal[2] = 2
    evidence: Literal["simulated"] = "simulated"
    system: Name
    workload: Name
    preset: Name
    framework: Name
    backend: Name
    backend_options: dict[Text, Setting] = {}
    shard: Name = where_given(NONE)  # what of the training's state each rank has only its part of
    scaling_mode: ScalingMode
    num_ranks: Count
    num_servers: CountFromZero
    num_nodes: Count  # of the ranks; servers are on further ones
    local_batch: Count
    global_batch: Count
    samples_per_second: Band
    efficiency: Band
    step_seconds: Band
    wire_seconds: NonNegativeFloat  # of gradients on the fullest link of a node
    # Whether it is as fast as any other backend, in a twentieth of the replicates at least; None: predicted alone.
    may_be_fastest: bool | None = None
    parts: dict[Text, float]
    num_replicates: Count
    engine: Text
    engine_version: Text
    origins: tuple[Origin, ...]  # of every input
    doubts: tuple[Text, ...]  # why it is not to be trusted, where it was asked for all the same
    commit: Text
    command: Text

    @property
    def carrier(self) -> str:
        """The backend, with what is sharded: `nccl, parameters sharded`."""
        return self.backend if self.shard == NONE else f"{self.backend}, {self.shard} sharded"

    @property
    def batch(self) -> int:
        """What is constant along its curve: samples per rank under weak scaling, over all ranks under strong."""
        return self.local_batch if self.scaling_mode == "weak" else self.global_batch

    @property
    def num_all_nodes(self) -> int:
        """The nodes of ranks and servers, as a cell counts them; a node has as many servers as others have ranks."""
        return self.num_nodes + -(-self.num_servers * self.num_nodes // self.num_ranks)


def write_predictions(records: Iterable[PredictionRecord], path: Path) -> None:
    """Write the records to `path` as `write_atomically`."""
    write_atomically(path, "".join(f"{record.model_dump_json()}\n" for record in records), mode=0o644)


def read_predictions(path: Path) -> list[PredictionRecord]:
    """The records of a file, at least one. Raises UsageError for a file that is not wholly sound."""
    try:
        lines = read_regular(path, limit=LARGEST_BYTES, links=True).splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {AGAIN}") from None
    if not lines:
        raise UsageError(f"{path} has no predictions; {AGAIN}")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            known = line.replace(b'"exchange_algorithm":"",', b"")  # of earlier versions
            records.append(PredictionRecord.model_validate_json(known))
        except ValidationError as error:
            problem = first_problem(error).removeprefix("the file: ")
            raise UsageError(f"{path}, line {number}, is no prediction: {problem}; {AGAIN}") from None
    return records
