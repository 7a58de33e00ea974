"""What launches leave in their spools, made up."""

from dlscale.base.files import make_folder
from dlscale.benchmarks.launch.supervisor import METADATA_FILE
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.record import LaunchMetadata
from dlscale.benchmarks.records.spool import SPEC_FILE, RankInfo
from dlscale.benchmarks.study.rules import Rules


def rank_info(rank, **known):
    own = {"pid": 100 + rank, "node": "n", "boot_id": "b", "affinity": [rank]}
    return RankInfo(**{"rank": rank, "local_rank": rank} | own | known)


def metadata_of(record):
    return LaunchMetadata(**{name: getattr(record, name) for name in LaunchMetadata.model_fields})


def launch_spec(*cases, **known):
    return LaunchSpec(
        **{"cases": cases, "rules": Rules(), "launched_at": 0.0, "seconds": 1.0, "data": None, "seed": 1}
        | known
    )


def leave_launch(folder, spec, metadata):
    """The files of a launch whose dlscale was killed, besides those of its ranks."""
    make_folder(folder)
    (folder / SPEC_FILE).write_text(spec.model_dump_json())
    (folder / METADATA_FILE).write_text(metadata.model_dump_json())
