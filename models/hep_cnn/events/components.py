"""The components that a file of events is made of, read from `components.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Text

FOLDER = Path(__file__).parent


class Component(Frozen):
    """One physics process, in PYTHIA's terms. `label` is 1 for signal and 0 for background."""

    name: Text
    label: int
    cross_section_mb: float
    settings: tuple[Text, ...]
    pt_range_gev: tuple[int, int] | None = None  # of the hard scattering; without it all of phase space
    slha: Text | None = None  # file in this folder
    generated: bool = True

    @property
    def slha_path(self) -> Path | None:
        """The SLHA file, where the process needs one."""
        return FOLDER / self.slha if self.slha else None


class _Table(Frozen):
    settings: tuple[Text, ...]
    component: tuple[Component, ...]


def load_components() -> tuple[Component, ...]:
    """The generated components, signal first, each with all of its PYTHIA settings."""
    table = _Table.model_validate(tomllib.loads((FOLDER / "components.toml").read_text(encoding="utf-8")))
    return tuple(
        component.model_copy(
            update={"settings": (*table.settings, *_pt_settings(component), *component.settings)}
        )
        for component in sorted(table.component, key=lambda component: -component.label)
        if component.generated
    )


def _pt_settings(component: Component) -> tuple[str, ...]:
    if component.pt_range_gev is None:
        return ()
    low, high = component.pt_range_gev
    return (f"PhaseSpace:pTHatMin = {low}.", f"PhaseSpace:pTHatMax = {high}.")


def share_events(num_events: int, components: tuple[Component, ...]) -> tuple[int, ...]:
    """Events per component: half of them signal, half background, the background equal over its slices.

    Equal, because cross sections that fall by eight orders of magnitude would otherwise leave the slices
    next to the signal empty; event weights restore them. Remainders go to the first components of a kind.
    """
    counts: dict[str, int] = {}
    for label, total in ((1, num_events - num_events // 2), (0, num_events // 2)):
        kind = [component for component in components if component.label == label]
        for index, component in enumerate(kind):
            counts[component.name] = total // len(kind) + (index < total % len(kind))
    return tuple(counts[component.name] for component in components)
