"""Libraries between GPUs, as far as a machine without one can say: their names, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.launch.probe import SeenGpus
from dlscale.benchmarks.message_sizes import calls
from dlscale.benchmarks.message_sizes.peers import choose_peers, with_libraries

LIBRARIES = {"nccl": "RCCL 2.22.3", "xccl": "oneCCL"}


def seeing(backend: str, num_gpus: int) -> Callable[[], list[SeenGpus]]:
    gpus = SeenGpus(
        framework="torch",
        version="2.13.0",
        names=["A GPU"] * num_gpus,
        libraries={},
        backend=backend,
        library=LIBRARIES[backend],
        without_tf32=[],
    )
    return lambda: [gpus]


@pytest.mark.parametrize("backend", LIBRARIES)
def test_a_library_is_called_what_it_is(backend: str):
    """On GPUs of AMD, nccl is torch's name for RCCL."""
    peers = with_libraries(choose_peers(["gloo", backend]), 2, seeing(backend, 2))
    assert [peer.title for peer in peers][1:] == [f"{LIBRARIES[backend]} (torch.distributed)"]


def test_more_ranks_than_gpus():
    with_libraries(choose_peers(["gloo"]), 4, seeing("nccl", 2))
    with pytest.raises(
        UsageError, match=r"torch sees 2 GPUs, one each for RCCL 2.22.3; give at most --ranks 2"
    ):
        with_libraries(choose_peers(["nccl", "gloo"]), 4, seeing("nccl", 2))


@pytest.mark.parametrize("backend", LIBRARIES)
def test_without_a_gpu(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    nothing = SimpleNamespace(
        names=list,
        version=lambda: "2.13.0+cpu",
        libraries=dict,
        exchange_library=lambda: ("", ""),
        without_tf32=list,
    )
    for module in ("models.frameworks", "benchmarks.launch.probe"):
        monkeypatch.setattr(f"dlscale.{module}.gpu_module", lambda _: nothing)
    with pytest.raises(SystemExit) as caught:
        main(["collectives", "--backends", backend, "--results", str(tmp_path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert caught.value.code == 1
    assert f"({backend}: backend {backend} needs a GPU; torch 2.13.0+cpu sees none" in line


@pytest.mark.parametrize(("backend", "kind"), [("nccl", "cuda"), ("xccl", "xpu")])
def test_a_rank_moves_what_lies_on_its_own_gpu(backend: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    done: list[Any] = []
    gpus = SimpleNamespace(
        take=done.append,
        current=lambda: torch.device(kind, 1),
        names=lambda: ["first GPU", "second GPU"],
        exchange_library=lambda: (backend, LIBRARIES[backend]),
    )
    monkeypatch.setattr("dlscale.models.frameworks.gpu_module", lambda _: gpus)
    monkeypatch.setattr(torch, kind, SimpleNamespace(synchronize=done.append))
    monkeypatch.setattr(calls, "on_devices", lambda *given, title: [*given, title])
    start: Any = calls.START[backend]
    _, _, name, device, wait, title = start(None, calls.RankNumbers(5, 8, 1))
    wait()
    assert (name, done) == (backend, [1, torch.device(kind, 1)])
    assert device == torch.device(kind, 1)
    assert title == f"{LIBRARIES[backend]} of torch {torch.__version__} on second GPU"
