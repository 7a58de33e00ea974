"""What a node says of itself, from folders that look like its /proc and /sys, and the batch job."""

import pytest

from dlscale.benchmarks.records.nodes import NodeFacts, batch_job, node_facts

FILES = {
    "proc/loadavg": "0.75 0.50 0.25 1/200 4711\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpufreq/policy2/scaling_governor": "performance\n",
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/cpu.stat": "nr_periods 9\nnr_throttled 3\n",
}


def test_what_a_node_says(tmp_path):
    silent = node_facts(top=tmp_path)
    assert (silent.cpu_governor, silent.load_before, silent.throttled_before) == (None, None, 0)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info = node_facts(top=tmp_path)
    assert (info.cpu_governor, info.load_before) == ("performance, powersave", 0.75)
    assert NodeFacts(rank=0, node="n", load_after=None, throttled_after=5, **dict(info)).num_throttled == 2


@pytest.mark.parametrize(
    ("variables", "known"),
    [
        ({"SLURM_JOB_ID": "47", "SLURM_JOB_PARTITION": "regular"}, "slurm 47"),
        ({"COBALT_JOBID": "5", "PBS_JOBID": "5"}, "cobalt 5"),
        ({"FLUX_JOB_ID": "f5"}, "flux f5"),
        ({"SLURM_JOB_PARTITION": "odd"}, None),
    ],
)
def test_a_batch_job_without_its_user(variables, known):
    assert batch_job({"HOME": "/home/jane", "USER": "jane"} | variables) == known
