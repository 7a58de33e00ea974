"""What predictions are held to, and how well they do: the generated part of docs/prediction-validation.md.

python -m dlscale.analysis.predict.validation docs/prediction-validation.md     computes all and writes it

Rungs: (1) both engines versus closed forms, (2) the engines versus SimGrid's replay of MPI's own algorithms, where no
link is shared and where groups of nodes share theirs, (3) emulated hosts versus predictions from fewer of them
(`emulated_rungs`), (4) published curves versus predictions from public inputs (`published`). SimGrid is needed: a page
is never half old and half new.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlscale.analysis.predict.emulated_rungs import hosts_lines
from dlscale.analysis.predict.engine import Engine, NetworkExchange
from dlscale.analysis.predict.loggp import LogGP
from dlscale.analysis.predict.measured_hosts import load_measured
from dlscale.analysis.predict.network import Groups, Network
from dlscale.analysis.predict.simgrid_engine import SimGrid
from dlscale.analysis.predict.smpi import replayed_seconds
from dlscale.analysis.published.catalogue import Published, load_published
from dlscale.analysis.published.claim_verdicts import ClaimVerdict, claim_verdicts, points
from dlscale.analysis.published.claims import (
    DeviceCurve,
    Number,
    Publication,
    Range,
    load_networks,
    load_publications,
    x_of,
)
from dlscale.analysis.published.compare import DISAGREES
from dlscale.analysis.published.law import law_fit
from dlscale.analysis.published.replicates import Predictions
from dlscale.analysis.render.markdown import markdown_table
from dlscale.analysis.render.text import size_text
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically

BEGIN = "<!-- validation: written by make validate-prediction -->"
END = "<!-- validation end -->"

CLOSED_FORM_TOLERANCE, REPLAY_TOLERANCE = 0.005, 0.01
SIZES = (2**20, 25 * 2**20)  # SMPI prints whole microseconds, so no smaller ones
RANKS = (2, 16, 256)
REPLAYED_RANKS = (64, 256)
# SMPI's names; both are as in MPICH, where the nearest ranks exchange the largest messages.
SELECTORS = {"ring": "lr", "halving_doubling": "rab_rdb", "recursive_doubling": "rdb"}

STAR = Network(
    name="one switch",
    num_nodes=1024,
    node_bytes_per_second=10e9,
    latency_seconds=2e-6,
    node_memory_bytes_per_second=None,
    reduce_seconds_per_byte=1e-10,
)
# SMPI's replay does not charge sums. A pair of groups is slower than a group, and that than its nodes.
UNCHARGED = replace(STAR, reduce_seconds_per_byte=0.0)
GROUPS = replace(
    UNCHARGED,
    name="groups of 16",
    groups=Groups(
        num_groups=64,
        nodes_per_group=16,
        group_bytes_per_second=60e9,
        pair_bytes_per_second=10e9,
        extra_latency_seconds=1e-6,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One time, predicted by an engine and by what it is held to."""

    rung: int
    network: str
    exchange: NetworkExchange
    num_bytes: int
    engine: str
    reference: str  # what it is held to
    reference_seconds: float
    predicted_seconds: float
    tolerance: float

    @property
    def error(self) -> float:
        """Predicted over reference, minus 1."""
        return self.predicted_seconds / self.reference_seconds - 1

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return abs(self.error) <= self.tolerance


def closed_form_seconds(network: Network, exchange: NetworkExchange, num_bytes: int) -> float:
    """The textbook's time on one switch: ring, halving and doubling, parameter servers on nodes of their own."""
    size, n = exchange.num_nodes, num_bytes
    rate, latency, adding = (
        network.node_bytes_per_second,
        network.latency_seconds,
        network.reduce_seconds_per_byte,
    )
    if exchange.algorithm == "parameter_servers":
        fullest = max(size / exchange.num_servers, 1.0)  # a server's link, or a worker's own
        return 2 * (latency + fullest * n / rate) + size / exchange.num_servers * n * adding
    share = (size - 1) / size
    steps = 2 * (size - 1) if exchange.algorithm == "ring" else 2 * math.log2(size)
    return steps * latency + 2 * share * n / rate + share * n * adding


