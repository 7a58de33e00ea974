"""Limits of control groups, as the kernel's files of both versions have them."""

import pytest

from dlscale.benchmarks.systems.limits import cpu_quota

V2 = "0::/pod/job\n"
V1 = "9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n"


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        (V2, {}, (None, 0)),
        (
            V2,
            {
                "pod/job/cpu.max": "150000 100000",
                "pod/cpu.max": "60000 100000",  # the group around it counts too
                "pod/job/cpu.stat": "nr_periods 9\nnr_throttled 3",
                "pod/cpu.stat": "nr_periods 9\nnr_throttled 4",
            },
            (0.6, 7),
        ),
        # In a container its group is the root that it sees, whatever the name.
        ("0::/\n", {"cpu.max": "200000 100000"}, (2.0, 0)),
        (V2, {"cpu.max": "200000 100000"}, (2.0, 0)),
        (
            V1,
            {
                "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "60000",
                "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/docker/x/cpu.stat": "nr_throttled 5",
            },
            (0.6, 5),
        ),
        (V1, {"cpu,cpuacct/docker/x/cpu.cfs_quota_us": "60000"}, (None, 0)),
        ("broken", {"cpu.max": "x y z"}, (None, 0)),
    ],
)
def test_the_narrowest_limit_counts(tmp_path, group, files, expected):
    for name, text in {
        "proc/self/cgroup": group,
        **{f"sys/fs/cgroup/{k}": v for k, v in files.items()},
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpu_quota(tmp_path) == expected
