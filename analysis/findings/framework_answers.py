"""Which framework to use here: the comparisons of programs that train the same, and the sentences that answer.

All pairs of programs of a training are compared on its most ranks, declared together before any number is looked at.
Where the parity gate did not find that the frameworks' networks are the same, which framework is faster is no question,
and only each one's own programs are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import Any

from dlscale.analysis.families import FrameworkPair
from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.contrast_declaration import Declaration, Declared, Side, sides_of
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, contrasts, flagged_blocks
from dlscale.analysis.findings.framework_comparison import (
    Program,
    alike_on_all_ranks,
    backend_text,
    question_key,
)
from dlscale.analysis.findings.solutions import goal_text
from dlscale.analysis.interference import why_unclaimable
from dlscale.analysis.measured import Measured
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
from dlscale.benchmarks.records.record import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Programs of one training on the most ranks, which differ in framework and compiler alone.

    `tested` are all comparisons of two of them, corrected together with those of the other questions; None where no two
    were measured.
    """

    programs: tuple[Program, ...]
    tested: Contrasts | None

    @property
    def pair(self) -> FrameworkPair | None:
        """The parity gate's result; None where there is one framework alone."""
        return next((item.row.pair for item in self.programs if item.row.pair), None)

    @property
    def forbidden(self) -> str:
        """Why frameworks may not be compared; empty if they may, or if there is one alone."""
        return "" if self.pair is None or self.pair.comparable else self.pair.verdict

    @property
    def place(self) -> str:
        """`HEP-CNN tiny on 2 ranks over ring`."""
        cell = self.programs[0].cell
        return (
            f"{workload_title(cell.workload)} {cell.preset} on {plural(cell.num_ranks, 'rank')} over "
            f"{backend_text(cell)}"
        )

    @property
    def standings(self) -> tuple[Standing, ...]:
        """The programs that may be compared with each other: all, or each framework's own."""
        if not self.forbidden:
            return (_standing(self.programs, self.tested),)
        groups = groupby(self.programs, key=lambda item: item.cell.framework)
        return tuple(_standing(tuple(group), self.tested) for _, group in groups)

    @property
    def sentences(self) -> list[str]:
        """The answer: what to use, how soon that trains to the target, and whether compiling pays."""
        said = []
        if self.forbidden:
            said.append(f"{self.place}: which framework to use is no question here. {self.forbidden}.")
        said += [f"{self.place}: {standing.text}" for standing in self.standings if standing.text]
        said += filter(None, (_target_text(self),))
        said += [text for item in self.programs if (text := _compiling_text(item, self))]
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Programs that may be compared, the fastest by the geometric mean of its launches, and how others stand to it.

    `slower` are shown to be, `level` are not told apart from it, `undecided` cannot be. Ratios are of the fastest one's
    throughput to theirs.
    """

    fastest: Program | None
    slower: tuple[tuple[Program, Interval], ...] = ()
    level: tuple[Program, ...] = ()
    undecided: tuple[tuple[Program, str], ...] = ()
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
        lacking = "".join(
            f" {item.name}: no number ({item.num_launches} of {plural(item.num_planned, 'launch')})."
            for item in self.unmeasured
        )
        if self.fastest is None:
            return f"no answer.{lacking}" if lacking else ""
        name = self.fastest.name
        if self.undecided:
            reasons = "; ".join(dict.fromkeys(reason for _, reason in self.undecided))
            return f"no answer yet ({reasons}); the fastest so far, by geometric means, is {name}.{lacking}"
        ahead = listed([f"{ratio_text(ratio)} times as fast as {item.name}" for item, ratio in self.slower])
        if self.level:
            names = " or ".join(self.best)
            text = f"use {names}: no difference between {name} and the rest of these is shown"
            return f"{text}; {name} is {ahead}.{lacking}" if ahead else f"{text}.{lacking}"
        return f"use {name}, which is {ahead}.{lacking}" if ahead else lacking.strip()


def alike(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Groups of cells that differ in framework and compiler alone, on the most ranks of each; of two or more."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.control == "train":
            groups.setdefault(question_key(cell), []).append(cell)
    found = []
    for group in groups.values():
        most = max(cell.num_ranks for cell in group)
        own = {cell.id: cell for cell in group if cell.num_ranks == most}
        if len(own) > 1:
            found.append(list(own.values()))
    return found


def num_pairs(cells: Iterable[Cell]) -> int:
    """The comparisons of two programs that are declared of a study with these cells."""
    return sum(len(group) * (len(group) - 1) // 2 for group in alike(cells))


def questions(items: Sequence[Program], studies: Sequence[Measured]) -> list[Question]:
    """One for each training on its most ranks that was measured in several programs, in the items' order.

    Their comparisons are declared together, before any number is looked at, and corrected together. Programs of two
    studies have no common block, so that nothing is claimed of them.
    """
    asked = [on_most for group in alike_on_all_ranks(items) if len(on_most := _on_most_ranks(group)) > 1]
    declared = [_declared(group) for group in asked]
    tested = _tested([pair for pairs in declared for pair in pairs], items, studies)
    found, first = [], 0
    for group, pairs in zip(asked, declared, strict=True):
        own = tested.found[first : first + len(pairs)] if tested else ()
        first += len(pairs)
        found.append(
            Question(programs=tuple(group), tested=replace(tested, found=own) if tested and own else None)
        )
    return found


def _on_most_ranks(group: Sequence[Program]) -> list[Program]:
    most = max(item.cell.num_ranks for item in group)
    return [item for item in group if item.cell.num_ranks == most]


def _declared(group: Sequence[Program]) -> list[Declared]:
    """All pairs of a group's programs whose speed was to be measured; those that failed count in the correction."""
    sides = [side for item in group if (side := _side(item))]
    return [Declared(contender=one, reference=other) for one, other in combinations(sides, 2)]