def closed_form_checks(engines: Sequence[Engine], ranks: Sequence[int] = RANKS) -> Iterator[Check]:
    """Rung 1."""
    for size in ranks:
        for exchange in (
            NetworkExchange(algorithm="ring", num_nodes=size),
            NetworkExchange(algorithm="halving_doubling", num_nodes=size),
            NetworkExchange(algorithm="parameter_servers", num_nodes=size, num_servers=1),
            NetworkExchange(algorithm="parameter_servers", num_nodes=size, num_servers=4),
        ):
            yield from _checks(engines, STAR, exchange, closed_form_seconds, rung=1, reference="closed form")


def replay_checks(engines: Sequence[Engine], ranks: Sequence[int] = REPLAYED_RANKS) -> Iterator[Check]:
    """Rung 2. The groups' links are shared with up to 256 ranks in 16 groups."""
    for network in (UNCHARGED, GROUPS):
        for size in ranks:
            for algorithm, selector in SELECTORS.items():

                def replayed(
                    where: Network, exchange: NetworkExchange, n: int, selector: str = selector
                ) -> float:
                    return replayed_seconds(where, exchange, n, selector=selector)

                exchange = NetworkExchange(algorithm=algorithm, num_nodes=size)  # type: ignore[arg-type]
                yield from _checks(engines, network, exchange, replayed, rung=2, reference=f"SMPI {selector}")


def _checks(
    engines: Sequence[Engine],
    network: Network,
    exchange: NetworkExchange,
    reference_seconds: Callable[[Network, NetworkExchange, int], float],
    *,
    rung: int,
    reference: str,
) -> Iterator[Check]:
    """One check per engine and size; the reference is computed once per size."""
    expected = [reference_seconds(network, exchange, size) for size in SIZES]
    for engine in engines:
        predicted = engine.exchange_seconds(network, exchange, SIZES)
        for size, asked, answered in zip(SIZES, expected, predicted, strict=True):
            yield Check(
                rung=rung,
                network=network.name,
                exchange=exchange,
                num_bytes=size,
                engine=engine.name,
                reference=reference,
                reference_seconds=asked,
                predicted_seconds=answered,
                tolerance=CLOSED_FORM_TOLERANCE if rung == 1 else REPLAY_TOLERANCE,
            )


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Markdown: the verdict, and a row per network, exchange and size with the error of each engine."""
    worst = max(checks, key=lambda check: abs(check.error))
    failed = [check for check in checks if not check.passed]
    engines = list(dict.fromkeys(check.engine for check in checks))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for check in checks:
        count = check.exchange.num_servers
        servers = f", {count} server{'s' if count > 1 else ''}" if count else ""
        key = (
            check.network,
            f"{check.exchange.algorithm}{servers}".replace("_", " "),
            str(check.exchange.num_nodes),
            size_text(check.num_bytes),
            check.reference,
            f"{check.reference_seconds * 1e3:.3f}",
        )
        mark = "" if check.passed else " (missed)"
        rows.setdefault(key, {})[check.engine] = f"{_percent(check.error)}{mark}"
    columns = ["network", "exchange", "ranks", "bytes", "reference", "reference ms", *engines]
    verdict = (
        f"{len(checks) - len(failed)} of {len(checks)} within {100 * checks[0].tolerance:g} %; "
        f"the largest error is {_percent(worst.error)}."
    )
    cells = [[*key, *(errors[engine] for engine in engines)] for key, errors in rows.items()]
    return [verdict, "", *markdown_table(columns, cells, words=columns[:2] + columns[4:5]), ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCurve:
    """A published curve over devices, with the prediction of each of its points."""

    publication: Publication
    curve: DeviceCurve
    title: str
    figure: str
    rows: tuple[ClaimVerdict, ...]


def published_curves(published: Published) -> list[PublishedCurve]:
    """The curves that are held to every published value."""
    return [
        PublishedCurve(
            publication=publication,
            curve=curve,
            title=f"{published.figure(claim.figure).title}: {curve.name}",
            figure=claim.figure,
            rows=tuple(claim_verdicts(Predictions(publication), claim, published)),
        )
        for publication in load_publications(published)
        for claim in publication.claims
        for curve in publication.device_curves
        if claim.check == "values" and claim.curves == (curve.name,)
    ]


def published_lines() -> list[str]:
    """Markdown: every published point with its band, the causes of misses, the law's predictions, and all inputs."""
    published = load_published()
    curves = published_curves(published)
    points_of = [row for curve in curves for row in curve.rows]
    inside = sum(row.verdict != DISAGREES for row in points_of)
    rows = [
        [
            curve.title,
            f"{row.x:g}",
            f"{_middle(row):.3f}",
            f"{row.predicted.median:.3f} [{row.predicted.low:.3f}, {row.predicted.high:.3f}]",
            "no" if row.verdict == DISAGREES else "yes",
        ]
        for curve in curves
        for row in curve.rows
        if row.predicted
    ]
    missed = {curve.title: row.reason for curve in curves for row in curve.rows if row.verdict == DISAGREES}
    columns = ["curve", "devices", "published efficiency", "predicted [5, 95] %", "inside"]
    return [
        f"{inside} of {len(points_of)} inside the band.",
        "",
        *markdown_table(columns, rows, words=["curve", "inside"]),
        "",
        *(f"* Missed, {title}: {reason}." for title, reason in missed.items()),
        "",
        *_law_lines(curves, published),
        "Inputs:",
        "",
        *markdown_table(
            ["curve", "input", "value", "kind", "source"],
            [line for curve in curves for line in _inputs(curve)],
            words=["curve", "input", "kind", "source"],
        ),
        "",
    ]


