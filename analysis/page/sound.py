"""Which records one report can be made of, and what it has to leave out: nothing is dropped without a word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlscale.analysis.frame import why_unusable
from dlscale.benchmarks.record import Record
from dlscale.benchmarks.record_files import BadFile

NAMED_FILES = 5  # of many that are bad for the same reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """What is known of a study beside its records. `num_planned` launches, 0 where there is no plan."""

    name: str = ""
    running: bool = False
    num_planned: int = 0
    left_out: tuple[str, ...] = ()


def of_one_fingerprint(records: Iterable[Record]) -> tuple[list[Record], list[str]]:
    """The records that may lie on common curves, and a sentence for each fingerprint that was left out.

    Of a system, environment and framework the fingerprint with most good launches stays, of equal ones the one that
    was measured last. Failed launches of the others stay too: they are told of, and lie on no curve.
    """
    records = list(records)
    groups: defaultdict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[(record.system, record.case.cell.environment, record.case.cell.framework)].append(record)
    dropped: set[int] = set()
    said = []
    for key, group in sorted(groups.items()):
        if len({record.fingerprint.digest for record in group}) == 1:
            continue
        good = [record for record in group if why_unusable(record) is None]
        counts = Counter(record.fingerprint.digest for record in good)
        latest: dict[str, str] = {}
        for record in good:
            digest = record.fingerprint.digest
            latest[digest] = max(latest.get(digest, ""), record.started_at)
        ordered = sorted(counts, key=lambda digest: (counts[digest], latest[digest], digest), reverse=True)
        for digest in ordered[1:]:
            dropped.update(id(record) for record in good if record.fingerprint.digest == digest)
            said.append(
                f"{_launches(counts[digest])} of {' / '.join(key)} with fingerprint {digest}: code, versions or node "
                f"changed, so they do not belong on one curve with the {counts[ordered[0]]} of {ordered[0]}"
            )
    return [record for record in records if id(record) not in dropped], said


def bad_file_groups(bad_files: Iterable[BadFile]) -> list[tuple[str, tuple[str, ...]]]:
    """Reason and file names, the most frequent reason first."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for bad in bad_files:
        groups[bad.reason].append(bad.path.name)
    return sorted(
        ((reason, tuple(sorted(names))) for reason, names in groups.items()),
        key=lambda group: (-len(group[1]), group[0]),
    )


def left_out(study: StudyFacts, bad_files: Iterable[BadFile]) -> list[str]:
    """One sentence per reason for which something that lies in the study's folder is not in the report."""
    sentences = list(study.left_out)
    for reason, names in bad_file_groups(bad_files):
        sentences.append(f"{_files(names)}: {reason}")
    return sentences


def _launches(number: int) -> str:
    return f"{number} launch{'es' * (number > 1)}"


def _files(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:NAMED_FILES]) + (" ..." if len(names) > NAMED_FILES else "")
    return f"{len(names)} files ({shown})"
