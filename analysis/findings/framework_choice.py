"""Which framework to use here: the contrasts of programs that train the same, and the sentences that answer.

All pairs of programs of a training are compared on its most ranks, declared together before any number is looked at.
These findings are of several studies, whose programs they compare; the renderers of one study show them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from dlscale.analysis.declare import Sentence, tags_of
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.contrast_declaration import Declaration, Declared
from dlscale.analysis.findings.contrast_table import CONTRASTS
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, Verdict, contrasts
from dlscale.analysis.findings.data_formats import FORMAT_USES, FormatUse, preparation_sentences
from dlscale.analysis.findings.interference import why_unclaimable
from dlscale.analysis.findings.program_plots import program_plots
from dlscale.analysis.findings.programs import (
    COSTS,
    SPEED,
    Program,
    backend_text,
    by_training,
    loss_rows,
    training_key,
)
from dlscale.analysis.findings.solutions import goal_text
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio
from dlscale.analysis.text import (
    interval_columns,
    listed,
    number,
    plural,
    ratio_text,
    with_limits,
    workload_title,
)
from dlscale.benchmarks.records.cell import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Programs of one training on the most ranks, which differ in framework and compiler alone.

    `tested` are all comparisons that were declared, those of other choices among them; None without any.
    `unclaimable` says why nothing is claimed of the times to a target; it may be empty.
    """

    programs: tuple[Program, ...]
    tested: Contrasts | None
    unclaimable: str = ""

    @property
    def contrasts(self) -> list[Contrast]:
        own = {item.cell.id for item in self.programs}
        found = self.tested.found if self.tested else ()
        return [one for one in found if {one.contender.cell.id, one.reference.cell.id} <= own]

    def between(self, one: Program, other: Program) -> tuple[Verdict, str, Interval | None] | None:
        """Verdict, its reason and ratio of `one` versus `other`; None where they were not compared."""
        for contrast in self.contrasts:
            sides = contrast.contender.cell.id, contrast.reference.cell.id
            if sides == (one.cell.id, other.cell.id):
                return contrast.verdict, contrast.reason, contrast.ratio
            if sides == (other.cell.id, one.cell.id):
                swapped: dict[Verdict, Verdict] = {"faster": "slower", "slower": "faster"}
                ratio = contrast.ratio and contrast.ratio.rate(1.0)
                return swapped.get(contrast.verdict, contrast.verdict), contrast.reason, ratio
        return None

    @property
    def ranking(self) -> Ranking:
        return _ranking(self.programs, self)

    @property
    def sentences(self) -> list[str]:
        """What to use, how soon that trains to the target, and whether compiling pays."""
        cell = self.programs[0].cell
        where = (
            f"{workload_title(cell.workload)} {cell.preset} on {plural(cell.num_ranks, 'rank')} over "
            f"{backend_text(cell)}"
        )
        texts = [self.ranking.text, _target_text(self)]
        texts += [_compiling_text(item, self) for item in self.programs]
        return [f"{where}: {text}" for text in texts if text]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Programs that may be compared: the fastest by the geometric mean of its launches, and the others versus it.

    `slower` are shown to be, `level` are not told apart from it, `undecided` cannot be. Ratios are of the fastest one's
    throughput to theirs.
    """

    fastest: Program | None
    slower: tuple[tuple[Program, Interval], ...] = ()
    level: tuple[Program, ...] = ()
    undecided: tuple[str, ...] = ()  # reasons
    unmeasured: tuple[Program, ...] = ()

    @property
    def best(self) -> tuple[str, ...]:
        """What to use: the fastest, and those level with it; none where that is not decided."""
        if self.fastest is None or self.undecided:
            return ()
        return (self.fastest.name, *(item.name for item in self.level))

    @property
    def text(self) -> str:
        """What to use and why, in sentences; empty where one program alone was planned."""
        lacking = " ".join(
            f"{item.name}: no number ({item.row.num_launches} of {plural(item.row.num_planned, 'launch')})."
            for item in self.unmeasured
        )
        return " ".join(filter(None, (self._answer(bool(lacking)), lacking)))

    def _answer(self, lacking: bool) -> str:
        if self.fastest is None:
            return "no answer." if lacking else ""
        name = self.fastest.name
        if self.undecided:
            reasons = "; ".join(dict.fromkeys(self.undecided))
            return f"no answer yet ({reasons})."
        ahead = listed([f"{ratio_text(ratio)} times as fast as {item.name}" for item, ratio in self.slower])
        if self.level:
            text = (
                f"use {' or '.join(self.best)}: no difference between {name} and the rest of these is shown"
            )
            return f"{text}; {name} is {ahead}." if ahead else f"{text}."
        return f"use {name}, which is {ahead}." if ahead else ""


def _ranking(items: Sequence[Program], choice: Choice) -> Ranking:
    measured = sorted((item for item in items if item.row.throughput), key=_mean_rate, reverse=True)
    unmeasured = tuple(item for item in items if not item.row.throughput)
    if not measured:
        return Ranking(fastest=None, unmeasured=unmeasured)
    fastest, *others = measured
    slower: list[tuple[Program, Interval]] = []
    level: list[Program] = []
    undecided: list[str] = []
    for other in others:
        verdict, reason, ratio = choice.between(fastest, other) or (
            "cannot be shown",
            "they were measured in different studies",
            None,
        )
        if verdict == "cannot be shown":
            undecided.append(reason)
        elif ratio and verdict == "faster":
            slower.append((other, ratio))
        else:
            level.append(other)
    return Ranking(
        fastest=fastest,
        slower=tuple(slower),
        level=tuple(level),
        undecided=tuple(undecided),
        unmeasured=unmeasured,
    )


def _mean_rate(item: Program) -> float:
    """The geometric mean of the launches' rates, as ratios over blocks have it; that of a training without any."""
    if item.side and item.side.rates:
        return statistics.geometric_mean(item.side.rates.values())
    return item.row.throughput.center if item.row.throughput else 0.0


