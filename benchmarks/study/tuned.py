"""Learning rates that a search found, with what the search was allowed, as tuned.toml has them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError, field_validator

from dlscale.base import definitions
from dlscale.base.definitions import Frozen, where_given
from dlscale.base.errors import UsageError
from dlscale.base.files import LARGEST_BYTES, read_regular, write_atomically
from dlscale.base.parsing import parse_toml
from dlscale.base.strings import Name
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.target import Tuning
from dlscale.benchmarks.records.tuning import RateConfiguration, configuration_of

Rate = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
Seconds = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
# Seeds of a search are those of the study that it is for plus this: more than a study has launches, so that no training
# of one has the weights and the order of samples of a training of the other.
SEED_DISTANCE = 1_000_000
TUNED_FILE = "tuned.toml"


class TunedRate(Frozen):
    """The learning rate that reached the target at the least expected number of samples, and that number."""

    learning_rate: Rate  # of 1 rank, as in the grid
    expected_samples: PositiveFloat
    num_reached: PositiveInt  # of the trainings at this rate
    configuration: RateConfiguration
    learning_rates: list[Rate] = where_given([])  # the grid of this configuration; empty: that of the search


class ClosestRate(Frozen):
    """A configuration of which no training reached the target, and the rate of the one that came closest."""

    learning_rate: Rate
    closest: float = Field(allow_inf_nan=False)  # the metric's best value
    configuration: RateConfiguration


class Tuned(Frozen):
    """A search: its grid and budget, the same for every configuration, and what it found."""

    study: Name
    learning_rates: list[Rate] = Field(min_length=2)  # the grid
    num_seeds: PositiveInt  # trainings of each rate and configuration
    first_seed: NonNegativeInt
    last_seed: NonNegativeInt
    max_samples: PositiveInt  # of a training
    max_seconds: Seconds
    num_trainings: PositiveInt  # over all configurations
    seconds: Seconds  # that these took
    rates: list[TunedRate] = Field(min_length=1)
    missed: list[ClosestRate] = where_given([])

    @field_validator("rates")
    @classmethod
    def _check_rates(cls, rates: list[TunedRate]) -> list[TunedRate]:
        for place, rate in enumerate(rates):
            if rate.configuration in [other.configuration for other in rates[:place]]:
                raise ValueError(f"{rate.configuration.text} is there twice; leave one out")
        return rates

    @property
    def budget(self) -> Tuning:
        """What a record keeps of the search."""
        return Tuning(
            study=self.study,
            num_rates=len(self.learning_rates),
            num_seeds=self.num_seeds,
            max_samples=self.max_samples,
            max_seconds=self.max_seconds,
        )

    def rate_of(self, cell: Cell) -> float:
        """The learning rate of 1 rank that was found for the cell's configuration. Raises UsageError.

        One of a search by cell goes first, even where it only came close.
        """
        if found := self._of(cell):
            return found.learning_rate
        wanted, own = configuration_of(cell), configuration_of(cell, by_cell=True)
        differences = [
            (own if rate.configuration.backend else wanted).differences(rate.configuration)
            for rate in self.rates
        ]
        nearest = min(differences, key=len)
        raise UsageError(
            f"tuned: {self.study} found no learning rate for {wanted.text}; the nearest that it has is for "
            f"{', '.join(nearest)}; give dlscale run tuning this study's options, or leave tuned out"
        )

    def doubt(self, cell: Cell) -> str:
        """A sentence about a rate that only came close to the target; empty for one that reached it."""
        found = self._of(cell)
        if not isinstance(found, ClosestRate):
            return ""
        return (
            f"no learning rate of {self.study} reached the target for {found.configuration.text}: trained at "
            f"{found.learning_rate:g}, which came closest with {found.closest:.4g}"
        )

    def _of(self, cell: Cell) -> TunedRate | ClosestRate | None:
        found: list[TunedRate | ClosestRate] = [*self.rates, *self.missed]
        for configuration in (configuration_of(cell, by_cell=True), configuration_of(cell)):
            for rate in found:
                if rate.configuration == configuration:
                    return rate
        return None

    def check_seeds(self, first: int, last: int) -> None:
        """Returns if no training with a seed from `first` to `last` had a part in the search. Raises UsageError."""
        if first <= self.last_seed and self.first_seed <= last:
            raise UsageError(
                f"tuned: seeds {first} to {last} are among those that {self.study} chose its rates by "
                f"({self.first_seed} to {self.last_seed}); give another --seed, e.g. {self.last_seed + 1}"
            )


def read_tuned(path: Path) -> Tuned:
    """The rates in a file. Raises UsageError."""
    try:
        content = parse_toml(read_regular(path, limit=LARGEST_BYTES, links=True).decode())
        return Tuned.model_validate(content)
    except OSError as error:
        raise UsageError(
            f"tuned={path} cannot be read ({error.strerror}); give the {TUNED_FILE} that dlscale run tuning wrote"
        ) from None
    except ValidationError as error:
        raise UsageError(f"tuned={path}: {definitions.first_problem(error)}") from None
    except ValueError as error:
        raise UsageError(f"tuned={path} is not valid TOML: {error}; correct that line") from None


def write_tuned(tuned: Tuned, path: Path) -> None:
    """Write the rates so that `read_tuned` reads them. Raises UsageError."""
    # Here, because reading needs none, and every command imports this file.
    import tomlkit

    document = tomlkit.document()
    document.add(
        tomlkit.comment(
            "Found by dlscale run tuning. Use: dlscale run time-to-solution --set target.tuned=THIS-FILE"
        )
    )
    document.update(tuned.model_dump())
    write_atomically(path, tomlkit.dumps(document))
