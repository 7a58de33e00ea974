"""What records keep of study, system and batch job."""

from dlscale.base.quantities import Count, Quantity, TextFact
from dlscale.benchmarks.launch.campaign import configuration
from dlscale.benchmarks.launch.preparing import prepare_campaign
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Fabric, load_system


def test_the_configuration_is_that_of_the_resolved_study():
    system = load_system("local")
    found = configuration(load_study("weak-scaling"), system)
    assert found.rules["min_windows"] == 10
    assert found.fabric == {}
    other = configuration(load_study("weak-scaling", budget="10min"), system)
    assert other.budget_seconds == 600
    assert other.study_digest != found.study_digest


def test_a_fabric_is_told_in_base_units():
    network = Fabric(
        name=TextFact(value="Aries", source="s"),
        bandwidth=Quantity(value="8 GB/s", number=8e9, source="s"),
        nics_per_node=Count(value=1, source="s"),
    )
    system = load_system("local").model_copy(update={"fabric": network})
    assert configuration(load_study("weak-scaling"), system).fabric == {
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
