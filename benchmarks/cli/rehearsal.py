"""A run of a system that is not here: what is published there, and what its study is expected to do.

Each workload is predicted at the sizes of the plan, over every backend, as `dlscale predict` would; what the system's
file does not state is assumed, in words. A time to solution has its samples from trainings of this machine and its
rates from the prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

import click
from rich.progress import Progress

from dlscale.analysis.predict.prediction import PredictedCurve, predict_curve
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.scenario import possible_sizes
from dlscale.analysis.predict.solution import PredictedSolution, SamplesToTarget, samples_in, solution_table
from dlscale.analysis.render.grid import render_table
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import study_folders
from dlscale.benchmarks.cli.predicted import show_curves
from dlscale.benchmarks.cli.profiles import profiles_of
from dlscale.benchmarks.cli.request import Request
from dlscale.benchmarks.cli.stated_study import read_stated
from dlscale.benchmarks.cli.streams import live_console
from dlscale.benchmarks.cli.trainings import Machine, Trainings, machine_of
from dlscale.benchmarks.launch.campaign import Campaign, describe_campaign
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.study.target import same_rules
from dlscale.collectives import capabilities

# What a training on this machine has no use for.
OF_NODES = ("nodes", "ranks_per_node", "partition", "servers")


def show_rehearsal(campaign: Campaign, trained: Mapping[str, list[SamplesToTarget]]) -> None:
    """Print what is published and predicted of each workload, and draw it into the campaign's folder.

    Of a time to solution `trained` has the samples that this machine's trainings took, by workload.
    """
    rehearsal = Rehearsal(campaign)
    study = campaign.plan.study
    console = live_console(stderr=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for workload in progress.track(study.workloads, description="predicting"):
            try:
                rehearsal.show_curves(workload)
            except UsageError as error:
                click.echo(f"predicted, {workload}: nothing; {error}")
    if study.target:
        for workload in study.workloads:
            try:
                rehearsal.show_solutions(workload, trained.get(workload, []))
            except UsageError as error:
                click.echo(f"predicted, {workload}: no time to solution; {error}")


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
        if self.study.scaling_mode == "resolution":
            raise UsageError("predictions have no samples whose rows grow with the ranks")
        mode: Literal["weak", "strong"] = "strong" if self.study.scaling_mode == "strong" else "weak"
        profiles = list(self._profiles(workload, self.study.frameworks)) if nodes else []
        for profile in profiles:
            if curves := list(self._curves(profile, nodes, mode=mode, batch=self.study.batch)):
                name = f"{workload}-{profile.preset}{f'-{profile.framework}' if len(profiles) > 1 else ''}"
                stem = self.campaign.store.figures_folder / f"{name}-{mode}-predicted"
                show_curves(curves, stem, commit=self.commit, command=self.command)

    def show_solutions(self, workload: str, trained: list[SamplesToTarget]) -> None:
        """Print and draw the times to the target at the trained batches. Raises UsageError if there are none."""
        # Here, because drawing takes longer to import than all else.
        from dlscale.analysis.predict.figures import write_solutions

        if not trained:
            raise UsageError("no trainings of 6 seeds or more reached its target here")
        solutions = list(self._solutions(workload, trained))
        if not solutions:
            return
        for text in dict.fromkeys(it.trained.source for it in solutions):
            click.echo(f"samples to the target: {text}")
        live_console().print(*render_table(solution_table(solutions)), sep="\n")
        stem = self.campaign.store.figures_folder / f"{workload}-{trained[0].preset}-solution-predicted"
        write_solutions(solutions, stem, commit=self.commit, command=self.command)
        click.echo(f"time to solution drawn: {stem}.png")

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
            halo=study.halo,
            backend_options=study.backend_options,
        )
        for backend in study.backends:
            row = capabilities(backend)
            if not row.exchanges or profile.framework not in row.frameworks:
                continue
            splits: Sequence[Any] = study.axes.get("split", [study.split])
            for shard, split in product(self._shards(profile, backend), splits):
                try:
                    scenario = asked.scenario(self.machine, profile, backend, shard=shard, split=split)
                    yield predict_curve(scenario, possible_sizes([scenario], nodes)[0])
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

    def _solutions(self, workload: str, trained: list[SamplesToTarget]) -> Iterator[PredictedSolution]:
        """The times at the trained batches, on the numbers of nodes that divide them."""
        per_node = self.ranks_per_node
        refused = [
            count for count in self.nodes if all(it.global_batch % (count * per_node) for it in trained)
        ]
        if refused:
            batches = ", ".join(str(it.global_batch) for it in trained)
            click.echo(
                f"no time to solution on {', '.join(map(str, refused))} nodes: no training here had a global batch "
                f"that their ranks divide (trained: {batches}), and none is extrapolated"
            )
        found = []
        for it in trained:
            nodes = [count for count in self.nodes if it.global_batch % (count * per_node) == 0]
            (profile,) = self._profiles(workload, [it.framework])
            for curve in self._curves(profile, nodes, mode="strong", batch=it.global_batch) if nodes else ():
                found += [PredictedSolution(curve=curve, point=point, trained=it) for point in curve.points]
        order = self.study.backends
        yield from sorted(found, key=lambda it: order.index(it.curve.scenario.rule.backend))


def local_request(request: Request, workloads: list[str]) -> Request:
    """What trains the same here: without a communication layer and over the ring, on as many ranks as cores."""
    own = {"workloads": workloads, "backends": ["none", "ring"], "device": "cpu"}
    nowhere = ("environment", "account", "walltime", "max_node_hours", "allow_open_ports")
    return request.changed(without=(*OF_NODES, "ranks"), fields=own, system="local", **dict.fromkeys(nowhere))


def local_samples(results: Path, study: Study, workload: str) -> list[SamplesToTarget]:
    """The samples of the latest local study that trained the workload to the study's target by its rules."""
    try:
        folders = study_folders(results)
    except UsageError:
        return []
    wanted = study.model_dump(mode="json")
    for folder in reversed(folders):
        if folder.parent.name != "local" or not same_rules(read_stated(folder).fields, wanted, workload):
            continue
        if found := samples_in(folder, workload, study.frameworks):
            return found
    return []
