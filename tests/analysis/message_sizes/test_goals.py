"""Verdicts: each goal met and missed, by the sizes and the opponents that it names."""

import pytest

from dlscale.analysis.message_sizes.goals import GoalVerdict
from dlscale.analysis.message_sizes.summary import summarise
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch

from .conftest import KIB, MIB, MakeCampaign, MakeLaunch

SIZES = [4 * KIB, 256 * KIB, MIB, 25 * MIB, 32 * MIB, 64 * MIB, 256 * MIB]


def flat(time: float, **others: float) -> dict[int, float]:
    """The same time at every size, but those at `kib_4=`, `mib_25=` ..."""
    units = {"kib": KIB, "mib": MIB}
    special = {int(name.split("_")[1]) * units[name.split("_")[0]]: value for name, value in others.items()}
    return {size: special.get(size, time) for size in SIZES}


@pytest.fixture
def judge(make_campaign: MakeCampaign, make_launch: MakeLaunch):
    """Verdicts by the first words of their goals. Times of the ring are 100 everywhere unless `ring` says so."""

    def judged(
        peers: dict[str, dict[int, float]],
        *,
        ring: dict[int, float] | None = None,
        stream: float = 90,
        unsynchronised: float = 90,
        crowded: dict[int, float] | None = None,
        num_cpus: int = 2,
    ) -> dict[str, GoalVerdict]:
        launches: list[MessageSizeLaunch] = []
        own = {
            "ring": ring or flat(100),
            "stream": flat(stream),
            "ring-unsynchronised": flat(unsynchronised),
        }
        for block in range(3):
            for backend, times in peers.items():
                launches.append(make_launch({"mpi": times, **own}, backend=backend, block=block))
            if crowded:
                launches.append(make_launch({"mpi": crowded, "ring": crowded}, block=block, num_ranks=4))
        campaign = make_campaign(sizes=SIZES, rank_counts=[2, 4], cpus=list(range(num_cpus)))
        summary = summarise(campaign, launches)
        return {
            verdict.goal.split(":")[0] + str(index): verdict for index, verdict in enumerate(summary.verdicts)
        }

    return judged


def test_all_met(judge):
    found = judge(
        {"mpich": flat(400), "openmpi": flat(300), "intelmpi": flat(200)}, stream=85, unsynchronised=90
    )
    assert [one.verdict for one in found.values()] == [
        *["met"] * 5,
        "reported",
        "met",
        "not judged",
        "not judged",
    ]


def test_the_best_of_all_counts_and_the_worst_size_is_named(judge):
    verdict = judge({"mpich": flat(300), "openmpi": flat(200, mib_25=105)})["1 to 32 MiB0"]
    assert verdict.verdict == "missed"
    assert "1.05" in verdict.found
    assert "25 MiB (Open MPI, default)" in verdict.found
    assert "missed at 25 MiB" in verdict.found


def test_sizes_outside_a_goal_do_not_matter(judge):
    peers = {"mpich": flat(300, kib_4=50, mib_64=50, mib_256=50)}
    assert judge(peers)["1 to 32 MiB0"].verdict == "met"


def test_intel_mpi_is_left_out_where_the_goal_says_so(judge):
    found = judge({"mpich": flat(120), "intelmpi": flat(50)})
    assert found["4 to 256 KiB4"].verdict == "met"
    assert found["4 to 256 KiB5"].verdict == "reported"
    assert "0.5" in found["4 to 256 KiB5"].found
    assert found["1 to 32 MiB0"].verdict == "missed"


def test_the_memory_bound(judge):
    assert judge({"mpich": flat(400)}, stream=79)["64 to 256 MiB3"].verdict == "missed"
    assert judge({"mpich": flat(400)}, stream=81)["64 to 256 MiB3"].verdict == "met"


def test_waiting(judge):
    assert judge({"mpich": flat(400)}, unsynchronised=84)["1 to 32 MiB1"].verdict == "missed"


def test_mpichs_default_at_25_mib_and_more(judge):
    assert judge({"mpich": flat(290, kib_4=10)})["25 MiB and more6"].verdict == "missed"
    assert judge({"mpich": flat(310, kib_4=10)})["25 MiB and more6"].verdict == "met"
    assert judge({"openmpi": flat(310)})["25 MiB and more6"].verdict == "not judged"


def test_more_ranks_than_cores(judge):
    names = ("4 ranks on 2 cores, 25 MiB7", "4 ranks on 2 cores8")
    slow = judge({"mpich": flat(400)}, crowded=flat(299, mib_1=2500))
    assert [slow[name].verdict for name in names] == ["met", "missed"]
    assert "collapses at 1 MiB" in slow[names[1]].found
    late = judge({"mpich": flat(400)}, crowded=flat(301))
    assert [late[name].verdict for name in names] == ["missed", "met"]
    roomy = judge({"mpich": flat(400)}, crowded=flat(301), num_cpus=8)
    assert [roomy[name].verdict for name in names] == ["not judged", "not judged"]
    assert "this machine has 8" in roomy[names[0]].found


def test_nothing_is_judged_that_was_not_compared_with_imb(judge):
    assert (
        "void: mpich not shown to be within 5 % of IMB-MPI1"
        in judge({"mpich": flat(400)})["1 to 32 MiB0"].found
    )
