"""The contract between a backend and the programs that train over it, and what all trainers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.capabilities import Capabilities, capabilities, with_capability
from dlscale.models.workload import WEIGHT, ReplicaFactory, Shard, State, Weights

Setting = str | int | float | bool  # of a trainer, as records have it

# The setting with the bytes of each exchange of a step, in order: "1048576,26214400".
BUCKET_SIZES = "bucket_bytes"
# Likewise of what is gathered, where weights are sharded or updated in parts.
GATHER_SIZES = "gather_bytes"

SERVED = "served"  # how the names of what servers hold begin, in a trainer's `served_state`
SERVED_COUNTS = "served.counts"

OWN = "own."  # how the names of what each rank has of its own begin, in a trainer's `own_state`


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What decides, besides its options, whether a backend can train: what a plan knows of a launch.

    `one_machine`: all ranks and servers share a host.
    """

    framework: str
    num_ranks: int
    num_servers: int = 0
    device: str = "cpu"
    compiled: bool = False
    one_machine: bool = True


class Collective(Protocol):
    """Host-buffer operations of one communicator. Every method is collective and blocking.

    Buffers are C-contiguous NumPy arrays, equal in dtype and length on all ranks; float32, float64, int32
    and int64 are supported by every backend. Anything else raises TypeError or ValueError.
    """

    @property
    def rank(self) -> int:
        """This process, 0 .. size - 1."""

    @property
    def size(self) -> int:
        """The number of ranks, P."""

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Replace `buffer` on every rank by its sum, average, min or max over ranks, in place.

        All ranks get the same bits. An average is of floats: of integers it raises TypeError.
        """

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """An array of `count` zeros on a cache line of 64 bytes; collective.

        It lies where the collective reduces fastest, and stays valid after `close`. A buffer for `allreduce`
        need not come from here; one that does is the same part of the same array on all ranks.
        """

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        """Replace `buffer` on every rank by that of `root`, in place."""

    def barrier(self) -> None:
        """Return only after every rank has called."""

    def settings(self) -> dict[str, str | int | float | bool]:
        """Its own decisions, for the record."""

    def close(self) -> None:
        """Free the communicator; using it afterwards raises RuntimeError. A second close does nothing."""


class PartsCollective(Collective, Protocol):
    """A collective that also reduces to parts and gathers them; part r, of `size` equal ones, is rank r's."""

    def reduce_scatter(self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum") -> None:
        """Fill `output` with this rank's part of the reduction; it may be that part of `buffer`, whose rest is lost."""

    def allgather(self, piece: NDArray[Any], output: NDArray[Any]) -> None:
        """Fill `output` with the pieces of all ranks in order; `piece` may be this rank's part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes of a training's state on one rank between two steps; None where its framework does not show them."""

    parameters: int
    gradients: int | None = None
    optimizer: int | None = None


class Trainer(Protocol):
    """A replica wired to a backend. All methods are collective, except for the backend `none`."""

    def step(self) -> None:
        """Train on one local batch: gradients, exchange, update."""

    def synchronize(self) -> None:
        """Return when all work that earlier steps began is done."""

    def losses(self) -> list[float]:
        """This rank's mean losses of the last step, one per objective; none before the first."""

    def loss(self) -> float:
        """This rank's mean loss of the last step, summed over objectives; NaN before the first."""

    def weights(self) -> Weights:
        """Copies of the trainable weights, in the replica's canonical order."""

    def state(self) -> State:
        """All that the next steps depend on, as any rank has it; nothing is under way.

        Not collective, unless the backend shards. Raises UsageError where this rank does not have all of it.
        """

    def held(self, *, slots: bool = True) -> State:
        """What a step changes, as the replica's `held`: valid until the next step, not to be changed.

        Collective where the backend shards.
        """

    def state_bytes(self) -> StateBytes:
        """What this rank keeps of the training's state; not collective."""

    def own_state(self) -> State:
        """What the next steps depend on besides `state`, under names that begin with `OWN`. Not collective."""

    def restore(self, state: State) -> None:
        """Go on where a trainer of the same cell was when it gave its `state`. Before the first step; collective."""

    def settings(self) -> dict[str, str | int | float | bool]:
        """The backend's own decisions that a reader of the record must know (overlap, buckets ...)."""

    def close(self) -> None:
        """Release what the trainer holds; the backend stays usable."""


class CountingTrainer(Trainer, Protocol):
    """A trainer whose ranks do not step together, so that steps are no measure of what was learnt."""

    def num_applied(self) -> int:
        """Local batches, of all ranks together, whose gradients the weights have taken up so far; not collective."""

    def served_weights(self) -> Weights:
        """The servers' weights of now, whatever this rank has seen of them; between two steps, not collective."""

    def served_state(self) -> State:
        """All that a replay of this rank's next steps needs, servers' and its own; where nobody steps, not collective.

        Named as `state` names it. Where an algorithm of `served` trains, what the servers hold is called
        `SERVED<number>.<place of a weight>`: number 0 are the weights, and
        behind them the rule's own. SERVED_COUNTS are the numbers of updates and of this rank's steps.
        """


class StaleTrainer(CountingTrainer, Protocol):
    """A trainer whose ranks push what servers apply later, on weights that others may have changed since."""

    def staleness(self) -> dict[int, int]:
        """{updates: pushes}: how many pushes, of all ranks together, had missed so many updates; not collective.

        Empty where the servers do not count it, as TensorFlow's.
        """


class ReplicaTrainer:
    """Losses, weights and state of one replica; a subclass trains it (`Trainer`) and sets `_losses` in every step."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica
        self._losses: Sequence[Any] = ()

    def losses(self) -> list[float]:
        return [float(loss) for loss in self._losses]

    def loss(self) -> float:
        return sum(self.losses()) if self._losses else float("nan")

    def weights(self) -> Weights:
        weights: Weights = self._replica.weights()
        return weights

    def state(self) -> State:
        """The replica's state, which is complete where gradients are applied in their own step."""
        state: State = self._replica.state()
        return state

    def held(self, *, slots: bool = True) -> State:
        held: State = self._replica.held(slots=slots)
        return held

    def state_bytes(self) -> StateBytes:
        """What the replica holds; a subclass knows of the gradients, where its framework shows them."""
        return bytes_of(self.held())

    def own_state(self) -> State:
        """Nothing: what trains by synchronous steps is the same on all ranks."""
        return {}

    def restore(self, state: State) -> None:
        self._replica.restore(state)


def bytes_of(held: State) -> StateBytes:
    """The bytes of what a rank holds, without gradients."""
    weights = sum(value.nbytes for name, value in held.items() if name.startswith(f"{WEIGHT}."))
    slots = sum(value.nbytes for name, value in held.items() if name.startswith("optimizer"))
    return StateBytes(parameters=weights, optimizer=slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStamps:
    """When the parts of one step were done; seconds from its start.

    A gradient is ready when an exchange could have begun: in torch when it was accumulated, in TensorFlow when an
    operation that waits for it was run.
    """

    fetched: float  # the local batch is there
    forward: Sequence[float]  # ends of forward passes
    backward: Sequence[float]  # ends of the backward passes that follow each
    ready: Sequence[float]  # each gradient is complete, in the order of `Replica.names`
    end: float  # of the update and the step


class StampedTrainer(Trainer, Protocol):
    """A trainer of one rank alone that can stamp steps; `step` takes one without stamps."""

    @property
    def settling_steps(self) -> int:
        """Stamped steps before stamps say when, not when the framework had time for them."""

    def stamped_step(self) -> StepStamps:
        """Train on one local batch, with stamps."""


class KeptByServers:
    """The part of a trainer whose training cannot be saved, as servers keep some of it."""

    backend: str
    _replica: Any

    def served_state(self) -> State:
        """The replica's own state, where that is all that servers or workers update."""
        state: State = self._replica.state()
        return state

    def state(self) -> State:
        """Raises UsageError."""
        raise UsageError(
            f"{self.backend} has no checkpoints: its servers keep part of a training; leave out rules.checkpoint_every"
        )

    def restore(self, state: State) -> None:  # noqa: ARG002
        """Raises UsageError."""
        self.state()


class WrappedTrainer:
    """Another trainer with something around its steps (`Trainer`); what a subclass does not say is the other's."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)


class Backend(ABC):
    """How the ranks of one launch combine their gradients; all step together, unless a backend says otherwise."""

    name: str

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities(self.name)

    @property
    def delay(self) -> int:
        """Steps by which it delays gradients, as it was connected: 0 where steps are synchronous."""
        return 0

    @property
    def asynchronous(self) -> bool:
        """Whether a rank's gradients are applied as they come: no rank waits for another, and weights differ.

        Then trainers are `StaleTrainer`s. Otherwise all ranks take the same steps, each of which is one update.
        """
        return False

    @property
    def served(self) -> Any:
        """The options of the algorithm by which ranks train over servers without waiting for each other.

        None where ranks step together, and where each gradient is applied as it comes.
        """
        return None

    @property
    def compressor(self) -> Any:
        """What compresses gradients on their way; None where nothing does. Its trainers are `CompressedTrainer`s."""
        return None

    @property
    def rounds(self) -> Any | None:
        """The options of an algorithm by which ranks train alone and exchange weights over collectives now and then.

        None where gradients travel. Otherwise trainers are `algorithms.rounds.RoundsTrainer`s.
        """
        return None

    @property
    def shard(self) -> str:
        """What of a training's state is sharded over ranks, of `sharding.NAMES`."""
        return "none"

    def gather_seconds(self) -> float | None:
        """Seconds that gathers of weights took on this rank so far, its steps waiting; None if that is not known."""
        return None

    @abstractmethod
    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica wired to this backend by its own recommended interface; collective.

        Afterwards all ranks hold the initial weights of rank 0, whatever their seeds were (except over
        `none`, where each keeps its own).
        """

    def collective(self) -> Collective:
        """Host-buffer operations over all ranks; collective. Raises UsageError if there are none."""
        raise UsageError(
            f"backend {self.name} has no operations on host buffers; choose one of: "
            f"{', '.join(with_capability('collective'))}"
        )

    def process_group(self) -> Any:
        """Torch's default group, which the backend leaves when it closes, of one over torch.distributed."""
        raise UsageError(f"backend {self.name} has no process group of torch")

    @abstractmethod
    def close(self) -> None:
        """Leave the group; collective."""