def _law_lines(curves: Sequence[PublishedCurve], published: Published) -> list[str]:
    rows, nearer = [], 0
    for entry in curves:
        base = x_of(published.figure(entry.figure), entry.curve, entry.curve.base)
        series = entry.curve.figures[entry.figure]
        fit = law_fit(points(published, entry.figure, series, base=base), base)
        last = entry.rows[-1].predicted
        if fit is None or last is None:
            continue
        published_efficiency = fit.point.efficiency
        nearer += abs(last.median - published_efficiency) < abs(fit.predicted - published_efficiency)
        rows.append(
            [
                entry.title,
                f"{fit.point.x:g}",
                f"{published_efficiency:.3f}",
                f"{last.median:.3f}",
                f"{fit.predicted:.3f}",
            ]
        )
    columns = ["curve", "devices", "published efficiency", "predicted", "universal scalability law"]
    return [
        "The law is fitted to the first three sizes of a curve beyond its base, the prediction to none of them. "
        f"The prediction is nearer to what is published for {nearer} of {len(rows)} curves:",
        "",
        *markdown_table(columns, rows, words=["curve"]),
        "",
    ]


def _middle(row: ClaimVerdict) -> float:
    return ((row.low or 0.0) + (row.high or 0.0)) / 2


def _inputs(entry: PublishedCurve) -> Iterator[list[str]]:
    curve, facts = entry.curve, load_networks()[entry.curve.network]
    for place, number in curve.numbers:
        value = (
            f"{number.value}" if isinstance(number, Number) else curve.transport.algorithm.replace("_", " ")
        )
        yield [entry.title, place.replace("_", " "), value, number.kind, number.source]
    parameters = facts.num_parameters
    yield [
        entry.title,
        "gradients",
        f"{facts.num_bytes} B",
        parameters.kind,
        f"4 bytes per parameter: {parameters.source}",
    ]
    for name in curve.inputs:
        limits = entry.publication.inputs[name]
        yield [entry.title, name.replace("_", " "), _input(limits), limits.kind, limits.source]


def _input(limits: Range) -> str:
    return f"{limits.low:g} to {limits.high:g} {limits.unit}"


def _percent(share: float) -> str:
    return f"{round(100 * share, 2) + 0.0:+.2f} %"  # + 0.0: no minus before a zero


def validation_lines() -> list[str]:
    """All that is computed. Raises UsageError where SimGrid or smpirun is missing."""
    simgrid, loggp = SimGrid(), LogGP()
    engines: list[Engine] = [simgrid, loggp]
    return [
        f"Engines: SimGrid {simgrid.version}, LogGP {loggp.version}.",
        "",
        "### Closed forms",
        "",
        *check_lines(list(closed_form_checks(engines))),
        "### Replayed programs",
        "",
        *check_lines(list(replay_checks(engines))),
        *hosts_lines(load_measured()),
        "### Published curves",
        "",
        *published_lines(),
    ]


def written_into(text: str, lines: Sequence[str], *, begin: str = BEGIN, end: str = END) -> str:
    """`text` with the lines between its marks. Raises UsageError if it has no marks."""
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise UsageError(f"no place for the results: write the lines {begin} and {end} into the file")
    return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n{end}{after}"


def main() -> None:
    """Write the results into the file named on the command line."""
    path = Path(sys.argv[1])
    try:
        write_atomically(path, written_into(path.read_text(encoding="utf-8"), validation_lines()), mode=0o644)
    except UsageError as error:
        sys.exit(f"make validate-prediction: {error}")


if __name__ == "__main__":
    main()
