"""A run of a system that is not here: what is published there, and what its study is expected to do.

Each workload is predicted at the sizes of the plan, over every backend, as `dlscale predict` would; what the system's
file does not state is assumed, in words. Of a study with a target only the speed is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import click
from rich.progress import Progress

from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve
from dlscale.analysis.predict.profile import Profile
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.predicted import show_curves
from dlscale.benchmarks.cli.profiles import profiles_of
from dlscale.benchmarks.cli.streams import live_console
from dlscale.benchmarks.cli.trainings import Machine, Trainings, machine_of
from dlscale.benchmarks.launch.campaign import Campaign, describe_campaign
from dlscale.benchmarks.study.study import Study
from dlscale.collectives import capabilities


def show_rehearsal(campaign: Campaign) -> None:
    """Print what is published and predicted of each workload, and draw it into the campaign's folder."""
    rehearsal = Rehearsal(campaign)
    study = campaign.plan.study
    console = live_console(stderr=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for workload in progress.track(study.workloads, description="predicting"):
            try:
                rehearsal.show_curves(workload)
            except UsageError as error:
                click.echo(f"predicted, {workload}: nothing; {error}")


@dataclass(frozen=True)  # no slots: the system is completed at first use, and kept
class Rehearsal:
    """The predictions of a campaign's study."""

    campaign: Campaign

    @property
    def study(self) -> Study:
        """What would run."""
        return self.campaign.plan.study

    @cached_property
    def machine(self) -> Machine:
        """The system with what its predictions lack, and each assumption."""
        return machine_of(self.campaign.system)

    @property
    def ranks_per_node(self) -> int:
        """The ranks of a full node."""
        return self.campaign.plan.shape.ranks_per_node or 1

    @property
    def nodes(self) -> list[int]:
        """The planned numbers of nodes that are full of ranks."""
        sizes = self.campaign.plan.shape.sizes
        return sorted({it.num_nodes for it in sizes if it.num_ranks == it.num_nodes * self.ranks_per_node})

    @property
    def commit(self) -> str:
        return self.campaign.fingerprint.commit

    @property
    def command(self) -> str:
        """The command line that its files name."""
        return str(describe_campaign(self.campaign)["command"])

    def show_curves(self, workload: str) -> None:
        """Print and draw the curves of a workload. Raises UsageError if nothing can be predicted of it."""
        cells = [case.cell for launch in self.campaign.plan.launches for case in launch.cases]
        ranks = {it.num_ranks for it in cells if (it.workload, it.control) == (workload, "train")}
        nodes = [count for count in self.nodes if count * self.ranks_per_node in ranks]
        mode: Literal["weak", "strong"] = "strong" if self.study.scaling_mode == "strong" else "weak"
        profiles = list(self._profiles(workload, self.study.frameworks)) if nodes else []
        for profile in profiles:
            if curves := list(self._curves(profile, nodes, mode=mode, batch=self.study.batch)):
                name = f"{workload}-{profile.preset}{f'-{profile.framework}' if len(profiles) > 1 else ''}"
                stem = self.campaign.store.figures_folder / f"{name}-{mode}-predicted"
                show_curves(curves, stem, commit=self.commit, command=self.command)

    def _profiles(self, workload: str, frameworks: Sequence[str]) -> Iterator[Profile]:
        """What is public of the study's trainings on such nodes. Raises UsageError."""
        study = self.study
        if workload in study.own_models:
            raise UsageError(
                f"{workload} is a model of your own; measure its profile (--set controls=profile) and give it to "
                "dlscale predict --from"
            )
        if study.precision != "fp32":
            raise UsageError(f"what is published is of fp32, and the study is of {study.precision}")
        yield from profiles_of(
            self.machine.system,
            workload,
            frameworks=frameworks,
            preset=study.facts(workload).preset(study.preset).name,
            device=study.device,
            ranks_per_node=self.ranks_per_node,
        )

    def _curves(
        self, profile: Profile, nodes: list[int], *, mode: Literal["weak", "strong"], batch: int | None
    ) -> Iterator[PredictedCurve]:
        """A curve per backend that exchanges; those that cannot be predicted are said."""
        study = self.study
        asked = Trainings(
            mode=mode,
            servers=study.servers[0],
            ranks_per_node=self.ranks_per_node,
            batch=batch,
            backend_options=study.backend_options,
        )
        for backend in study.backends:
            row = capabilities(backend)
            if not row.exchanges or profile.framework not in row.frameworks:
                continue
            for shard in self._shards(profile, backend):
                try:
                    scenario = asked.scenario(self.machine, profile, backend, shard=shard)
                    yield predict_curve(scenario, nodes)
                except UsageError as error:
                    click.echo(f"not predicted over {backend}: {error}")

    def _shards(self, profile: Profile, backend: str) -> list[str]:
        """What is sharded in the planned trainings over the backend, each once."""
        cells = (case.cell for launch in self.campaign.plan.launches for case in launch.cases)
        wanted = (profile.workload, profile.framework, backend, "train")
        return list(
            dict.fromkeys(
                it.shard for it in cells if (it.workload, it.framework, it.backend, it.control) == wanted
            )
        )
