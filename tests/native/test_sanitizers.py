"""The programs of test_native.py under the compiler's sanitizers, and proof that these would find something.

The thread sanitizer looks at every test-all; memory and undefined behaviour are left to the night, as are the proofs,
for which all is compiled once more.
"""

import shutil
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]

pytestmark = [pytest.mark.requires("sanitizers"), pytest.mark.timeout(900), pytest.mark.slow]

# Programs of ranks that are threads.
RANKS = {
    "sequences_test": (12, 150),
    "gradients_test": (20,),
    "failures_test": (),
    "exchange_test": (3,),
}


def test_no_race_is_found(variant):
    programs = variant("thread", *RANKS, sanitizer="thread")
    for name, arguments in RANKS.items():
        programs.check(name, *arguments)


@pytest.mark.nightly
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_nothing_is_found_by_more_of_them(variant, sanitizer):
    programs = variant(f"all-{sanitizer}", sanitizer=sanitizer)
    programs.check("kernels_test")
    programs.check("sequences_test", 8, 150, "portable")
    programs.check("sequences_test", 16, 150)
    programs.check("pauses_test", 24, 150)
    programs.check("gradients_test", 20)
    programs.check("failures_test")
    programs.check("exchange_test", 5)


# Each takes away what keeps ranks apart. If the sources no longer read like this, find the new words: a proof
# that cannot fail is none.
MUTANTS = {
    "announcements do not publish": (
        "node/waiting.cpp",
        "flag->value.store(value, std::memory_order_release)",
        "flag->value.store(value, std::memory_order_relaxed)",
    ),
    "lines are read before they are written": (
        "node/inline.hpp",
        "waiting_.until(&other, num_operations_ + 1, q);",
        "waiting_.until(&other, num_operations_, q);",
    ),
    "slots are published again before they are taken": (
        "node/flags.hpp",
        "constexpr std::size_t kNumSlots = 5;",
        "constexpr std::size_t kNumSlots = 2;",
    ),
    "the root of a broadcast runs ahead": (
        "node/staged.cpp",
        "if (number_ >= kAhead) wait_for_published(number_ - kAhead);",
        "",
    ),
    "results are collected before they are there": (
        "node/staged.cpp",
        "waiting_.until(&memory_.control_block(owner).reduced, number_ + 1, owner);",
        "waiting_.until(&memory_.control_block(owner).reduced, number_, owner);",
    ),
    "ranks do not meet": (
        "node/rendezvous.hpp",
        "waiting_.until(&other, num_meetings_, q);",
        "",
    ),
    "ranks leave a rendezvous too early": (
        "node/rendezvous.hpp",
        "waiting_.until(&memory_.control_block(q).closed, num_meetings_, q);",
        "",
    ),
    "times are read before they are there": (
        "node/online_tuner.cpp",
        "waiting_.until(&block.timed, number + 1, q);",
        "",
    ),
}


@pytest.fixture(scope="module")
def mutated(variant, tmp_path_factory):
    """mutated(file, old, new): the programs under the thread sanitizer, from a copy with one change."""
    copy = TOP / "build/native/mutants/src"
    original = tmp_path_factory.mktemp("ring") / "src"
    shutil.copytree(TOP / "collectives/ring/src", original)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)
    programs = variant("mutants", "pauses_test", sanitizer="thread", sources=copy)

    def mutate(name, old, new):
        text = (original / name).read_text()
        assert old in text, f"{name} reads otherwise now"
        (copy / name).write_text(text.replace(old, new))
        programs.build("pauses_test")
        (copy / name).write_text(text)
        return programs

    return mutate


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_found(mutated, name):
    done = mutated(*MUTANTS[name]).run("pauses_test", 24, 150)
    assert done.returncode != 0, done.stdout
    found = ("data race", "expected 0x", "gave another length")
    assert any(text in done.stdout for text in found), done.stdout[-3000:]