def _side(item: Program) -> Side | None:
    fields: dict[str, Any] = {name: getattr(item.cell, name) for name in Cell.model_fields}
    cell = Cell.model_construct(**fields)  # not named for a curve
    sides = sides_of(item.launches) if item.launches else ()
    return next(
        (replace(side, name=item.name, cell=cell) for side in sides if side.evidence == item.evidence), None
    )


def _tested(
    pairs: Sequence[Declared], items: Sequence[Program], studies: Sequence[Measured]
) -> Contrasts | None:
    if not pairs:
        return None
    parity = {item.row.family: item.row.pair for item in items if item.row.pair}

    def forbidden(pair: Declared) -> str:
        if pair.contender.cell.framework == pair.reference.cell.framework:
            return ""
        frameworks = parity.get(pair.contender.family)
        if frameworks is None:
            return "parity not checked"
        return "" if frameworks.comparable else frameworks.verdict

    speeds = (study for study in studies if not solution_table.FINDING.of(study))
    busy = next(filter(None, (why_unclaimable(study.interference) for study in speeds)), "")
    outlying = [item.row.outliers for item in items if item.row.outliers]
    return contrasts(
        Declaration(factor="program", pairs=tuple(pairs)),
        flagged=flagged_blocks(outlying),
        forbidden=forbidden,
        unclaimable=busy,
    )


def _standing(items: Sequence[Program], tested: Contrasts | None) -> Standing:
    measured = sorted((item for item in items if item.throughput), key=_mean_rate, reverse=True)
    unmeasured = tuple(item for item in items if not item.throughput)
    if not measured:
        return Standing(fastest=None, unmeasured=unmeasured)
    fastest, *others = measured
    slower: list[tuple[Program, Interval]] = []
    level: list[Program] = []
    undecided: list[tuple[Program, str]] = []
    for other in others:
        contrast = _between(fastest, other, tested)
        if contrast is None:
            undecided.append((other, "they were measured in different studies"))
        elif contrast.verdict == "cannot be shown":
            undecided.append((other, contrast.reason))
        elif contrast.ratio and contrast.verdict == _verdict_for(fastest, contrast):
            slower.append((other, _ratio_of(fastest, contrast.ratio, contrast)))
        else:
            level.append(other)
    return Standing(
        fastest=fastest,
        slower=tuple(slower),
        level=tuple(level),
        undecided=tuple(undecided),
        unmeasured=unmeasured,
    )


def _mean_rate(item: Program) -> float:
    """The geometric mean of the launches' rates, as ratios over blocks have it; that of a training without any."""
    sides = sides_of(item.launches) if item.launches else ()
    rates = [rate for side in sides if side.evidence == item.evidence for rate in side.rates.values()]
    if rates:
        return statistics.geometric_mean(rates)
    return item.throughput.center if item.throughput else 0.0


def _between(one: Program, other: Program, tested: Contrasts | None) -> Contrast | None:
    """The comparison of the two, whichever is its reference; None if none was declared."""
    wanted = {one.cell.id, other.cell.id}
    found = tested.found if tested else ()
    return next(
        (
            contrast
            for contrast in found
            if {contrast.contender.cell.id, contrast.reference.cell.id} == wanted
        ),
        None,
    )


def _verdict_for(item: Program, contrast: Contrast) -> str:
    """The verdict that says that this one of the two is the faster."""
    return "faster" if contrast.contender.cell.id == item.cell.id else "slower"


def _ratio_of(item: Program, ratio: Interval, contrast: Contrast) -> Interval:
    """This one's throughput over the other's."""
    return ratio if contrast.contender.cell.id == item.cell.id else ratio.rate(1.0)


