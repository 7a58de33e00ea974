"""GPUs of this node, as the drivers' own tools list them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dlscale.benchmarks.system_probe.host import Host

NVIDIA = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
AMD = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; memory in GiB."""

    model: str
    memory_gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """A node's GPUs by the model that most of them are of. `told_by` is the command that listed them."""

    count: int
    gpu: Gpu
    told_by: str
    others: tuple[str, ...] = ()  # models of the rest, which are counted too


def read_gpus(host: Host) -> Gpus | None:
    """The GPUs of this node; None if no tool lists any."""
    tools: tuple[tuple[tuple[str, ...], Callable[[str], list[Gpu]]], ...] = (
        (NVIDIA, parse_nvidia),
        (AMD, parse_amd),
    )
    for command, parse in tools:
        if found := parse(host.run(*command) or ""):
            (most, _), *rest = Counter(found).most_common()
            others = sorted({gpu.model for gpu, _ in rest} - {most.model})
            return Gpus(count=len(found), gpu=most, told_by=" ".join(command), others=tuple(others))
    return None


def parse_nvidia(output: str) -> list[Gpu]:
    """GPUs in lines such as "NVIDIA A100-SXM4-40GB, 40960" (MiB)."""
    found = []
    for line in output.splitlines():
        model, comma, memory = line.rpartition(",")
        if comma and model.strip():
            mebibytes = memory.strip()
            size = int(mebibytes) / 1024 if mebibytes.isdigit() and int(mebibytes) else None
            found.append(Gpu(model=model.strip(), memory_gib=size))
    return found


def parse_amd(output: str) -> list[Gpu]:
    """GPUs in rocm-smi's JSON, which has one card per GPU that frameworks see: two per MI250X."""
    try:
        cards = json.loads(output[output.index("{") :])  # warnings may come before it
    except ValueError:
        return []
    found = []
    for name, card in cards.items():
        if name.startswith("card") and isinstance(card, dict):
            told = {
                key.lower(): str(text) for key, text in card.items()
            }  # "Card series", later "Card Series"
            memory = told.get("vram total memory (b)", "")
            size = int(memory) / 2**30 if memory.isdigit() and int(memory) else None
            model = told.get("card series") or told.get("card model") or "AMD GPU"
            found.append(Gpu(model=model, memory_gib=size))
    return found
