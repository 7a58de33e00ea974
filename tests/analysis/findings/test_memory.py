"""Memory of ranks whose state is sharded: bytes that are expected and sent, the curve over ranks, and what is said."""

import pytest

from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all, memory
from dlscale.analysis.findings.memory import expected_state
from dlscale.analysis.measured import measure
from dlscale.analysis.records import sent_bytes
from dlscale.analysis.render.screen import render_screen
from dlscale.benchmarks.records.record import StateBytes
from dlscale.models import NAMES, load_workload
from dlscale.models.workload import Shard
from tests.analysis.reading import blocks_of, data_of, page_for, printed
from tests.made_records import make_record

WEIGHTS = load_workload("gpt").preset("tiny").num_parameters
GRADIENTS = 4 * WEIGHTS


def sharded(shard, *, backend="ring", num_ranks=2, rate=100.0, workload="gpt", **fields):
    """A launch that keeps and exchanges exactly what is expected, over all ranks; rank 1 keeps 4 bytes more."""
    record = make_record(
        backend=backend,
        num_ranks=num_ranks,
        samples_per_second=rate,
        workload=workload,
        shard=shard,
        **fields,
    )
    state = expected_state(WEIGHTS, 2, shard=shard, num_ranks=num_ranks)
    ranks = [
        rank.model_copy(
            update={"state_bytes": state.model_copy(update={"optimizer": state.optimizer + 4 * rank.rank})}
        )
        for rank in record.ranks
    ]
    gathered = {"none": [], "optimizer": [GRADIENTS], "parameters": [GRADIENTS] * 2}[shard]
    settings = {"bucket_bytes": f"{GRADIENTS - 400},400"}
    settings |= {"gather_bytes": ",".join(map(str, gathered))} if gathered else {}
    if backend == "none":
        settings = {}
    return record.model_copy(update={"ranks": ranks, "backend_settings": settings})


def study_of(*, rates=None, backends=("ring",), workloads=("gpt",), num_blocks=6):
    """Trainings on 1 and 2 ranks, those without communication among them; `rates` are of 2 ranks, by shard."""
    rates = rates or {"none": 190.0, "optimizer": 180.0, "parameters": 150.0}
    records = []
    for workload in workloads:
        for block in range(num_blocks):
            for ranks in (1, 2):
                records.append(
                    sharded(
                        "none",
                        backend="none",
                        num_ranks=ranks,
                        rate=99.0 * ranks,
                        block=block,
                        workload=workload,
                    )
                )
                for backend in backends:
                    for shard, rate in rates.items():
                        rate = (rate if ranks == 2 else 98.0) * (1 + 0.001 * block)
                        records.append(
                            sharded(
                                shard,
                                backend=backend,
                                num_ranks=ranks,
                                rate=rate,
                                block=block,
                                workload=workload,
                            )
                        )
    return measure(records)


@pytest.mark.parametrize(
    ("shard", "parts"),
    [("none", (400, 400, 800)), ("optimizer", (400, 400, 200)), ("parameters", (100, 100, 200))],
)
def test_what_is_expected_of_100_weights_that_adam_trains_on_4_ranks(shard, parts):
    assert expected_state(100, 2, shard=shard, num_ranks=4) == StateBytes(
        parameters=parts[0], gradients=parts[1], optimizer=parts[2]
    )


def test_a_rank_sends_an_allreduce_for_a_sharded_optimizer_and_half_as_much_again_for_parameters():
    whole = 2 * 3 / 4 * GRADIENTS
    sent = [sent_bytes(sharded(shard, num_ranks=4)) for shard in ("none", "optimizer", "parameters")]
    assert sent == [pytest.approx(whole), pytest.approx(whole), pytest.approx(1.5 * whole)]
    assert sent_bytes(sharded("none", backend="mpi_ps", num_ranks=4)) is None


