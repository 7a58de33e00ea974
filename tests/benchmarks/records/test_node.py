"""What a node says of itself, from folders that look like its /proc and /sys, and the batch job."""

import pytest

from dlscale.benchmarks.records.nodes import NodeFacts, batch_job, node_facts

# The first line of NVIDIA's open driver, and of the closed one.
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)\n"
)
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n"
GPU = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t 7\n"


def look(folder, files, **variables):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return node_facts(top=folder, variables=variables)


def test_everything_that_a_node_says(tmp_path):
    files = {
        "proc/loadavg": "0.75 0.50 0.25 1/200 4711\n",
        "proc/driver/nvidia/version": OPEN + "GCC version: gcc version 12\n",
        "proc/driver/nvidia/gpus/0000:00:00.0/information": GPU,
        "proc/driver/nvidia/gpus/0000:01:00.0/information": GPU,
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpufreq/policy2/scaling_governor": "performance\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cpu.stat": "nr_periods 9\nnr_throttled 3\n",
    }
    info = look(tmp_path, files, SHIFTER_IMAGE="sha:12")
    assert info.model_dump(exclude={"num_cpus", "memory_bytes"}) == {
        "cpu_governor": "performance, powersave",
        "device_driver": "nvidia 570.86.15",
        "devices": "2 x NVIDIA A100-SXM4-40GB",
        "container": "sha:12",
        "load_before": 0.75,
        "throttled_before": 3,
    }
    assert NodeFacts(rank=0, node="n", load_after=None, throttled_after=5, **dict(info)).num_throttled == 2


@pytest.mark.parametrize(
    ("files", "driver"),
    [
        ({"proc/driver/nvidia/version": CLOSED}, "nvidia 550.54.14"),
        ({"sys/module/amdgpu/version": "6.7.0\n"}, "amdgpu 6.7.0"),
        ({}, None),
    ],
)
def test_the_driver_of_the_gpus(tmp_path, files, driver):
    info = look(tmp_path, files)
    assert info.device_driver == driver
    assert not any([info.cpu_governor, info.devices, info.container, info.load_before])


@pytest.mark.parametrize(
    ("variables", "known"),
    [
        ({"SLURM_JOB_ID": "47", "SLURM_JOB_PARTITION": "regular"}, ["slurm", "47", "regular"]),
        ({"PBS_JOBID": "8.server", "PBS_QUEUE": "workq"}, ["pbs", "8.server", "workq"]),
        ({"COBALT_JOBID": "5", "PBS_JOBID": "5"}, ["cobalt", "5", None]),
        ({"LSB_JOBID": "5", "LSB_QUEUE": "batch"}, ["lsf", "5", "batch"]),
        ({"FLUX_JOB_ID": "f5"}, ["flux", "f5", None]),
    ],
)
def test_a_batch_job_without_its_user(variables, known):
    assert list(batch_job({"HOME": "/home/jane", "USER": "jane"} | variables).model_dump().values()) == known


def test_no_batch_job():
    assert batch_job({"SLURM_JOB_PARTITION": "odd"}) is None
