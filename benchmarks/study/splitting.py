"""Whether ranks can share samples, and what carries their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.study.batches import Work
from dlscale.benchmarks.study.sizes import Size
from dlscale.benchmarks.study.study import Study
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.neighbours import carrier_of
from dlscale.collectives.sharding import NONE

# Options of backends with which an update is not the mean of all gradients, and the values that ask for nothing.
NO_MEAN = {"compression": "none", "asynchronous": False, "backup_workers": 0}


def row_carriers(cells: Iterable[Cell]) -> dict[str, list[str]]:
    """What carries rows between the ranks of a sample -> the backends beside which it does."""
    found: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        if cell.split > 1 and cell.num_ranks > 1 and capabilities(cell.backend).exchanges:
            found[carrier_of(cell.backend, framework=cell.framework)].add(cell.backend)
    return {carrier: sorted(backends) for carrier, backends in sorted(found.items())}


def check_split(study: Study, backend: str, framework: str, work: Work) -> None:
    """Returns if ranks can share samples over a backend, in a study with one value of everything. Raises UsageError."""
    split, options = work.split, study.backend_options.get(backend, {})
    (algorithm,) = study.algorithms
    others = {
        f"algorithm {algorithm}, whose ranks train alone between exchanges": algorithm != SYNC,
        f"shard={study.shard}": study.shard != NONE,
        "compiled networks, whose graphs end at every exchange of rows": study.compiled,
        f"{backend} in {framework}, which trains in a graph of TensorFlow 1": (backend, framework)
        == ("grpc_ps", "tensorflow"),
        **{
            f"{backend}.{name}={options.get(name)}, which averages not all gradients as they are": True
            for name, nothing in NO_MEAN.items()
            if options.get(name, nothing) != nothing
        },
    }
    if problem := next((text for text, there in others.items() if there), None):
        raise UsageError(f"split {split} with {problem}; leave one of the two out")


class LeftOut:
    """What cannot be trained at some of a study's sizes, and whether anything is left of what was asked for."""

    def __init__(self, study: Study) -> None:
        self._named = bool(study.ranks or study.nodes)
        self._exchange = any(capabilities(name).exchanges for name in study.backends)
        # (size or split, workload, framework) -> the first problem there, and those with a training.
        self._first: dict[tuple[object, str, str], str] = {}
        self._made: set[tuple[object, str, str]] = set()
        # (split, why it is left out) -> on how many ranks.
        self._ranks: dict[tuple[object, str], set[int]] = defaultdict(set)

    def add(self, study: Study, training: tuple[str, str, str], size: Size, problem: str) -> None:
        """One (workload, framework, backend) of a study with one value of everything, and its problem if it has one."""
        workload, framework, backend = training
        if self._exchange and not capabilities(backend).exchanges:  # a control beside what exchanges
            return
        if problem:
            alike = problem.replace(f" {size.num_ranks} ranks", " that many ranks")
            self._ranks[study.split, alike].add(size.num_ranks)
        for place in (size, str(study.split))[: 1 + (size.num_ranks > 1)]:
            if problem:
                self._first.setdefault((place, workload, framework), problem)
            else:
                self._made.add((place, workload, framework))

    def warnings(self) -> list[str]:
        """A line for each problem. Raises UsageError where a size that was named, or a split, has nothing left."""
        for place, problem in self._first.items():
            if place not in self._made and (self._named or isinstance(place[0], str)):
                raise UsageError(problem)
        return [
            f"split {split} on {', '.join(map(str, sorted(ranks)))} ranks is left out: {problem}"
            for (split, problem), ranks in self._ranks.items()
        ]