def test_measured_bytes_are_the_largest_rank_s_beside_the_expected_ones():
    study = study_of()
    rows = {
        (row["shard"], row["num_ranks"]): row for row in data_of(study)["memory"] if row["backend"] == "ring"
    }
    own = rows["optimizer", 2]
    assert own["parameters_bytes"] == GRADIENTS
    assert own["optimizer_bytes"] == own["expected_optimizer_bytes"] + 4
    assert own["expected_state_bytes"] == 3 * GRADIENTS
    assert rows["parameters", 2]["expected_state_bytes"] == 2 * GRADIENTS
    assert own["slowdown"] == pytest.approx(190 / 180)


def test_a_curve_per_shard_and_the_ideal_from_one_rank():
    (plot,) = (plot for plot in memory.FINDING.plots(memory.FINDING.of(study_of(backends=("ring", "gloo")))))
    assert [series.name for series in plot.series] == [
        "not sharded",
        "optimizer sharded",
        "parameters sharded",
    ]
    (ideal,) = plot.guides
    ranks, size = ideal.points[0]
    assert ranks * size == pytest.approx(4 * GRADIENTS / 2**20)
    assert plot.series[2].points[-1].y == pytest.approx(2 * GRADIENTS / 2**20, rel=1e-3)


def test_the_figure_is_among_those_that_are_written(tmp_path):
    files = write_figures(study_of(num_blocks=1), tmp_path, only=("memory",))
    assert {path.suffix for path in files} >= {".png", ".csv"}


def test_the_page_says_what_was_saved_and_when_it_pays_as_far_as_intervals_show_it():
    texts = [one.text for one in memory.FINDING.sentences(memory.FINDING.of(study_of()))]
    assert len(texts) == 3
    assert "25 % less" in texts[0]
    assert "50 % less" in texts[0]
    assert "takes longer for ring, optimizer sharded (1.06" in texts[1]
    assert texts[2].startswith("So sharding pays here only on ranks with room for")
    alike = study_of(rates={"none": 190.0, "optimizer": 190.0})
    assert (
        "shows no difference" in [one.text for one in memory.FINDING.sentences(memory.FINDING.of(alike))][1]
    )
    few = study_of(num_blocks=1)
    assert "is not known" in [one.text for one in memory.FINDING.sentences(memory.FINDING.of(few))][1]


def test_a_study_of_two_networks_two_backends_and_three_shards_fits_on_a_screen():
    study = study_of(backends=("gloo", "ring"), workloads=("gpt", "hep_cnn"))
    lines = printed(render_screen(study, collect(load_all(), study)), width=80).rstrip().splitlines()
    assert max(map(len, lines)) <= 80
    own = [line.strip() for line in lines if line.startswith(" GPT") and "sharded" in line]
    assert [line.split()[2].rstrip(",") for line in own] == ["gloo"] * 2 + ["ring"] * 2
    for shard, size in (("optimizer", "1.43"), ("parameters", "0.951")):
        assert all(size in line and "6/6" in line for line in own if shard in line)
    assert len(lines) <= 40


def test_nothing_is_drawn_or_said_of_trainings_that_shard_nothing():
    study = study_of(rates={"none": 190.0})
    uses = memory.FINDING.of(study)
    assert uses
    assert not list(memory.FINDING.sentences(uses))
    assert not list(memory.FINDING.plots(uses))
    assert blocks_of(page_for(study), type(memory.MEMORY.of(uses)))


@pytest.mark.parametrize("name", NAMES)
def test_optimizers_keep_as_many_numbers_of_each_weight_as_their_workload_says(name):
    pytest.importorskip("torch")
    facts = load_workload(name)
    preset = facts.preset("tiny")
    factory = facts.factory(framework="torch", preset="tiny", local_batch=2, source=facts.input("tiny"))
    replica = factory(shard=Shard(), seed=1)
    replica.apply(replica.gradients())
    kept = sum(value.size for value in replica.slots().values() if value.size > 1)
    assert kept == pytest.approx(facts.num_slots * preset.num_parameters, rel=1e-3)
