"""Tables that people write: studies, systems, published values, and every text that an option takes."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path

from dlscale.analysis.published.catalogue import Catalogue, load_published
from dlscale.analysis.published.verdicts import load_publication
from dlscale.base.definitions import load, parse_tables
from dlscale.base.hostlist import expand_hostlist
from dlscale.base.quantities import (
    format_seconds,
    format_size,
    parse_counts,
    parse_quantity,
    parse_seconds,
    parse_size,
)
from dlscale.benchmarks.study.settings import OPTIONS
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system
from tests.fuzz.target import CHECKOUT, Target, file_target, text_target

PUBLISHED = CHECKOUT / "results" / "published"
SYSTEMS = resources.files("dlscale.benchmarks").joinpath("systems")
STUDIES = resources.files("dlscale.benchmarks").joinpath("study", "studies")


def definition(folder, name: str, read: Callable[[Path], object]) -> Target:
    """A TOML file that dlscale has."""
    return file_target("x.toml", folder.joinpath(name).read_bytes, read)


def publication(path: Path) -> None:
    """Claims of a paper, checked against the published values."""
    load_publication(path, load_published())


def of_published(name: str) -> Target:
    """A file among all others of published values, and the measured series that panels show beside them."""

    def beside(folder: Path) -> None:
        for part in ("published", "reference/series"):
            shutil.copytree(PUBLISHED.parent / part, folder / part, dirs_exist_ok=True)

    return file_target(
        f"published/{name}", (PUBLISHED / name).read_bytes, lambda path: load_published(path.parent), beside=beside
    )  # fmt: skip


TEXTS: dict[str, tuple[Callable[[str], object], str]] = {
    "JSON": (partial(parse_tables, parse=json.loads), '{"a": [1, {"b": "c"}], "d": 1.5e3, "e": null}'),
    "TOML": (parse_tables, 'a.b.c = 1\n[d]\ne = [{f = "g"}, 2020-01-01]\n'),
    "counts": (parse_counts, "1,2,4:64:x2 7:9"),
    "size": (lambda text: format_size(parse_size(text)), "4KiB"),
    "sizes": (partial(parse_counts, sizes=True), "4KiB:256MiB:x4,25MiB"),
    "seconds": (lambda text: format_seconds(parse_seconds(text)), "1.5h"),
    "quantity": (partial(parse_quantity, dimension="bytes per second"), "200 Gb/s"),
    "options of backends": (OPTIONS["backend_options"].read, "horovod.cycle_time_ms=0.5 grpc_ps.x=[1]"),
    "values of an axis": (OPTIONS["backend_options"].read, "horovod.cycle_time_ms=0.5|1|5,grpc_ps.x=a|b"),
    "variables": (OPTIONS["environment_variables"].read, "MPICH_ASYNC_PROGRESS=0|1 OTHER=x"),
    "list of hosts": (expand_hostlist, "nid00[001-004,7],x[1-2]-ib"),
}
TARGETS: dict[str, Target] = {
    "study": definition(STUDIES, "weak-scaling.toml", lambda p: load_study(str(p))),
    "study to a target": definition(STUDIES, "time-to-solution.toml", lambda p: load_study(str(p))),
    "system": definition(SYSTEMS, "cooley.toml", lambda p: load_system(str(p))),
    "claims": definition(PUBLISHED / "claims", "goyal.toml", publication),
    "catalogue": definition(PUBLISHED, "figures.toml", lambda p: load(Catalogue, str(p))),
    "published values": of_published("goyal-table-1.csv"),
    "published statements": of_published("statements.csv"),
    "published figures": of_published("figures.toml"),
    **{name: text_target(read, text, share=0.4) for name, (read, text) in TEXTS.items()},
}
