"""The screen of a study with many curves: what they share is said once, and names with commas stay apart."""

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.finding import collect
from dlscale.analysis.findings import load_all
from dlscale.analysis.measured import measure
from dlscale.analysis.render.screen import render_screen
from dlscale.analysis.variants import Variants
from dlscale.collectives.sharding import NAMES
from tests.analysis.reading import printed
from tests.made_records import make_record

RATES = {"gloo": 8.0, "ring": 9.0}
FACTORS = (1.0, 1.004, 0.997, 1.002, 0.999, 1.003, 0.996, 1.001)


def screen(*, workloads=("gpt", "resnet50"), backends=("gloo", "ring"), num_blocks=8):
    records = [
        make_record(
            workload=workload,
            preset="tiny",
            backend=backend,
            shard=shard,
            num_ranks=ranks,
            block=block,
            samples_per_second=RATES[backend]
            * (10 - NAMES.index(shard))
            * ranks
            * FACTORS[block * (ranks + 1) % 8],
        )
        for workload in workloads
        for backend in backends
        for shard in NAMES
        for ranks in (1, 2)
        for block in range(num_blocks)
    ]
    named, _ = with_curve_names(records, ())
    study = measure(named, order=backends, variants=Variants(axes={"shard": list(NAMES)}))
    return printed(render_screen(study, collect(load_all(), study)), width=80)


def test_many_curves_are_shown_on_their_most_ranks_and_what_all_lack_is_said_once():
    text = screen()
    rows = [line.split() for line in text.splitlines() if line.rstrip().endswith("8/8")]
    assert [row[2].rstrip(",") for row in rows] == [*["gloo"] * 3, *["ring"] * 3] * 2
    assert "All others: dlscale report --full." in " ".join(text.split())
    assert text.count("none on 1 rank was not measured") == 1
    assert text.count("Largest loss") == 1
    assert "vs 1 rank" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_few_curves_are_shown_on_all_ranks_and_pairs_with_commas_are_told_apart():
    text = " ".join(screen(workloads=("gpt",), backends=("ring",), num_blocks=9).split())
    assert "All others" not in text
    assert "ring, optimizer sharded is slower than ring (-10.0 [" in text
    assert "% samples/s); ring, parameters sharded is slower than ring (" in text
