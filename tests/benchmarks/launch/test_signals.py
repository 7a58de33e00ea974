"""A signal that stops dlscale takes effect at whatever moment it comes, and leaves nothing half done."""

import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.signals import STOPPING

LIMIT_SECONDS = 5.0

# Starts one process after the other, and says so each time that a signal has stopped it. Libraries have hooks at forks,
# which drop every exception.
STARTER = """
import os, time
from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.supervisor import running, wait
os.register_at_fork(before=lambda: time.sleep(0.01), after_in_parent=lambda: time.sleep(0.01))
print("ready", flush=True)
with open(os.devnull, "wb") as nowhere:
    while True:
        try:
            with signals.handled("dlscale: interrupted"), signals.deferred():
                print("goes on", flush=True)
                while True:
                    with running(["/bin/sleep", "0.02"], environment=os.environ, output=nowhere) as process:
                        wait(process)
        except KeyboardInterrupt:
            print("stopped", flush=True)
"""
# Computes, in code that drops every exception, with a process that it started.
COMPUTING = """
import subprocess
from dlscale.benchmarks.launch import signals
class Going:
    def __del__(self):
        sum(range(100000))
with signals.handled("dlscale: interrupted"):
    subprocess.Popen(["/bin/sleep", "60"])
    print("ready", flush=True)
    while True:
        Going()
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


@pytest.mark.parametrize("number", STOPPING)
def test_a_program_that_waits_for_nothing_ends_at_once_with_what_it_started(number):
    with python(COMPUTING, stderr=subprocess.PIPE) as program:
        assert program.stdout.readline() == "ready\n"
        (child,) = psutil.Process(program.pid).children()
        program.send_signal(number)
        assert program.wait(timeout=LIMIT_SECONDS) == 128 + number
        assert program.stderr.read() == "\ndlscale: interrupted\n"
    psutil.wait_procs([child], timeout=LIMIT_SECONDS)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("num_tries", [10, pytest.param(300, marks=pytest.mark.nightly)])
def test_a_signal_at_any_moment_of_a_start_takes_effect(num_tries):
    moments = random.Random(num_tries)  # noqa: S311 - moments
    with python(STARTER) as program:
        try:
            lines = iter(program.stdout.readline, "")
            assert next(lines) == "ready\n"
            for number in range(num_tries):
                assert next(lines) == "goes on\n"
                time.sleep(moments.uniform(0.0, 0.1))
                begin = time.monotonic()
                program.send_signal(signal.SIGINT if number % 2 else signal.SIGTERM)
                assert next(lines) == "stopped\n"
                assert time.monotonic() - begin < LIMIT_SECONDS
        finally:
            program.kill()


def test_what_is_deferred_is_done_before_the_signal_is_raised():
    done = []

    def work():
        with signals.deferred():
            with signals.deferred():
                signal.raise_signal(signal.SIGTERM)
                done.append("inside")
            done.append("between")

    with signals.handled("test"), pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert caught.value.args == (signal.SIGTERM,)
    assert done == ["inside", "between"]


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.handled("test"):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
