"""The words about a figure that several findings share: what may not be compared, and where the data is from."""

from __future__ import annotations

from collections.abc import Sequence

from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.provenance import Provenance


def span(values: Sequence[int]) -> str:
    """`6`, or `5 to 6` where they differ."""
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def warning(rows: Sequence[ScalingRow]) -> str:
    """A warning that the parity gate failed, to be read before the numbers; empty if it passed."""
    pair = rows[0].pair
    return (
        f"NOT COMPARABLE between {' and '.join(pair.frameworks)}" if pair and pair.comparable is False else ""
    )


def parity(rows: Sequence[ScalingRow]) -> list[str]:
    """A line of small print with the parity gate's verdict; none with only one framework."""
    pair = rows[0].pair
    return [f"{pair.verdict}."] if pair else []


def origin(rows: Sequence[ScalingRow], provenance: Provenance) -> str:
    """The origin of the data: study, fingerprint, commit and hash, abbreviated."""
    fingerprints = sorted({row.fingerprint[:12] for row in rows if row.fingerprint})
    return (
        f"Study {', '.join(provenance.studies)}; fingerprint {', '.join(fingerprints)}; "
        f"commit {', '.join(_short(commit) for commit in provenance.commits)}; data {provenance.data_hash[:12]}."
    )


def _short(commit: str) -> str:
    """The first 12 digits of a commit, and whether the checkout was dirty."""
    digits, mark, _ = commit.partition("+")
    return digits[:12] + (mark and "+dirty")


def solution_origin(provenance: Provenance) -> str:
    """The origin of the data without fingerprints: study, commit and hash, abbreviated."""
    commits = ", ".join(commit[:12] for commit in provenance.commits)
    return f"Study {', '.join(provenance.studies)}; commit {commits}; data {provenance.data_hash[:12]}."
