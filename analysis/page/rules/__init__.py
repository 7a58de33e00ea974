"""The 12 rules of Hoefler and Belli (SC15, doi 10.1145/2807591.2807644), each judged by what is in the records.

Nothing is declared: a rule passes only if the facts that it asks for were found. `why` names them.
"""

from __future__ import annotations

from collections.abc import Callable

from dlscale.analysis.page.model import Rule, Verdict
from dlscale.analysis.page.rules import comparing, reporting, summarising
from dlscale.analysis.page.rules.facts import Facts

Judge = Callable[[Facts], tuple[Verdict, str]]

RULES: tuple[tuple[str, Judge], ...] = (
    ("State the base case and its absolute speed.", comparing.base_case),
    ("Give the reason where only a part is reported.", reporting.subsets),
    ("Summarise costs by their sum, and rates by total over total.", summarising.rates),
    ("Do not average ratios.", comparing.ratios),
    ("Give intervals, unless values are deterministic.", summarising.intervals),
    ("Do not assume a normal distribution without looking.", comparing.normality),
    ("Compare with sound tests.", comparing.tests),
    ("Ask whether the median is what matters; else give percentiles.", summarising.percentiles),
    ("Document all factors and the set-up.", reporting.factors),
    ("Say how parallel time was measured, synchronised and summarised.", summarising.measurement),
    ("Show bounds.", reporting.bounds),
    ("Plot what is needed; lines only where a trend is real.", reporting.lines),
)


def judged(facts: Facts) -> tuple[Rule, ...]:
    """All 12 in order."""
    found = []
    for number, (text, judge) in enumerate(RULES, start=1):
        verdict, why = judge(facts)
        found.append(Rule(number=number, text=text, verdict=verdict, why=why))
    return tuple(found)
