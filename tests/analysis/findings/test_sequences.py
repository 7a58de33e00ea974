"""Where samples are sequences, rates are shown in tokens beside samples, and lengths are compared by tokens."""

import pytest

from dlscale.analysis.measured import measure
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
    screen = screen_text(study)
    assert "tokens/s" in screen
    assert "Throughput: 11808 tokens/s." in screen  # 92.25 samples/s
    assert "8 sequences of 128 tokens per rank and step" in screen


def test_images_have_no_tokens():
    study = measure(records())
    assert "token" not in screen_text(study) + table_text(study)
    assert {row["tokens_per_second"] for row in data_of(study)["rows"]} == {None}


def test_a_workload_of_another_version_has_no_tokens():
    assert row_of(measure([make_record(workload="gone")])).family.tokens_per_sample == 0
