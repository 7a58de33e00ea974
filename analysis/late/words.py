"""Slow hosts in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.late.suspects import Lateness, Suspect
from dlscale.analysis.statistics import Interval


def sentences(one: Lateness, *, with_links: bool = True) -> list[str]:
    """One for each suspect; one that says so if nobody is late; and, `with_links`, what cannot be known of links."""
    ranks = f"{one.num_ranks} ranks"
    kind = "" if one.evidence == "measured" else f" ({one.evidence})"
    found = [f"{_subject(suspect)} on {ranks}{kind}: {_verdict(suspect)}." for suspect in one.suspects]
    if not any(suspect.verdict == "late" for suspect in one.suspects):
        whose = f"{len(one.hosts)} hosts" if len(one.hosts) > 1 else f"{ranks} of one host"
        found.append(f"none of the {whose} is surely late{kind}, by {one.num_blocks} launches of none.")
    reasons: dict[str, list[str]] = {}
    for backend, reason in one.links.items() if with_links else ():
        reasons.setdefault(reason, []).append(backend)
    found += [
        f"slow links on {ranks}, by {', '.join(backends)}: not known; {reason}."
        for reason, backends in reasons.items()
    ]
    return found


def render(found: Iterable[Lateness]) -> Iterator[RenderableType]:
    """For the numbers of ranks of one family, links only on the most; nothing without any."""
    found = list(found)
    told = [sentence for one in found for sentence in sentences(one, with_links=one is found[-1])]
    if not told:
        return
    yield "[bold]Late ranks and slow hosts[/bold]"
    for sentence in told:
        yield escape(sentence)
    yield ""


def _subject(one: Suspect) -> str:
    if one.rank is not None:
        return f"rank {one.rank} ({one.hosts[0]})"
    return f"host{'s' * (len(one.hosts) > 1)} {', '.join(one.hosts)}"


def _verdict(one: Suspect) -> str:
    if one.verdict == "not known":
        return f"{_slower(one.slower)} over {one.backend}, but whether it is slow is not known: {one.reason}"
    where = "in none, where nobody waits" if one.backend == "none" else f"over {one.backend}, and not in none"
    return f"{one.verdict}, {_slower(one.slower)} {where}"


def _slower(slower: Interval) -> str:
    """`8.1 % [7.2, 9.0] slower`."""
    limits = (
        ""
        if slower.low is None or slower.high is None
        else f" [{100 * slower.low:.1f}, {100 * slower.high:.1f}]"
    )
    return f"{100 * slower.center:.1f} %{limits} slower"
