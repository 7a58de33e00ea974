"""Made-up histories: studies of the same cells on many days, whose rates differ by a spread between studies."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from dlscale.benchmarks.records.record import Fingerprint, Record
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system
from tests.made_records import in_detail, make_record, write_study

BACKENDS = ("none", "ring", "mpi", "gloo")
BEGAN = datetime.fromisoformat("2026-11-01T03:00:00+00:00")
NODE = {"cpu_model": "EPYC", "num_cores": 8, "kernel": "6.1"}
VERSIONS = {"torch": "2.12.0", "mpi": "MPICH 4.3"}


def make_history(
    folder: Path,
    *,
    studies: int = 5,
    ranks: Sequence[int] = (1, 2),
    launches: int = 6,
    spread: float = 0.01,
    common: float = 0.01,
    lost: Mapping[tuple[int, str, int], float] | None = None,
    versions: Mapping[int, Mapping[str, str]] | None = None,
    node: Mapping[int, Mapping[str, object]] | None = None,
    windows: int = 10,
    seed: int = 1,
) -> list[Path]:
    """A results folder per day with a study in it; gives the studies' folders, in order of time.

    `lost` maps (first study, backend, ranks) to the share of the rate that is lost from that study on, `versions` and
    `node` map the first study to what is recorded from there on.
    """
    generator = np.random.default_rng(seed)
    written = []
    system = load_system("local")
    stated = {
        "study": load_study("weak-scaling", system=system).model_dump(mode="json"),
        "system": system.model_dump(mode="json"),
        "environment": "default",
    }
    own_versions, own_node = dict(VERSIONS), dict(NODE)
    for day in range(studies):
        own_versions |= (versions or {}).get(day, {})
        own_node |= (node or {}).get(day, {})
        fingerprint = Fingerprint(
            digest=f"{day:012x}",
            code_digest="c",
            source_digest="ab" * 8,
            commit="0123456789ab",
            versions=own_versions,
            node=own_node,
        )
        machine = common * generator.standard_normal()
        records: list[Record] = []
        for backend in BACKENDS:
            for num_ranks in ranks:
                place = machine + spread * generator.standard_normal()
                rate = 100.0 * num_ranks * (1.0 if backend == "none" else 0.9) * np.exp(place)
                for (first, name, size), share in (lost or {}).items():
                    rate *= 1 - share if day >= first and (name, size) == (backend, num_ranks) else 1
                for block in range(launches):
                    record = make_record(
                        backend=backend,
                        num_ranks=num_ranks,
                        block=block,
                        samples_per_second=float(rate * np.exp(0.005 * generator.standard_normal())),
                        window_factors=(1.0,) * windows,
                    )
                    records.append(
                        in_detail(record, minute=block).model_copy(update={"fingerprint": fingerprint})
                    )
        begun = BEGAN + timedelta(days=day)
        records = [
            record.model_copy(
                update={"started_at": (begun + timedelta(minutes=record.case.block)).isoformat()}
            )
            for record in records
        ]
        written.append(
            write_study(
                folder / f"{begun:%Y-%m-%d}" / "local" / "weak-scaling-1a2b",
                records,
                planned=True,
                fingerprint=fingerprint.model_dump(),
                **stated,
            )
        )
    return written
