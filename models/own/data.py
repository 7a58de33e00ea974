"""The samples of a user's file, as `samples.DataModule` asks for them, and the digest by which they are told apart."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from pathlib import Path

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.own import FilePlace, OwnModel, known_place
from dlscale.models.own.file import OwnFile, load_file
from dlscale.models.own.randomness import seed_generators
from dlscale.models.own.sources import ArraySource, Source, laid_out, open_source
from dlscale.models.samples import Arrays, BadSample
from dlscale.models.workload import Indices, Input, Preset

WHOLE_BYTES = 256 << 20  # more are identified by their number and some of them
NUM_IDENTIFYING = 64
SEED_LIMIT = 2**31


class OwnSamples:
    """`samples.Samples` of a source.

    What reading draws at random depends on `seed` and the samples read before; without a seed on what is read alone.
    """

    def __init__(
        self,
        source: Source,
        own: OwnFile,
        *,
        framework: str,
        seed: tuple[int, int] | None,
    ) -> None:
        self._source, self._framework, self._seed = source, framework, seed
        self._generators = [*own.generators, *source.generators]
        self._seed_framework = importlib.import_module(f"dlscale.models.own._{framework}").seed
        self._in_memory = isinstance(source, ArraySource)
        self._num_read = 0

    def __len__(self) -> int:
        return len(self._source)

    def skip(self, count: int) -> None:
        """Draw what is drawn after `count` more samples."""
        self._num_read += count

    def read(self, indices: Indices) -> Arrays:
        """The samples in that order, images as (N, H, W, C)."""
        if self._source.random:
            drawn_by = indices if self._seed is None else (*self._seed, self._num_read)
            number = int(np.random.default_rng(drawn_by).integers(SEED_LIMIT))
            seed_generators(number, self._generators)
            self._seed_framework(number)
        self._num_read += len(indices)
        arrays = self._source.read(indices)
        if not self._in_memory:
            arrays = tuple(laid_out(array, self._framework) for array in arrays)
        return arrays


def read_good(samples: OwnSamples, count: int) -> tuple[Arrays, str]:
    """So many samples from all over the data, the bad ones left out, and what is wrong with the first of these."""
    places = np.unique(np.linspace(0, len(samples) - 1, min(count, len(samples))).astype(np.int64))
    problem = ""
    while len(places):
        try:
            return samples.read(places), problem
        except BadSample as error:
            problem = problem or str(error)
            places = places[places != error.index]
    raise UsageError(problem)


def data_digest(source: Source, own: OwnFile, *, framework: str) -> str:
    """12 hex digits that differ for other samples.

    They are those of all samples that are in memory, up to 256 MiB, else of their number and 64 of them.
    """
    digest = hashlib.sha256(str(len(source)).encode())
    if isinstance(source, ArraySource) and sum(array.nbytes for array in source.arrays) <= WHOLE_BYTES:
        arrays: Arrays = source.arrays
    else:
        arrays = read_good(OwnSamples(source, own, framework=framework, seed=(0, 0)), NUM_IDENTIFYING)[0]
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


class OwnData:
    """`samples.DataModule` of a file; it is run when samples are opened."""

    def __init__(self, model: OwnModel, place: FilePlace | None) -> None:
        self._model, self._place = model, place

    def default_input(self, preset: Preset) -> Input:  # noqa: ARG002
        return Input(path=Path(self._model.file))

    def check_input(self, source: Input, preset: Preset, *, num_samples: int = 1) -> None:  # noqa: ARG002
        """Returns if there are enough samples. Raises UsageError."""
        if not source.synthetic and self._model.num_samples < num_samples:
            raise UsageError(f"{self._model.file}: {self._model.num_samples} samples, needed {num_samples}")

    def open_samples(
        self,
        source: Input,  # noqa: ARG002
        preset: Preset,  # noqa: ARG002
        *,
        seed: tuple[int, int] | None,
    ) -> OwnSamples:
        """The samples that the study was planned with. Raises UsageError if the file has others in this process."""
        own, opened = _opened(known_place(self._model, self._place), self._model)
        return OwnSamples(opened, own, framework=self._model.framework, seed=seed)

    def synthetic_batch(self, preset: Preset, local_batch: int, rng: np.random.Generator) -> Arrays:
        """Resident tensors: some of the file's own samples, for only these are sure to fit the network."""
        samples = self.open_samples(Input(), preset, seed=(0, 0))
        good, _ = read_good(samples, local_batch)
        chosen = rng.integers(0, len(good[0]), local_batch)
        return tuple(array[chosen] for array in good)

    def step_inputs(
        self,
        preset: Preset,  # noqa: ARG002
        local_batch: int,  # noqa: ARG002
        rng: np.random.Generator,
        *,
        gate: bool,  # noqa: ARG002
    ) -> Arrays:
        """A seed for what the network draws in this step, such as dropout; nothing for a network without any."""
        return (rng.integers(0, SEED_LIMIT, 1),) if self._model.random else ()


def _opened(place: FilePlace, model: OwnModel) -> tuple[OwnFile, Source]:
    own = load_file(place, model.digest)
    source = open_source(own, model.framework)
    if (found := _digest_once(own, model.framework)) != model.data.rpartition(":")[2]:
        raise UsageError(
            f"{own.where('data')}: data() gives other samples ({len(source)}, digest {found}) than when "
            f"the study was planned ({model.num_samples}, {model.data}); seed what it draws, or plan again if a "
            "file changed"
        )
    return own, source


@cache
def _digest_once(own: OwnFile, framework: str) -> str:
    return data_digest(open_source(own, framework), own, framework=framework)
