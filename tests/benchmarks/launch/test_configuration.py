"""What records keep of study, system and batch job."""

import pytest

from dlscale.base.quantities import Count, Quantity, TextFact
from dlscale.benchmarks.launch import supervisor
from dlscale.benchmarks.launch.campaign import prepare_campaign
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Fabric, load_system


@pytest.fixture
def metadata_of(tmp_path, monkeypatch):
    """metadata_of(study, system): what the records of such a study's launches say."""
    monkeypatch.setattr(supervisor, "supervise", lambda prepared, _: prepared)

    def of(study, system):
        options = {"where": "rehearsal", "environment_name": None, "data": "synthetic", "results": tmp_path}
        campaign = prepare_campaign(study, system, **options)
        return campaign.run(campaign.plan.launches[0]).metadata

    return of


def test_the_configuration_is_that_of_the_resolved_study(metadata_of):
    found = metadata_of(load_study("weak-scaling"), load_system("cori")).configuration
    assert found.rules["min_windows"] == 10
    other = metadata_of(load_study("weak-scaling", budget="10min"), load_system("cori")).configuration
    assert other.budget_seconds == 600
    assert other.study_digest != found.study_digest


def test_a_fabric_is_told_in_base_units(metadata_of):
    network = Fabric(
        name=TextFact(value="Aries", source="s"),
        bandwidth=Quantity(value="8 GB/s", number=8e9, source="s"),
        nics_per_node=Count(value=1, source="s"),
    )
    system = load_system("cori").model_copy(update={"fabric": network})
    assert metadata_of(load_study("weak-scaling"), system).configuration.fabric == {
        "name": "Aries",
        "bandwidth": 8e9,
        "nics_per_node": 1,
    }


def test_a_launch_sets_the_variables_of_its_cell(tmp_path):
    study = load_study(
        "weak-scaling",
        backends=["mpi"],
        nodes=[1, 2],
        launches=1,
        environment_variables={"MPICH_ASYNC_PROGRESS": ["0", "1"]},
    )
    options = {"where": "rehearsal", "environment_name": None, "data": "synthetic", "results": tmp_path}
    campaign = prepare_campaign(study, load_system("cori"), **options)
    for launch in campaign.plan.launches:
        value = launch.cell.variables["MPICH_ASYNC_PROGRESS"]
        assert campaign.variables(launch)["MPICH_ASYNC_PROGRESS"] == value
        assert f"MPICH_ASYNC_PROGRESS={value}" in campaign.command(launch)
