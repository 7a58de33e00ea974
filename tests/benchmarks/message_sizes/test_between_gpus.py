"""Libraries between GPUs, as far as a machine without a GPU can say."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dlscale.benchmarks.cli import main
from dlscale.benchmarks.message_sizes import calls


@pytest.mark.parametrize("backend", ["nccl", "xccl"])
def test_without_a_gpu(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(["collectives", "--backends", backend, "--results", str(tmp_path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert caught.value.code == 1
    assert f"({backend}: " in line


@pytest.mark.parametrize(("backend", "kind"), [("nccl", "cuda"), ("xccl", "xpu")])
def test_a_rank_moves_what_lies_on_its_own_gpu(
    backend: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And each call is waited for."""
    done: list[Any] = []
    device = torch.device(kind, 1)
    gpus = SimpleNamespace(
        take=done.append,
        current=lambda: device,
        names=lambda: ["first GPU", "second GPU"],
        exchange_library=lambda: (backend, "RCCL 2.22.3"),
    )
    monkeypatch.setattr("dlscale.models.frameworks.gpu_module", lambda _: gpus)
    monkeypatch.setattr(torch, kind, SimpleNamespace(synchronize=done.append))
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda name, **group: done.append((name, group))
    )
    library = calls.LIBRARIES[backend](calls.Rank(5, 8, 1, "single", tmp_path))
    (taken, (name, group)) = done
    assert (taken, name, group["device_id"], group["rank"]) == (1, backend, device, 5)
    assert library.description == f"RCCL 2.22.3 of torch {torch.__version__} on second GPU"
    library.whole(lambda: done.append("called"))()
    assert done[2:] == ["called", device]
