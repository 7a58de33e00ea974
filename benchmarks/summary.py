"""What a list of records shows of each one, without its numbers."""

from __future__ import annotations

from typing import NamedTuple

from dlscale.benchmarks.record import Record


class Summary(NamedTuple):
    """One attempt: whose it is, and why it failed if it did. A study may have very many of these."""

    case: str
    attempt: int
    failure_kind: str | None
    failure_message: str | None

    @property
    def good(self) -> bool:
        """True if the case is done."""
        return self.failure_kind is None

    @property
    def file_name(self) -> str:
        """Under which the record lies among the others."""
        return file_name(self.case, self.attempt)


def summary(record: Record) -> Summary:
    """What a list shows of that record."""
    failure = record.failure
    return Summary(
        record.case.id,
        record.attempt,
        failure.kind if failure else None,
        failure.message if failure else None,
    )


def file_name(case: str, attempt: int) -> str:
    """The name of that attempt's record."""
    return f"{case}.{attempt}.json"


def parse_file_name(name: str) -> tuple[str, int] | None:
    """(case, attempt) of a record's file; None if the name is not one that records have."""
    case, _, attempt = name.removesuffix(".json").rpartition(".")
    return (case, int(attempt)) if case and attempt.isdecimal() else None