def num_pairs(cells: Iterable[Cell]) -> int:
    """The comparisons of two programs that are declared of a study with these cells."""
    groups: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        if cell.control == "train":
            groups.setdefault(training_key(cell), {})[cell.id] = cell
    counts = [
        sum(cell.num_ranks == max(one.num_ranks for one in group.values()) for cell in group.values())
        for group in groups.values()
    ]
    return sum(count * (count - 1) // 2 for count in counts)


def choices(items: Sequence[Program], studies: Sequence[Measured]) -> list[Choice]:
    """One for each training on its most ranks that was measured in several programs, in the items' order.

    All their comparisons are declared together, and corrected together; those that failed count in the correction.
    Programs of two studies have no common block, so that nothing is claimed of them.
    """
    groups = []
    for training in by_training(items):
        most = max(item.cell.num_ranks for item in training)
        if len(group := [item for item in training if item.cell.num_ranks == most]) > 1:
            groups.append(group)
    pairs = [
        Declared(contender=one, reference=other)
        for group in groups
        for one, other in combinations([item.side for item in group if item.side], 2)
    ]
    tested = _tested(pairs, studies) if pairs else None
    solved = (why_unclaimable(study) for study in studies if solution_table.FINDING.of(study))
    unclaimable = next(filter(None, solved), "")
    return [Choice(programs=tuple(group), tested=tested, unclaimable=unclaimable) for group in groups]


def _tested(pairs: Sequence[Declared], studies: Sequence[Measured]) -> Contrasts:
    speeds = (study for study in studies if not solution_table.FINDING.of(study))
    return contrasts(
        Declaration(factor="program", pairs=tuple(pairs)),
        unclaimable=next(filter(None, (why_unclaimable(study) for study in speeds)), ""),
    )


def _target_text(choice: Choice) -> str:
    """How soon each program trains to the target, from the launch, and which is shown to be the first."""
    trained = [item for item in choice.programs if item.solution]
    timed = [(item, seconds) for item in trained if (seconds := item.solution_seconds)]
    timed.sort(key=lambda pair: pair[1].center)
    goals = list(dict.fromkeys(goal_text(item.solution.target) for item in trained if item.solution))
    if not timed:
        return f"no median time to {listed(goals)}." if goals else ""
    text = f"to {goals[0]} from the launch " + listed(
        [f"{item.name} takes {with_limits(seconds)} s" for item, seconds in timed]
    )
    (first, _), *others = timed
    if not others or len(timed) < len(trained):
        return f"{text}."
    if choice.unclaimable:
        return f"{text}; which is soonest is not claimed: {choice.unclaimable}."
    level = 1 - (1 - LEVEL) / (len(timed) * (len(timed) - 1) / 2)
    ratios = [(item.name, _sooner(first, item, level=level)) for item, _ in others]
    if any(ratio is None or ratio.low is None for _, ratio in ratios):
        return f"{text}; too few seeds to say which is soonest."
    shown = [name for name, ratio in ratios if ratio and ratio.low is not None and ratio.low > 1]
    if len(shown) == len(others):
        return f"{text}; {first.name} is soonest."
    versus = f"only versus {listed(shown)}" if shown else "versus none"
    return f"{text}; that {first.name} is sooner is shown {versus} of the others."


def _sooner(soonest: Program, other: Program, *, level: float) -> Interval | None:
    """The other's time to the target over the soonest one's, paired by seed; None unless all trainings arrived."""
    if not (soonest.solution and other.solution):
        return None
    own, theirs = soonest.solution.trainings, other.solution.trainings
    if not all(training.reached for training in (*own, *theirs)):
        return None
    times = [{t.block: t.seconds for t in group if t.seconds} for group in (theirs, own)]
    return block_ratio(times[0], times[1], level=level) if all(times) else None


def pays_after(compiled: Program, choice: Choice) -> float | None:
    """Steps after which the longer start of a compiled program is made up for; None unless it is shown to be faster.

    What the gates have compiled before is not in the start, so that it is a lower bound.
    """
    plain, found = _versus_plain(compiled, choice)
    if not plain or not found or found[0] != "faster":
        return None
    if not (compiled.start_seconds and plain.start_seconds and compiled.step_seconds and plain.step_seconds):
        return None
    gained = plain.step_seconds.center - compiled.step_seconds.center
    longer = compiled.start_seconds.center - plain.start_seconds.center
    return max(0.0, longer / gained) if gained > 0 else None


def _versus_plain(
    compiled: Program, choice: Choice
) -> tuple[Program | None, tuple[Verdict, str, Interval | None] | None]:
    """The program without its compiler, and the comparison with it."""
    wanted = compiled.cell.model_copy(update={"compiled": False}).id if compiled.cell.compiled else ""
    plain = next((item for item in choice.programs if item.cell.id == wanted), None)
    return plain, choice.between(compiled, plain) if plain else None


def _compiling_text(item: Program, choice: Choice) -> str:
    """Whether compiling pays; empty where that is not shown."""
    _, found = _versus_plain(item, choice)
    if not found or not found[2]:
        return ""
    ratio = ratio_text(found[2])
    if found[0] == "slower":
        return f"compiling does not pay in {item.cell.framework}, {ratio} times as fast."
    if (steps := pays_after(item, choice)) is None:
        return ""
    return (
        f"compiling makes {item.cell.framework} {ratio} times as fast and pays after {number(round(steps))} steps or "
        "more."
    )


def to_answer_row(choice: Choice) -> dict[str, Any]:
    """An answer for scripts: `best` are the programs to use."""
    cell, row = choice.programs[0].cell, choice.programs[0].row
    return {
        "system": row.family.system,
        **attributes(cell, "workload preset data"),
        "backend": backend_text(cell),
        "num_ranks": cell.num_ranks,
        "best": list(choice.ranking.best),
        "pays_after_steps": {
            item.name: pays_after(item, choice) for item in choice.programs if item.cell.compiled
        },
        "sentences": choice.sentences,
    }


def to_comparison_rows(choice: Choice) -> Iterator[dict[str, Any]]:
    """A row for each comparison of two programs; `ratio` is of the contender's throughput to the reference's."""
    cell = choice.programs[0].cell
    for contrast in choice.contrasts:
        yield {
            "workload": cell.workload,
            "data": cell.data,
            "backend": backend_text(cell),
            "num_ranks": cell.num_ranks,
            "contender": contrast.contender.name,
            "reference": contrast.reference.name,
            "num_blocks": contrast.num_blocks,
            **interval_columns("ratio", contrast.ratio),
            **attributes(contrast, "p_value p_adjusted verdict reason"),
        }


def framework_findings(
    items: Sequence[Program], found: Sequence[Choice], uses: Sequence[FormatUse]
) -> tuple[Finding[Any], ...]:
    """What several studies say of these programs, as findings of the first."""
    return (
        Finding[Program](
            name="throughput",
            title="Throughput",
            compute=lambda _: items,
            plots=lambda own: (
                plot for place, group in enumerate(by_training(own)) for plot in program_plots(group, place)
            ),
            data=lambda own: {"losses": list(loss_rows(own))},
        ),
        Finding[Choice](
            name="answers",
            title="Which framework to use here",
            compute=lambda _: found,
            sentences=_sentences,
            data=lambda own: {"answers": [to_answer_row(choice) for choice in own]},
        ),
        Finding[Choice](
            name="comparisons",
            title="All comparisons",
            compute=lambda _: found,
            more=lambda own: (CONTRASTS.of(contrast for choice in own for contrast in choice.contrasts),),
            data=lambda own: {"comparisons": [row for choice in own for row in to_comparison_rows(choice)]},
        ),
        Finding(
            name="programs",
            answers=True,
            title="Speed, and time to the target",
            compute=lambda _: items,
            table=SPEED,
            data=lambda own: {"rows": [dict(SPEED.data(item)) for item in own]},
        ),
        Finding(
            name="costs",
            title="What else it costs",
            answers=True,
            compute=lambda _: items,
            table=COSTS,
            data=lambda _: {},
        ),
        Finding(
            name="formats",
            title="Formats of data",
            compute=lambda _: uses,
            table=FORMAT_USES,
            sentences=lambda own: (
                Sentence(text=text)
                for text in preparation_sentences(
                    list({use.preparation.name: use.preparation for use in own}.values())
                )
            ),
        ),
    )


def _sentences(found: Sequence[Choice]) -> Iterator[Sentence]:
    if not found:
        yield Sentence(
            text="No answer: no training was measured in two programs (frameworks, compiled or not)."
        )
    for choice in found:
        for text in choice.sentences:
            tags = tags_of(choice.programs[0].cell)
            yield Sentence(text=text, tags=tags)
