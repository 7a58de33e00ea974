"""Where samples are sequences, rates are shown in tokens beside samples, and lengths are compared by tokens."""

import pytest

from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.measured import measure
from dlscale.analysis.render.tidy_rows import launch
from dlscale.analysis.variants import Variants
from tests.analysis.reading import data_of, row_of, screen_text, table_text
from tests.made_records import make_record

GPT = {"workload": "gpt", "preset": "tiny"}  # of 128 tokens


def records(**cell):
    return [
        make_record(
            backend=backend, num_ranks=ranks, block=block, samples_per_second=rate * (1 + block / 100), **cell
        )
        for backend, rate in (("none", 100.0), ("ring", 90.0))
        for ranks in (1, 2)
        for block in range(6)
    ]


def test_rates_are_in_tokens_too():
    study = measure(records(**GPT))
    row = next(row for row in data_of(study)["rows"] if row["backend"] == "ring" and row["num_ranks"] == 2)
    for limit in ("", "_low", "_high"):
        tokens, samples = row[f"tokens_per_second{limit}"], row[f"samples_per_second{limit}"]
        assert tokens == pytest.approx(128 * samples)
    assert launch(records(**GPT)[0])["tokens_per_second"] == pytest.approx(12800)
    screen = screen_text(study)
    assert "tokens/s" in screen
    assert "Throughput: 11808 tokens/s." in screen  # 92.25 samples/s
    assert "8 sequences of 128 tokens per rank and step" in screen


def test_another_length_has_other_tokens_and_is_in_the_title():
    study = measure(records(**GPT, sequence_length=32))
    assert "GPT tiny, torch 32 tokens, weak scaling" in screen_text(study)
    assert "Throughput: 2952 tokens/s." in screen_text(study)


def test_images_have_no_tokens():
    study = measure(records())
    assert "token" not in screen_text(study) + table_text(study)
    assert {row["tokens_per_second"] for row in data_of(study)["rows"]} == {None}


def test_a_workload_of_another_version_has_no_tokens():
    assert row_of(measure([make_record(workload="gone")])).family.tokens_per_sample == 0


def test_lengths_are_compared_by_tokens():
    own = {"backend": "ring", "num_ranks": 2, **GPT}
    made = [
        make_record(block=block, samples_per_second=rate + block / 10, sequence_length=length, **own)
        for length, rate in ((64, 100.0), (128, 60.0))
        for block in range(8)
    ]
    study = measure(made, variants=Variants(axes={"sequence_length": [64, 128]}))
    (contrast,) = study.once(study_contrasts).found
    assert (contrast.contender.name, contrast.reference.name) == ("ring, 128 tokens", "ring, 64 tokens")
    assert contrast.verdict == "faster"
    assert contrast.ratio.center == pytest.approx(1.2, rel=0.01)
