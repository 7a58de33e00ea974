"""Where the message-size benchmark's numbers come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from dlscale.analysis.provenance import Provenance
from dlscale.benchmarks.collectives.record import Campaign, Launch


def origin(campaign: Campaign, launches: Sequence[Launch]) -> Provenance:
    """Of a run. The order in which its launches were read does not matter; its system is the processor."""
    digest = hashlib.sha256(campaign.model_dump_json().encode() + b"\n")
    for text in sorted(launch.model_dump_json() for launch in launches):
        digest.update(text.encode() + b"\n")
    return Provenance(
        studies=("collectives",),
        systems=(str(campaign.node.get("cpu_model", "unknown")),),
        commits=(campaign.commit,),
        commands=tuple(sorted({launch.command for launch in launches})),
        data_hash=digest.hexdigest(),
    )
