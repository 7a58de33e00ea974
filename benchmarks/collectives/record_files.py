"""The folder of a run: campaign.json and a file per launch."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from dlscale.benchmarks.collectives.record import Campaign, Launch
from dlscale.models.errors import UsageError
from dlscale.models.files import make_folder, write_atomically

CAMPAIGN_FILE = "campaign.json"
LAUNCHES = "launches"


def write_campaign(folder: Path, campaign: Campaign) -> None:
    """The folder exists and says what its launches belong to; what it said before is replaced."""
    make_folder(folder / LAUNCHES)
    write_atomically(folder / CAMPAIGN_FILE, campaign.model_dump_json(indent=1) + "\n")


def add_launch(folder: Path, launch: Launch) -> Path:
    """Write a launch once and for all. Raises FileExistsError if its place in the order is taken."""
    name = f"{launch.position:03d}-{launch.purpose}-{launch.backend}-{launch.num_ranks}r.json"
    path = folder / LAUNCHES / name
    if path.exists():
        raise FileExistsError(f"{path}: records are written once")
    write_atomically(path, launch.model_dump_json() + "\n")
    return path


def load_run(folder: Path) -> tuple[Campaign, list[Launch]]:
    """A run's campaign and its launches in order. Raises UsageError for a file that is missing or unsound."""
    path = folder / CAMPAIGN_FILE
    try:
        campaign = Campaign.model_validate_json(path.read_bytes())
        launches = []
        for path in sorted((folder / LAUNCHES).glob("[0-9]*.json")):
            launches.append(Launch.model_validate_json(path.read_bytes()))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}; name a folder that dlscale collectives wrote"
        ) from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "top level"
        raise UsageError(
            f"{path} is no sound record ({where}: {problem['msg']}); restore it, or run again"
        ) from None
    return campaign, launches


def latest_run(results: Path) -> Path:
    """The folder of the latest run in a results folder. Raises UsageError if there is none."""
    found = sorted(path.parent for path in results.glob(f"collectives/*/{CAMPAIGN_FILE}"))
    if not found:
        raise UsageError(f"no run of this benchmark in {results}; make one with: dlscale collectives")
    return found[-1]
