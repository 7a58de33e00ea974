"""Frameworks that get no memory, in their own words: what was asked for and what there was, in one line."""

import numpy as np
import pytest

from dlscale.benchmarks.rank import out_of_memory as module
from dlscale.benchmarks.rank.out_of_memory import out_of_memory

TORCH_1_8 = (
    "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; "
    "3.03 GiB free; 1.24 GiB reserved in total by PyTorch)"
)
TORCH_2_1 = (
    "CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB of which 0 bytes is free. "
    "Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated."
)
TORCH_2_6 = (
    "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB is "
    "free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory 9.08 GiB is "
    "allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated."
)
COMPILED = f"backend='inductor' raised:\nOutOfMemoryError: {TORCH_2_6}\n\nSet TORCHDYNAMO_VERBOSE=1"
HIP = (
    "HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 287.98 GiB of which 275.86 GiB is "
    "free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated by PyTorch, with 17.00 MiB allocated in "
    "private pools (e.g., HIP Graphs), and 54.99 MiB is reserved by PyTorch but unallocated."
)
XPU = (
    "XPU out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 16.48 GiB of which 16.07 GiB is "
    "free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
)
XPU_2024 = (
    "XPU out of memory. Tried to allocate 1.71 GiB (GPU 0; 15.56 GiB total capacity; 176.00 MiB already allocated; "
    "176.00 MiB reserved in total by PyTorch)"
)
NCCL = "NCCL error: Cuda failure 2 'out of memory'"
DRIVER = (
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call"
)
TENSORFLOW = (
    "Graph execution error:\n\nOOM when allocating tensor with shape[64,2016,9,9] and type float on "
    "/job:localhost/replica:0/task:0/device:{device} by allocator {device}_bfc\n\t [[{{{{node gradients}}}}]]"
)
XLA = "Out of memory while trying to allocate 4294967296 bytes."
TORCH_HOST = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4503599627370496 bytes. Error code 12 (Cannot allocate memory)"
)
NUMPY = "Unable to allocate 8.00 PiB for an array with shape (1125899906842624,) and data type float64"
SMALLER = "; give a smaller --batch, or another --preset or precision"
ON_HOST = f"2 GiB of this machine's 4 GiB were free afterwards{SMALLER}, or fewer ranks per node"
UNTOLD = "TensorFlow does not tell what was free"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            TORCH_1_8,
            f"2.26 GiB were asked for; 3.03 GiB of 6 GiB were free, this rank's tensors had 0.763 GiB{SMALLER}",
        ),
        (
            TORCH_2_1,
            f"1.7 GiB were asked for; 0 GiB of 6 GiB were free, this rank's tensors had 2.93 GiB{SMALLER}",
        ),
        *(
            (
                text,
                "22.8 GiB were asked for; 12.7 GiB of 31.5 GiB were free, this rank's tensors had 9.08 GiB"
                + SMALLER,
            )
            for text in (TORCH_2_6, COMPILED)
        ),
        (
            HIP,
            f"0.00195 GiB were asked for; 276 GiB of 288 GiB were free, this rank's tensors had 0.993 GiB{SMALLER}",
        ),
        (
            XPU,
            f"16 GiB were asked for; 16.1 GiB of 16.5 GiB were free, this rank's tensors had 0 GiB{SMALLER}",
        ),
        (
            XPU_2024,
            "1.71 GiB were asked for; torch does not tell what was free of 15.6 GiB, this rank's tensors had "
            f"0.172 GiB{SMALLER}",
        ),
        *(
            (text, f"the driver tells neither what was asked for nor what was free{SMALLER}")
            for text in (DRIVER, NCCL)
        ),
        (TENSORFLOW.format(device="GPU:0"), f"0.0389 GiB were asked for; {UNTOLD}{SMALLER}"),
        (XLA, f"4 GiB were asked for; {UNTOLD}{SMALLER}"),
    ],
)
def test_a_gpu_that_is_full(text, said, monkeypatch):
    monkeypatch.setattr(module, "gpu_module", lambda _: None)
    assert out_of_memory(RuntimeError(text)) == f"out of GPU memory: {said}"


def test_tensorflow_is_asked_what_it_has(monkeypatch):
    class Gpu:
        def peak_memory(self):
            return {"allocated_bytes": 3 << 30}

    monkeypatch.setattr(module, "gpu_module", lambda _: Gpu())
    assert f"{UNTOLD}, this rank's tensors had at most 3 GiB;" in out_of_memory(RuntimeError(XLA))


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (RuntimeError(TORCH_HOST), "4.19e+06 GiB were asked for; "),
        (MemoryError(NUMPY), "8.39e+06 GiB were asked for; "),
        (RuntimeError(TENSORFLOW.format(device="CPU:0")), "0.0389 GiB were asked for; "),
        (OSError(12, "Cannot allocate memory"), ""),
        (MemoryError(), ""),
    ],
)
def test_a_machine_that_is_full(error, asked, tmp_path, monkeypatch):
    known = tmp_path / "meminfo"
    known.write_text("MemTotal:        4194304 kB\nMemFree:    1 kB\nMemAvailable:    2097152 kB\n")
    monkeypatch.setattr(module, "MEMINFO", known)
    assert out_of_memory(error) == f"out of memory: {asked}{ON_HOST}"
    known.unlink()
    assert out_of_memory(error).startswith(f"out of memory: {asked}this system does not tell what was free; ")


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), np.linalg.LinAlgError("singular")])
def test_other_errors_are_theirs(error):
    assert out_of_memory(error) is None