def _target_text(question: Question) -> str:
    """How soon each program trains to the target, from the launch, and which is shown to be soonest."""
    trained = [item for item in question.programs if item.solution]
    timed = sorted(
        (item for item in trained if item.solution_seconds),
        key=lambda item: item.solution_seconds.center if item.solution_seconds else 0.0,
    )
    if not timed or not timed[0].solution:
        goals = dict.fromkeys(goal_text(item.solution.target) for item in trained if item.solution)
        return f"{question.place}: no median time to {listed(list(goals))}." if goals else ""
    text = f"{question.place}: to {goal_text(timed[0].solution.target)} from the launch " + listed(
        [f"{item.name} takes {with_limits(item.solution_seconds)} s" for item in timed]
    )
    soonest, *others = timed
    if question.forbidden or not others or len(timed) < len(trained):
        return f"{text}."
    level = 1 - (1 - LEVEL) / (len(timed) * (len(timed) - 1) / 2)
    ratios = [(item, _sooner(soonest, item, level=level)) for item in others]
    if any(ratio is None or ratio.low is None for _, ratio in ratios):
        return f"{text}; too few seeds to say which is soonest."
    shown = [item.name for item, ratio in ratios if ratio and ratio.low is not None and ratio.low > 1]
    if len(shown) == len(others):
        return f"{text}; {soonest.name} is soonest."
    versus = f"only versus {listed(shown)}" if shown else "versus none"
    return f"{text}; that {soonest.name} is sooner is shown {versus} of the others."


def _sooner(soonest: Program, other: Program, *, level: float) -> Interval | None:
    """The other's time to the target over the soonest one's, paired by seed; None unless all trainings arrived."""
    if not (soonest.solution and other.solution):
        return None
    own, theirs = soonest.solution.trainings, other.solution.trainings
    if not all(training.reached for training in (*own, *theirs)):
        return None
    times = [{t.block: t.seconds for t in group if t.seconds} for group in (theirs, own)]
    return block_ratio(times[0], times[1], level=level) if all(times) else None


def pays_after(compiled: Program, question: Question) -> float | None:
    """Steps after which the longer start of a compiled program is made up for; None unless it is shown to be faster.

    What the gates have compiled before is not in the start, so that it is a lower bound.
    """
    plain = _plain_of(compiled, question)
    contrast = _between(compiled, plain, question.tested) if plain else None
    if not plain or contrast is None or contrast.verdict != _verdict_for(compiled, contrast):
        return None
    if not (compiled.start_seconds and plain.start_seconds and compiled.step_seconds and plain.step_seconds):
        return None
    gained = plain.step_seconds.center - compiled.step_seconds.center
    longer = compiled.start_seconds.center - plain.start_seconds.center
    return max(0.0, longer / gained) if gained > 0 else None


def _plain_of(compiled: Program, question: Question) -> Program | None:
    if not compiled.cell.compiled:
        return None
    wanted = compiled.cell.model_copy(update={"compiled": False}).id
    return next((item for item in question.programs if item.cell.id == wanted), None)


def _compiling_text(item: Program, question: Question) -> str:
    """Whether compiling pays; empty where that is not shown."""
    plain = _plain_of(item, question)
    contrast = _between(item, plain, question.tested) if plain else None
    if not plain or contrast is None or not contrast.ratio:
        return ""
    ratio = ratio_text(_ratio_of(item, contrast.ratio, contrast))
    if contrast.verdict == _verdict_for(plain, contrast):
        return f"{question.place}: compiling does not pay in {item.cell.framework}, {ratio} times as fast."
    steps = pays_after(item, question)
    if steps is None:
        return ""
    return (
        f"{question.place}: compiling makes {item.cell.framework} {ratio} times as fast and pays after "
        f"{number(round(steps))} steps or more."
    )


def to_answer_row(question: Question) -> dict[str, Any]:
    """An answer for programs: `best` are those to use, one list for each group that may be compared."""
    cell = question.programs[0].cell
    return {
        "system": question.programs[0].row.family.system,
        "workload": cell.workload,
        "preset": cell.preset,
        "data": cell.data,
        "backend": backend_text(cell),
        "num_ranks": cell.num_ranks,
        "comparable": question.pair and question.pair.comparable,
        "forbidden": question.forbidden,
        "best": [list(standing.best) for standing in question.standings],
        "pays_after_steps": {
            item.name: pays_after(item, question) for item in question.programs if item.cell.compiled
        },
        "sentences": question.sentences,
    }


def to_comparison_rows(question: Question) -> Iterator[dict[str, Any]]:
    """A row for each comparison of two programs; `ratio` is of the contender's throughput to the reference's."""
    cell = question.programs[0].cell
    for contrast in question.tested.found if question.tested else ():
        yield {
            "workload": cell.workload,
            "data": cell.data,
            "backend": backend_text(cell),
            "num_ranks": cell.num_ranks,
            "contender": contrast.contender.name,
            "reference": contrast.reference.name,
            "num_blocks": contrast.num_blocks,
            **interval_columns("ratio", contrast.ratio),
            "p_value": contrast.p_value,
            "p_adjusted": contrast.p_adjusted,
            "verdict": contrast.verdict,
            "reason": contrast.reason,
        }
