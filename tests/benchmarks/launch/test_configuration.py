"""What records keep of study, system and batch job."""

import pytest

from dlscale.base.quantities import Count, Quantity, TextFact
from dlscale.benchmarks.launch.campaign import configuration
from dlscale.benchmarks.launch.preparing import campaign_for_rehearsal
from dlscale.benchmarks.records.nodes import batch_job
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Fabric, load_system

HOME = {"USER": "jane", "HOME": "/home/jane", "SLURM_JOB_USER": "jane", "SLURM_JOB_ACCOUNT": "m1234"}


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


SLURM = {
    "SLURM_JOB_ID": "47", "SLURM_JOB_PARTITION": "regular", "SLURM_JOB_NUM_NODES": "4",
    "SLURM_JOB_NODELIST": "nid0000[1-4]",
}  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "known"),
    [
        (SLURM, ["slurm", "47", "regular", 4, "nid0000[1-4]"]),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "odd"}, ["slurm", "1", None, None, None]),
        ({"PBS_JOBID": "8.server", "PBS_QUEUE": "workq"}, ["pbs", "8.server", "workq", None, None]),
        ({"COBALT_JOBID": "5", "PBS_JOBID": "5"}, ["cobalt", "5", None, None, None]),
        ({"LSB_JOBID": "5", "LSB_QUEUE": "batch"}, ["lsf", "5", "batch", None, None]),
        ({"FLUX_JOB_ID": "f5", "FLUX_JOB_NNODES": "2"}, ["flux", "f5", None, 2, None]),
    ],
)
def test_a_batch_job_without_its_user(variables, known):
    assert list(batch_job(HOME | variables).model_dump().values()) == known


def test_no_batch_job():
    assert batch_job(HOME | {"SLURM_JOB_NUM_NODES": "odd"}) is None


def test_pbs_lists_a_node_once_per_slot(tmp_path):
    path = tmp_path / "nodes"
    variables = {"PBS_JOBID": "8.server", "PBS_NODEFILE": str(path)}
    assert batch_job(variables).num_nodes is None
    path.write_text("n1\nn1\nn2\nn2\n")
    assert (batch_job(variables).num_nodes, batch_job(variables).nodes) == (2, "n1,n2")


def test_a_long_list_of_nodes_is_known_by_its_digest():
    listed = ",".join(f"nid{number:05d}" for number in range(100))
    one, other = (
        batch_job({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": text}).nodes for text in (listed, listed + ",x")
    )
    assert one.startswith("sha256:")
    assert one != other


def test_a_launch_sets_the_variables_of_its_cell(tmp_path):
    study = load_study(
        "weak-scaling",
        backends=["mpi"],
        nodes=[1, 2],
        launches=1,
        environment_variables={"MPICH_ASYNC_PROGRESS": ["0", "1"]},
    )
    campaign = campaign_for_rehearsal(
        study, load_system("cori"), environment_name=None, data="synthetic", results=tmp_path
    )
    for launch in campaign.plan.launches:
        value = launch.cell.variables["MPICH_ASYNC_PROGRESS"]
        assert campaign.variables(launch)["MPICH_ASYNC_PROGRESS"] == value
        assert f"MPICH_ASYNC_PROGRESS={value}" in campaign.command(launch)
