"""What other programs use."""

from dlscale.benchmarks.launch import other_load
from dlscale.benchmarks.launch.other_load import OtherLoad, read_other_load


def test_a_load_in_words():
    busy = OtherLoad(share=0.4, num_cores=2, num_gpu_processes=3)
    assert busy.text == "other programs use 0.8 of 2 cores, 3 processes use its GPUs"
    assert not OtherLoad(share=0.0, num_cores=2, num_gpu_processes=3).quiet
    assert OtherLoad(share=0.01, num_cores=2).quiet


def test_a_reading_of_this_machine(monkeypatch):
    monkeypatch.setattr(other_load, "READING_SECONDS", 0.05)
    load = read_other_load(gpus=True)
    assert 0 <= load.share <= 1.5
    assert load.num_cores > 0
