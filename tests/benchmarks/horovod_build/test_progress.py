"""A build by its output: how far it is, what is told meanwhile, and which step is blamed."""

import pytest

from dlscale.benchmarks.horovod_build.progress import BuildProgress, Lines

TORCH = "  [ 34%] Building CXX object horovod/torch/CMakeFiles/pytorch.dir/__/common/half.cc.o"
TENSORFLOW = "  [ 35%] Building CXX object horovod/tensorflow/CMakeFiles/tensorflow.dir/__/common/half.cc.o"
LINK = "  [ 96%] Linking CXX shared library /tmp/build/lib/horovod/tensorflow/mpi_lib.cpython-311.so"
RULE = "  gmake[2]: *** [horovod/torch/CMakeFiles/pytorch.dir/build.make:"


def read(*lines: str) -> BuildProgress:
    progress = BuildProgress()
    for line in lines:
        progress.read(f"{line}\n")
    return progress


def test_how_far_the_build_is():
    assert (read("Collecting horovod").step, read("Collecting horovod").percent) == ("source package", 0)
    assert read("  running build_ext").step == "configure"
    assert (read(TORCH).step, read(TORCH).percent) == ("compile torch", 34)
    assert (read(TORCH, TENSORFLOW).step, read(TORCH, TENSORFLOW).percent) == ("compile TensorFlow", 35)
    assert (read(LINK).step, read(LINK, "  [ 97%] Built target tensorflow").percent) == ("link", 97)


@pytest.mark.parametrize(
    ("lines", "step", "reason"),
    [
        (
            ["ERROR: No matching distribution found for horovod==0.28.1"],
            "source package",
            "No matching distribution found for horovod==0.28.1",
        ),
        (
            [
                "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)'",
                "ERROR: No matching distribution found for horovod",
            ],
            "source package",
            "the package registry cannot be reached; a build needs the network, a kept wheel does not",
        ),
        (
            ["running build_ext", "CMake Error at FindMPI.cmake:3: no MPI", "ERROR: Failed building wheel"],
            "configure",
            "FindMPI.cmake:3: no MPI",
        ),
        (
            # TensorFlow's compiler was started last, torch's failed.
            [
                TORCH,
                "half.cc:1:10: fatal error: mpi.h: No such file",
                TENSORFLOW,
                f"{RULE}76: horovod/torch/CMakeFiles/pytorch.dir/half.cc.o] Error 1",
                "ERROR: Failed building",
            ],
            "compile torch",
            "fatal error: mpi.h: No such file",
        ),
        (
            [
                LINK,
                "/usr/bin/ld: cannot find -lmpi",
                "gmake[2]: *** [build.make:9: /tmp/h/mpi_lib.so] Error 1",
            ],
            "link",
            "cannot find -lmpi",
        ),
        ([TENSORFLOW], "compile TensorFlow", "it printed no error"),
    ],
)
def test_which_step_failed(lines: list[str], step: str, reason: str):
    progress = read(*lines)
    assert (progress.failed_step, progress.reason) == (step, reason)
    assert progress.failed == any("***" in line for line in lines)


def test_lines_now_and_then():
    seconds = iter([0, 1, 5, 22, 23, 30])
    told: list[str] = []
    lines = Lines(told.append, now=lambda: float(next(seconds)))
    lines.tell("compiling")  # at 1 s
    lines.at(read(TORCH))  # at 5 s
    lines.at(read(TORCH))  # at 22 s, told at 23 s
    lines.at(read(LINK))
    assert told == ["compiling", " 34 %  compile torch"]
