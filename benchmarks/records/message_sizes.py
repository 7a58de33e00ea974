"""Records of the message-size benchmark: campaign.json, and a file per launch with every call's time on every rank.

Files are written once; numbers, intervals and verdicts are derived from them. Changing a field here requires a new
SCHEMA_VERSION.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import NonNegativeInt, PositiveInt, model_validator

from dlscale.base.definitions import Frozen, read_json
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.collective_operations import Collective

SCHEMA_VERSION: Final = 6  # earlier ones had states of the caches


class Samples(Frozen, extra="ignore"):  # earlier versions wrote more
    """One block of calls."""

    operation: Name  # "mpi", "ring", "gloo" ...; earlier versions had "stream" and "ring-shared"
    collective: Collective = "allreduce"
    message_bytes: PositiveInt  # asked for; `CollectiveOperation.message` says what it means
    used_bytes: PositiveInt | None = None  # of whole elements per rank; None: all
    round: NonNegativeInt
    num_warmup: NonNegativeInt  # untimed calls on this size before the first block
    # [rank][call], on each rank's own clock; of a broadcast from the first start
    nanoseconds: list[list[NonNegativeInt]]


class CellFailure(Frozen, extra="ignore"):
    """An operation that could not be measured at a size, and why."""

    operation: Name
    collective: Collective = "allreduce"
    message_bytes: PositiveInt
    reason: Text


class MessageSizeLaunch(Frozen, extra="ignore"):  # earlier versions wrote more
    """One mpiexec, from its start to its end. What it is to do comes first; its launch fills in the rest."""

    schema_version: Literal[6] = SCHEMA_VERSION
    # Earlier versions had launches that chose settings, and comparisons with IMB-MPI1.
    purpose: Literal["tuning", "measured", "validity"] = "measured"
    block: NonNegativeInt  # launches of one block ran close in time
    position: NonNegativeInt = 0  # in the order of all launches
    # The position of the first of the launches that ran at the same time and took turns: their rounds with one number
    # were measured right after each other. None: it was alone.
    together: NonNegativeInt | None = None
    backend: Name
    setting: Text
    variables: dict[Text, Text]
    thread_level: Text  # asked for
    num_ranks: PositiveInt
    num_nodes: PositiveInt = 1
    operations: list[Text] = []  # asked for: "mpi", an allreduce, or "mpi:broadcast"
    command: Text = ""
    started: Text = ""  # UTC
    library: Text | None = None  # as the MPI names itself
    samples: list[Samples] = []
    failures: list[CellFailure] = []
    failure: Text | None = None  # of the launch as a whole
    log_tail: Text = ""

    @model_validator(mode="after")
    def _of_all_ranks(self) -> MessageSizeLaunch:
        """Every block has as many calls on every rank, and one at least."""
        for times in (block.nanoseconds for block in self.samples):
            if len(times) != self.num_ranks or len({*map(len, times)} | {0}) != 2:
                raise ValueError(
                    f"nanoseconds are not those of as many calls on each of {self.num_ranks} ranks"
                )
        return self


class PeerState(Frozen, extra="ignore"):
    """The state of a requested library."""

    name: Name
    title: Text
    versions: dict[Text, Text]
    unusable: Text | None  # why it was not measured


class MessageSizeRun(Frozen, extra="ignore"):
    """The run that a folder of launches belongs to."""

    schema_version: Literal[6] = SCHEMA_VERSION
    started: Text
    commit: Text
    collectives: list[Collective] = ["allreduce"]
    system: Text | None = None  # title, where a system was named
    nodes: list[Text] = []  # of the job; empty: this machine
    ranks_per_node: PositiveInt | None = None
    wire_bytes_per_second: float | None = None  # of a node, in each direction, as the system's file states it
    sizes: list[PositiveInt]
    rank_counts: list[PositiveInt]
    num_blocks: PositiveInt
    cpus: list[NonNegativeInt]
    busy: Text | None = None  # what other programs used right before the run, if that was more than a little
    node: dict[Text, Setting]
    peers: list[PeerState]


CAMPAIGN_FILE = "campaign.json"
LAUNCHES = "launches"


def write_campaign(folder: Path, campaign: MessageSizeRun) -> None:
    """Create the folder and write its run."""
    make_folder(folder / LAUNCHES)
    write_atomically(folder / CAMPAIGN_FILE, campaign.model_dump_json(indent=1) + "\n")


def add_launch(folder: Path, launch: MessageSizeLaunch) -> Path:
    """Write a launch once. Raises FileExistsError if its place in the order is taken."""
    name = f"{launch.position:03d}-{launch.purpose}-{launch.backend}-{launch.num_ranks}r.json"
    path = folder / LAUNCHES / name
    if path.exists():
        raise FileExistsError(f"{path}: records are written once")
    write_atomically(path, launch.model_dump_json() + "\n")
    return path


def load_run(folder: Path) -> tuple[MessageSizeRun, list[MessageSizeLaunch]]:
    """A run's campaign and its launches in order. Raises UsageError for a file that is missing or invalid."""
    remedy = "name a folder that this version of dlscale collectives wrote, or run again"
    campaign = read_json(MessageSizeRun, folder / CAMPAIGN_FILE, remedy=remedy)
    paths = sorted((folder / LAUNCHES).glob("[0-9]*.json"))
    return campaign, [read_json(MessageSizeLaunch, path, remedy=remedy) for path in paths]


def latest_run(results: Path) -> Path:
    """The folder of the latest run in a results folder. Raises UsageError if there is none."""
    runs = sorted(path.parent for path in results.glob(f"collectives/*/{CAMPAIGN_FILE}"))
    if not runs:
        raise UsageError(f"no run of this benchmark in {results}; make one with: dlscale collectives")
    return runs[-1]
