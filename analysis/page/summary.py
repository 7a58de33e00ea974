"""The first screen in words: what is kept, and what the largest loss is. At most three sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dlscale.analysis.backends_table import sentences
from dlscale.analysis.contrasts.contrast import Contrasts
from dlscale.analysis.page.contrasted import claims
from dlscale.analysis.page.plot_model import Loss
from dlscale.analysis.page.words import kept, listed, plural, share, workload_title
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.words import backend_name, rate

OTHERS = 3  # backends that the second sentence names
CERTAIN = ("faster", "slower", "alike")


def summary(
    table: ScalingTable, losses: Sequence[Loss] = (), contrasts: Contrasts | None = None
) -> tuple[str, ...]:
    """The largest numbers of ranks count; with `losses` each says what it loses most by.

    Of `contrasts` what may be claimed; without any declared, what the backends beside each other say for certain.
    """
    if not table.rows:
        return ("Nothing has been measured yet.",)
    if losses:
        return _of_losses(on_most_ranks(losses), _verdict(table, contrasts))
    trained = [row for row in table.rows if row.cell.control == "train"]
    if not any(row.throughput for row in trained):
        planned = sum(row.num_planned for row in table.rows)
        return (f"No launch gave a number so far; {planned} are planned.",)
    scaled = [row for row in trained if row.cell.num_ranks > 1 and row.throughput]
    if not scaled:
        return (f"Only 1 rank gave numbers ({_best_rate(trained)}): scaling needs a second number of ranks.",)
    return _of_rows(scaled, _verdict(table, contrasts))


def _of_losses(losses: Sequence[Loss], verdict: tuple[str, ...]) -> tuple[str, ...]:
    trainings = Counter(loss.title for loss in losses)
    exchanging = [loss for loss in losses if loss.tags.backend != "none"] or list(losses)
    best = max(exchanging, key=lambda loss: loss.kept.center)
    said = [best.sentence]
    if len(trainings) > 1:
        worst = min(exchanging, key=lambda loss: loss.kept.center)
        if worst is not best:
            said.append(
                f"That is the most of {plural(len(exchanging), 'curve')}; the least: {worst.sentence}"
            )
        causes = Counter(loss.largest[0] for loss in exchanging if len(loss.largest) == 1)
        if causes:
            label, count = causes.most_common(1)[0]
            said.append(f"The largest loss is {label} in {count} of {len(exchanging)}.")
        return tuple(said)
    others = sorted((loss for loss in exchanging if loss is not best), key=lambda loss: -loss.kept.center)
    if others:
        said.append(f"{listed([_short(loss) for loss in others[:OTHERS]])}{_more(others)}.")
    return (*said, *verdict)


def _of_rows(scaled: Sequence[Row], verdict: tuple[str, ...]) -> tuple[str, ...]:
    """Without losses: what is kept, and that nobody measured what the rest went to."""
    most = max(row.cell.num_ranks for row in scaled)
    rated = [
        (row, one)
        for row in scaled
        if row.cell.num_ranks == most and (one := row.efficiency_none or row.efficiency_backend)
    ]
    if not rated:
        best = max(
            scaled, key=lambda row: (row.cell.num_ranks, row.throughput.center if row.throughput else 0.0)
        )
        return (
            f"{backend_name(best.cell)} does {rate(best.throughput)} samples/s on "
            f"{plural(best.cell.num_ranks, 'rank')}; 1 rank gave no number, so there is no efficiency.",
        )
    exchanging = [item for item in rated if item[0].cell.backend != "none"] or rated
    ordered = sorted(exchanging, key=lambda item: -item[1].center)
    row, one = ordered[0]
    name = f"{workload_title(row.cell.workload)} ({row.cell.framework}) on {backend_name(row.cell)}"
    said = [f"{name} keeps {kept(one)} at {plural(most, 'rank')} of what one rank does alone."]
    if len(ordered) > 1:
        last, least = ordered[-1]
        name = f"{workload_title(last.cell.workload)} ({last.cell.framework}) on {backend_name(last.cell)}"
        said.append(f"The least of {len(ordered)} is {kept(least)}: {name}.")
    return (*said, *verdict)[:3]


def on_most_ranks(losses: Iterable[Loss]) -> list[Loss]:
    """Of each training those on the most ranks that it has a loss on."""
    found: dict[str, list[Loss]] = {}
    for loss in losses:
        found.setdefault(loss.title, []).append(loss)
    return [
        loss
        for group in found.values()
        for loss in group
        if loss.num_ranks == max(one.num_ranks for one in group)
    ]


def _verdict(table: ScalingTable, contrasts: Contrasts | None) -> tuple[str, ...]:
    """What can be said for certain of the backends on the most ranks; nothing where nothing can."""
    if contrasts:
        return tuple(claims(contrasts)[:1])
    if len({one.family for one in table.comparisons}) != 1:
        return ()
    last = max(table.comparisons, key=lambda one: one.num_ranks)
    certain = [one for one in last.contenders if one.verdict in CERTAIN]
    return tuple(sentences(certain)[:1])


def _short(loss: Loss) -> str:
    shares = {part.label: share(part.share) for part in loss.parts}
    cause = f" ({' or '.join(f'{label}: {shares[label]}' for label in loss.largest)})" if loss.largest else ""
    return f"{loss.name} keeps {kept(loss.kept)}{cause}"


def _more(others: Sequence[Loss]) -> str:
    return f", {len(others) - OTHERS} more below" if len(others) > OTHERS else ""


def _best_rate(rows: Iterable[Row]) -> str:
    rated = [(row, row.throughput) for row in rows if row.throughput]
    row, one = max(rated, key=lambda item: item[1].center)
    return f"{backend_name(row.cell)}: {rate(one)} samples/s"
