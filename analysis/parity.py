"""Which families are the same training in the two frameworks, and whether they may be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlscale.analysis.family import Family
from dlscale.benchmarks.record import Parity


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A workload, preset and precision that are there in both frameworks, and what the parity gate found."""

    frameworks: tuple[str, ...]
    comparable: bool | None  # None: the gate did not run
    failed: tuple[str, ...]  # names of the checks

    @property
    def note(self) -> str | None:
        """What must stand beside every number of the pair; None if they may be compared."""
        if self.comparable is None:
            return "parity not checked"
        return None if self.comparable else f"not comparable between frameworks: {', '.join(self.failed)}"

    @property
    def verdict(self) -> str:
        """The same as a line of its own."""
        both = " and ".join(self.frameworks)
        if self.comparable is None:
            return f"{both}: parity not checked, so do not compare them"
        if self.comparable:
            return f"{both}: same network (parity gate passed)"
        return f"{both}: NOT COMPARABLE, the parity gate failed: {', '.join(self.failed)}"


def pairs_of(families: Iterable[Family], parities: Iterable[Parity]) -> Mapping[Family, Pair]:
    """The pair of every family whose workload, preset and precision are there in several frameworks."""
    members: dict[tuple[str, str, str], list[Family]] = {}
    for family in families:
        members.setdefault((family.workload, family.preset, family.precision), []).append(family)
    verdicts: dict[tuple[str, str, str], list[Parity]] = {}
    for parity in parities:
        verdicts.setdefault((parity.workload, parity.preset, parity.precision), []).append(parity)
    return {
        family: _pair(group, verdicts.get(key, []))
        for key, group in members.items()
        if len({family.framework for family in group}) > 1
        for family in group
    }


def _pair(group: Iterable[Family], verdicts: list[Parity]) -> Pair:
    failed = [check.name for verdict in verdicts for check in verdict.checks if not check.passed]
    return Pair(
        frameworks=tuple(sorted({family.framework for family in group}, reverse=True)),
        comparable=not failed if verdicts else None,
        failed=tuple(dict.fromkeys(failed)),
    )
