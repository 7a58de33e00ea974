"""How long a launch has been silent."""

import os
import time

import pytest

from dlscale.benchmarks.launch.supervisor import Watchdog, last_heartbeat


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_jumps_makes_no_silence(tmp_path, jump):
    """File times follow the clock that people set; the silence does not."""
    path = tmp_path / "rank-00000.jsonl"
    path.write_text("{}\n")
    silence = Watchdog()
    silence.seconds(last_heartbeat(tmp_path))
    now = time.time() + jump
    os.utime(path, (now, now))
    assert silence.seconds(last_heartbeat(tmp_path)) < 1.0
    time.sleep(0.05)
    assert 0.05 <= silence.seconds(last_heartbeat(tmp_path)) < 1.0


def test_without_any_rank_it_counts_from_the_beginning(tmp_path):
    silence = Watchdog()
    time.sleep(0.05)
    assert 0.05 <= silence.seconds(last_heartbeat(tmp_path)) < 1.0
