"""The verdict: what a study found, in at most three sentences, for the screen and for the head of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlscale.analysis.families import Family
from dlscale.analysis.findings import interference, scaling, solution_table, waterfall
from dlscale.analysis.findings.contrast_declaration import Side, level_of
from dlscale.analysis.findings.contrasts import CONTRAST_BAND, Contrast, Contrasts, study_contrasts
from dlscale.analysis.findings.scaling import ScalingRow, base_text
from dlscale.analysis.findings.solution_plots import cell_sentences
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Loss
from dlscale.analysis.records import tokens_per_second
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import efficiency_text, number, plural, rate, share_text, training_title

MOST_SENTENCES = 3  # at the head of the page
MOST_NAMED = 3  # comparisons without a result that are named


def summary(study: Measured) -> tuple[str, ...]:
    """At most three sentences about the largest numbers of ranks, and one with every significant difference.

    Of a busy machine the first says so.
    """
    rows = scaling.FINDING.of(study)
    if not rows:
        return ("Nothing has been measured yet.",)
    if solutions := solution_table.FINDING.of(study):
        return cell_sentences(solutions)[:MOST_SENTENCES]
    busy = tuple(found.text for found in interference.FINDING.of(study) if found.busy)
    losses = [] if busy else waterfall.losses_of(waterfall.FINDING.of(study))
    trained = [row for row in rows if row.cell.control == "train"]
    families = dict.fromkeys(row.family for row in trained)
    contrasts = study.once(study_contrasts)
    if len(families) > 1:
        by_family = {family: [row for row in trained if row.family == family] for family in families}
        if losses:
            texts = list(_of_losses(waterfall.losses_on_most_ranks(losses)))
        else:
            texts = [*busy, *(verdict(own, contrasts)[0] for own in by_family.values())][:MOST_SENTENCES]
        return (*texts, *_all_claims(by_family, contrasts))
    sentences = list(busy)
    for family in families:
        sentences += verdict([row for row in trained if row.family == family], contrasts)
    if losses:
        best = max(_exchanging(waterfall.losses_on_most_ranks(losses)), key=lambda loss: loss.kept.center)
        sentences.insert(1, best.sentence)
    return tuple(sentences[:MOST_SENTENCES])


def _all_claims(
    trainings: Mapping[Family, Sequence[ScalingRow]], contrasts: Contrasts | None
) -> Iterator[str]:
    """A sentence with the significant differences of several trainings; none without any."""
    claims = {
        family: _claims(_declared(_on_most_ranks(rows), contrasts)) for family, rows in trainings.items()
    }
    texts = [f"{training_title(family)}: {_listed(own)}" for family, own in claims.items() if own]
    if texts:
        yield f"Significant: {'; '.join(texts)}."


def _exchanging(losses: Sequence[Loss]) -> Sequence[Loss]:
    return [loss for loss in losses if loss.tags.backend != "none"] or losses


def _of_losses(losses: Sequence[Loss]) -> Iterator[str]:
    """The range of efficiencies of several trainings, which no comparison ranks, and the most frequent cause."""
    exchanging = _exchanging(losses)
    kept = sorted((loss.kept for loss in exchanging), key=lambda one: one.center)
    if len(kept) == 1:
        yield exchanging[0].sentence
    else:
        between = f"{efficiency_text(kept[0])} to {efficiency_text(kept[-1])}"
        yield f"Scaling efficiency of {plural(len(kept), 'curve')}: {between}; they are not compared with each other."
    causes = Counter(loss.largest[0] for loss in exchanging if len(loss.largest) == 1 and loss.separated)
    if causes:
        label, count = causes.most_common(1)[0]
        yield f"The largest loss is {label} in {count} of {len(exchanging)}."


def verdict(rows: Sequence[ScalingRow], contrasts: Contrasts | None) -> list[str]:
    """Sentences about the trainings of one family on the most ranks that gave a number.

    A backend is called the best only if the declared comparisons put it before every other one; otherwise none is
    called the highest or the lowest.
    """
    measured = [row for row in rows if row.throughput]
    if not measured:
        planned = sum(row.num_planned for row in rows)
        return [
            f"No case gave a number so far; {planned} are planned." if planned else "Nothing was planned."
        ]
    if on_one_rank(rows):
        return [ONE_RANK]
    last = _on_most_ranks([row for row in measured if row.cell.num_ranks > 1])
    declared = _declared(last, contrasts)
    return [_ranking(last, declared) + _tokens(last) + _shared(last), *_differences(declared)]


ONE_RANK = "Only 1 rank gave numbers: scaling needs a second number of ranks."


def on_one_rank(rows: Sequence[ScalingRow]) -> bool:
    """Whether there are numbers, and all are of 1 rank."""
    return {row.cell.num_ranks for row in rows if row.throughput} == {1}


def _on_most_ranks(rows: Sequence[ScalingRow]) -> list[ScalingRow]:
    """The rows with a throughput that exchange, or else all, on their largest number of ranks."""
    measured = [row for row in rows if row.throughput]
    exchanging = [row for row in measured if row.cell.backend != "none"] or measured
    most = max((row.cell.num_ranks for row in exchanging), default=0)
    return [row for row in exchanging if row.cell.num_ranks == most]


def _ranking(rows: Sequence[ScalingRow], declared: Sequence[Contrast]) -> str:
    """A sentence with the range of efficiencies of rows on the same number of ranks, and the one that leads."""
    ranks = plural(rows[0].cell.num_ranks, "rank")
    rated = [(row, value) for row in rows if (value := row.efficiency_none)]
    against = ""
    if not rated:
        rated = [(row, value) for row in rows if (value := row.efficiency_backend)]
        against = f" against {base_text(rows)} of the same backend"
    if not rated:
        rates = sorted((row.throughput for row in rows if row.throughput), key=lambda one: one.center)
        text = f"{rate(rates[0])} to {rate(rates[-1])}" if len(rates) > 1 else rate(rates[0])
        return f"Throughput on {ranks}: {text} samples/s; no efficiency: no base case."
    ordered = sorted(rated, key=lambda pair: -pair[1].center)
    (best, highest), (_, lowest) = ordered[0], ordered[-1]
    if len(ordered) == 1:
        if best.cell.backend == "none":
            against = ", without communication"
        return (
            f"{_row_name(best)} has a scaling efficiency of {efficiency_text(highest)} on {ranks}{against}."
        )
    others = [row for row, _ in ordered[1:]]
    if not against and _leads(best, others, declared):
        first = f"{_row_name(best)} has the highest scaling efficiency on {ranks}: {efficiency_text(highest)}"
        return f"{first}; {_rest(ordered[1:])}."
    return (
        f"Scaling efficiency on {ranks}{against}: {efficiency_text(lowest)} to {efficiency_text(highest)}; no backend "
        "is shown to lead."
    )


def _tokens(rows: Sequence[ScalingRow]) -> str:
    """A sentence with the range of throughputs in tokens; empty where samples are no sequences."""
    found = [tokens for row in rows if (tokens := tokens_per_second(row.cell, row.throughput))]
    rates = sorted({number(tokens.center) for tokens in found}, key=float)
    return f" Throughput: {' to '.join(dict.fromkeys((rates[0], rates[-1])))} tokens/s." if rates else ""


def _shared(rows: Sequence[ScalingRow]) -> str:
    """A sentence on how many times as fast strong scaling is where ranks share samples; empty where none does."""
    sharing = [
        row
        for row in rows
        if row.cell.split > 1 and row.cell.scaling_mode == "strong" and row.cell.backend != "none"
    ]
    efficiencies = [
        (row, value) for row in sharing if (value := row.efficiency_none or row.efficiency_backend)
    ]
    if not efficiencies:
        return ""
    times = sorted(value.center * row.cell.num_ranks / row.base_ranks for row, value in efficiencies)
    between = " to ".join(dict.fromkeys(number(each) for each in (times[0], times[-1])))
    batch, cell = rows[0].family.batch, sharing[0].cell
    what = "One sample" if batch == 1 else f"A step of {batch} samples"
    split = {row.cell.split for row in sharing}
    each = "" if split == {cell.num_ranks} else f", {' or '.join(map(str, sorted(split)))} to a sample,"
    return f" {what} on {plural(cell.num_ranks, 'rank')}{each} is {between} times as fast as on {base_text(rows)}."


def _rest(ordered: Sequence[tuple[ScalingRow, Interval]]) -> str:
    """`mpi: 58 % [43, 92]`, or the range of several, which no comparison ranks."""
    (row, highest), (_, lowest) = ordered[0], ordered[-1]
    if len(ordered) == 1:
        return f"{_row_name(row)}: {efficiency_text(lowest)}"
    return f"the others: {efficiency_text(lowest)} to {efficiency_text(highest)}"


def _leads(best: ScalingRow, others: Iterable[ScalingRow], declared: Sequence[Contrast]) -> bool:
    """Whether the claims together put `best` before all others.

    All comparisons are against one reference, and all claims hold jointly. So `best` must be the reference or faster,
    and every other backend the reference or slower.
    """
    faster = {contrast.contender.cell.id for contrast in declared if contrast.verdict == "faster"}
    slower = {contrast.contender.cell.id for contrast in declared if contrast.verdict == "slower"}
    references = {contrast.reference.cell.id for contrast in declared}
    return (
        len(references) == 1
        and best.cell.id in faster | references
        and all(row.cell.id in slower | (references - {best.cell.id}) for row in others)
    )


def _differences(declared: Sequence[Contrast]) -> Iterator[str]:
    """Sentences with the results of the comparisons."""
    if claims := _claims(declared):
        yield f"Significant: {_listed(claims)}."
    if alike := [_pair(contrast) for contrast in declared if contrast.verdict == "alike"]:
        yield f"Within {100 * CONTRAST_BAND:.0f} %: {_listed(alike)}."
    if not_shown := [_pair(contrast) for contrast in declared if contrast.verdict == "not shown"]:
        yield f"No significant difference: {_listed(not_shown)}."
    reasons: dict[str, list[str]] = {}
    for contrast in declared:
        if contrast.verdict == "cannot be shown":
            reason = contrast.reason
            if contrast.too_few:
                reason = (
                    f"{plural(contrast.num_blocks, 'launch')}; --launches {contrast.blocks_needed} can decide"
                )
            reasons.setdefault(reason, []).append(
                f"{_side(contrast.contender)} and {contrast.reference.name}"
            )
    for reason, pairs in reasons.items():
        what = f"for {len(pairs)} comparisons" if len(pairs) > MOST_NAMED else f"to compare {_listed(pairs)}"
        yield f"Insufficient data {what}: {reason}."


def _listed(pairs: Sequence[str]) -> str:
    """Pairs of curves, whose names may have commas of their own."""
    return ("; " if any(", " in pair for pair in pairs) else ", ").join(pairs)


def _claims(declared: Iterable[Contrast]) -> list[str]:
    return [
        f"{_side(contrast.contender)} is {contrast.verdict} than {contrast.reference.name} "
        f"({share_text(contrast.ratio.excess(), unit='', sign='+')} % samples/s)"
        for contrast in declared
        if contrast.verdict in ("faster", "slower") and contrast.ratio
    ]


def _pair(contrast: Contrast) -> str:
    return f"{_side(contrast.contender)} and {contrast.reference.name} (n = {contrast.num_blocks})"


def _side(side: Side) -> str:
    return side.name if side.evidence == "measured" else f"{side.name} ({side.evidence})"


def _declared(rows: Sequence[ScalingRow], contrasts: Contrasts | None) -> list[Contrast]:
    """The comparisons of backends among these rows."""
    if contrasts is None or contrasts.factor != "backend":
        return []
    wanted = {(row.family, row.cell.num_ranks, row.evidence) for row in rows}
    return [
        contrast
        for contrast in contrasts.found
        if (contrast.contender.family, contrast.contender.cell.num_ranks, contrast.contender.evidence)
        in wanted
    ]


def _row_name(row: ScalingRow) -> str:
    name = level_of(row.cell, "backend")
    return name if row.evidence in (None, "measured") else f"{name} ({row.evidence})"
