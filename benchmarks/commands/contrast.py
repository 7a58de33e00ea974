"""What `dlscale compare` shows of one study: its declared comparisons, and which of them may be claimed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group

from dlscale.analysis.contrasts.between import between
from dlscale.analysis.contrasts.contrast import Contrasts, contrasts
from dlscale.analysis.contrasts.declare import Declared, declare, launches_of
from dlscale.analysis.contrasts.rows import to_json, to_rows
from dlscale.analysis.contrasts.table import render
from dlscale.analysis.frame import APART
from dlscale.analysis.outliers.cells import outliers
from dlscale.analysis.parity import pairs_of
from dlscale.analysis.waterfall.times import latest_good
from dlscale.benchmarks.cli import INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.record import Parity, Record
from dlscale.benchmarks.record_files import load_parity
from dlscale.models.errors import UsageError

Forbidden = Callable[[Declared], str]


def contrast_study(
    records: Sequence[Record],
    *,
    folder: Path | None,
    factor: Sequence[str],
    reference: str | None,
    ranks: Sequence[int],
    backends: Sequence[str],
    as_json: bool,
) -> int:
    """Print the comparisons inside one study; returns the exit status.

    `folder` is the study's, with the order in which it names things and the parity gate's verdicts; None for records
    from elsewhere. 3 if frameworks are compared whose networks the parity gate found to differ, 4 if nothing can be
    shown. Raises UsageError if there is nothing to compare.
    """
    if len(factor) > 1:
        raise UsageError(f"one factor at a time inside a study, not {', '.join(factor)}; give one --factor")
    records = [record for record in records if record.case.cell.control not in APART]
    declaration = declare(
        launches_of(records),
        factor=factor[0] if factor else None,
        reference=reference,
        order=order_of(folder) if folder else (),
        ranks=ranks,
        backends=backends,
    )
    parities = load_parity(folder) if folder else []
    forbidden = parity_forbids(parities)
    flagged = {(one.cell.id, one.evidence): one.blocks for one in outliers(latest_good(records))}
    found = contrasts(declaration, flagged=flagged, forbidden=forbidden)
    show(found, as_json=as_json)
    if any(forbidden(pair) for pair in declaration.pairs) and not all(one.passed for one in parities):
        return NOT_COMPARABLE
    return 0 if found.shown else INSUFFICIENT_DATA


def contrast_studies(
    a: Sequence[Record], b: Sequence[Record], *, keys: Sequence[str], parities: Iterable[Parity] = ()
) -> Contrasts | None:
    """B's cells against A's, unpaired; None if they have no cell in common that gave a number."""
    declaration = between(launches_of(a), launches_of(b), keys=keys)
    return contrasts(declaration, forbidden=parity_forbids(parities)) if declaration.pairs else None


def show(found: Contrasts, *, as_json: bool = False) -> None:
    """Print them."""
    if as_json:
        click.echo(json.dumps(to_json(found)))
    else:
        Console(highlight=False).print(Group(*render(found)))


def rows_of(found: Contrasts | None) -> list[dict[str, Any]]:
    """For `--json`, beside other rows."""
    return to_rows(found) if found else []


def parity_forbids(parities: Iterable[Parity]) -> Forbidden:
    """Why two frameworks may not be compared: only if the parity gate found that their networks are the same."""
    parities = list(parities)

    def why(pair: Declared) -> str:
        sides = (pair.contender, pair.reference)
        if len({side.cell.framework for side in sides}) == 1:
            return ""
        found = pairs_of({side.family for side in sides}, parities).get(pair.contender.family)
        return "" if found and found.comparable else found.verdict if found else "their networks differ"

    return why


def order_of(folder: Path) -> list[str]:
    """What the study names, in its order; nothing where study.json does not say."""
    try:
        study = json.loads((folder / "study.json").read_text(encoding="utf-8"))["study"]
        return [*study["backends"], *study["frameworks"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
