"""A signal that stops dlscale always takes effect, at whatever moment it comes."""

import random
import signal
import subprocess
import sys
import time

import pytest

from dlscale.benchmarks.launch.interrupts import _STOPPING, interruptible, undisturbed

LIMIT_SECONDS = 5.0

# Starts one process after the other, and says so each time that a signal has stopped it. Libraries have hooks at forks,
# which drop every exception.
STARTER = """
import os, time
from dlscale.benchmarks.launch.interrupts import caught, interruptible
from dlscale.benchmarks.launch.processes import running
os.register_at_fork(before=lambda: time.sleep(0.01), after_in_parent=lambda: time.sleep(0.01))
with interruptible(), open(os.devnull, "wb") as nowhere:
    print("ready", flush=True)
    while True:
        try:
            while True:
                with running(["/bin/sleep", "0.02"], environment=os.environ, output=nowhere) as process:
                    process.wait()
        except KeyboardInterrupt:
            caught()
            print("stopped", flush=True)
"""
# A signal that comes while an object goes, where Python drops every exception.
DROPPED = """
import os, signal, sys, time
from dlscale.benchmarks.launch.interrupts import interruptible, undisturbed
class Going:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        for _ in range(100): pass
try:
    with interruptible():
        Going()
        for _ in range(100):
            if sys.argv[2] == "blocks":
                with undisturbed():
                    time.sleep(0.05)
            time.sleep(0.05)
except KeyboardInterrupt as error:
    time.sleep(1)  # it is not raised again
    sys.exit(128 + error.args[0])
"""


def python(code, *words, **known):
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True, restore_signals=True, **known
    )


@pytest.fixture(autouse=True)
def hears_interrupts():
    """What a background job of a shell starts is deaf to SIGINT, unless its parent handles it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "between"), [*((number, "nothing") for number in _STOPPING), (signal.SIGTERM, "blocks")]
)
def test_a_signal_whose_exception_is_dropped_is_raised_again_until_it_is_caught(number, between):
    """Also between blocks that nothing disturbs, which come more often than it is raised."""
    begin = time.monotonic()
    with python(DROPPED, str(int(number)), between, stderr=subprocess.DEVNULL) as program:
        assert program.wait(timeout=20) == 128 + number
    assert time.monotonic() - begin < LIMIT_SECONDS + 3


@pytest.mark.parametrize("num_tries", [10, pytest.param(300, marks=pytest.mark.nightly)])
def test_a_signal_at_any_moment_of_a_start_takes_effect(num_tries):
    moments = random.Random(num_tries)  # noqa: S311 - moments
    with python(STARTER) as program:
        try:
            lines = iter(program.stdout.readline, "")
            assert next(lines) == "ready\n"
            for number in range(num_tries):
                time.sleep(moments.uniform(0.0, 0.1))
                begin = time.monotonic()
                program.send_signal(signal.SIGINT if number % 2 else signal.SIGTERM)
                assert next(lines) == "stopped\n"
                assert time.monotonic() - begin < LIMIT_SECONDS
        finally:
            program.kill()


@pytest.mark.parametrize("moment", range(1, 7))
def test_a_signal_while_handlers_change_leaves_none_of_them_behind(moment, monkeypatch):
    """There are three: the first calls take effect where a block begins, the others where it ends."""
    set_one, num_calls = signal.signal, 0

    def interrupted(number, handler):
        nonlocal num_calls
        num_calls += 1
        set_one(number, handler)
        if num_calls == moment:
            raise KeyboardInterrupt(number)

    with interruptible():
        before = [signal.getsignal(number) for number in _STOPPING]
        with monkeypatch.context() as patched:
            patched.setattr(signal, "signal", interrupted)
            with pytest.raises(KeyboardInterrupt), undisturbed():
                pass
        assert [signal.getsignal(number) for number in _STOPPING] == before
