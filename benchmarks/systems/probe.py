"""A draft of a system's file: answers of commands about this node and its scheduler, in the words of draft.toml.j2.

Comments with TODO ask for what no command knows.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import resources
from typing import Any, NamedTuple

import jinja2
import psutil

from dlscale.base.strings import LONGEST_NAME, redact, visible
from dlscale.benchmarks.systems.system import System

COMMAND_SECONDS = 30.0
# Variables by which centres name folders for large files.
SCRATCH = ("SCRATCH", "PSCRATCH", "MEMBERWORK", "WORK")
Ask = Callable[..., str]  # (program, *arguments) -> what the command printed, empty if it failed
Facts = dict[str, Any]  # None where a fact is unknown


class NodeKind(NamedTuple):
    """Nodes that are alike, as the scheduler describes them."""

    cores: int
    threads_per_core: int | None
    memory: str | None
    num_gpus: int
    gpu_model: str | None
    ranks: int  # to begin with: one per GPU, else one per socket
    reserved_cores: int = 0


def probe_machine() -> str:
    """The draft for the machine that this runs on. Starts nothing on other nodes, and submits nothing."""
    problems: list[str] = []

    def ask(*words: str) -> str:
        if not shutil.which(words[0]):
            return ""
        options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "check": True}
        options |= {"timeout": COMMAND_SECONDS, "env": {**os.environ, "LC_ALL": "C"}}
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, **options)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or getattr(error, "output", "") or ""
            problems.append(redact(f"{error} {str(said).strip()}"))
            return ""
        return visible(done.stdout or done.stderr)

    return draft(read_machine(ask), problems)


def read_machine(ask: Ask) -> Facts:
    """What commands say, by sections of a system's file."""
    # Of the node's name, numbers and the user's part differ from node to node and from user to user.
    host = re.sub(r"\d+|<user>", "*", redact(platform.node()))
    return {
        "host": host if re.search("[A-Za-z]", host) else None,
        "scratch": next((name for name in SCRATCH if os.environ.get(name)), None),
        "node": _node(ask),
        "devices": _gpus(ask),
        "cluster": next((found for found in (_slurm(ask), _pbs(ask)) if found["partitions"]), {}),
    }


def draft(machine: Facts, problems: list[str]) -> str:
    """The text of the file, which is a valid system already."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - no HTML
    environment.filters |= {
        "toml": _toml,
        "key": lambda name: name if re.fullmatch("[A-Za-z0-9_-]+", name) else _toml(name),
        "plain": lambda text: "".join(char if char.isprintable() else " " for char in text),
    }
    template = resources.files("dlscale.benchmarks.systems").joinpath("draft.toml.j2").read_text("utf-8")
    name = re.sub("[^a-z0-9]+", "-", (machine["cluster"].get("name") or "").lower())[:LONGEST_NAME].strip("-")
    today = datetime.now(UTC).date().isoformat()
    text = environment.from_string(template).render(**machine, name=name, problems=problems, today=today)
    System.model_validate(tomllib.loads(text))
    return text


def _toml(value: str | int) -> str:
    """A number or a string in TOML, whose strings are those of JSON."""
    return json.dumps(value, ensure_ascii=False)


def _node(ask: Ask) -> Facts:
    """Cores by lscpu, whether or not this process may use them. Those of different numbers of threads share none."""
    rows = re.findall(r"^\d+,(\d*),(\d*)$", ask("lscpu", "-p=CPU,CORE,SOCKET"), re.MULTILINE)
    threads = len(rows) or os.cpu_count() or 1
    cores = len(set(rows)) or threads
    model = re.search(r"^(?:BIOS )?Model name:\s*(\S.*)", ask("lscpu"), re.MULTILINE)
    return {
        "cores": cores,
        "threads_per_core": threads // cores if rows and threads % cores == 0 else None,
        "memory": _gibibytes(psutil.virtual_memory().total),
        "cpu_model": " ".join(model[1].split()) if model else None,
    }


def _gpus(ask: Ask) -> Facts:
    """NVIDIA's GPUs of this node, those of the most frequent model."""
    output = ask("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    models = Counter(line.rpartition(",")[::2] for line in output.splitlines() if "," in line)
    for (model, mebibytes), count in models.most_common(1):
        memory = _gibibytes((_number(mebibytes.strip()) or 0) << 20)  # [N/A] where it is the node's
        return {"per_node": count, "model": model, "memory": memory}
    return {}


def _slurm(ask: Ask) -> Facts:
    # Lines such as "ClusterName             = cori"; what is not set is (null).
    config = dict(re.findall(r"^(\w+)\s+= (.*\S)", ask("scontrol", "show", "config"), re.MULTILINE))
    rows = _rows(ask("scontrol", "show", "partition", "-o")) if config else []
    nodes = _rows(ask("scontrol", "show", "node", "-o")) if rows else []
    kinds = [(node.get("Partitions", "").split(","), _slurm_kind(node)) for node in nodes]
    partitions: dict[str, Facts] = {}
    for row in rows:
        name = row.get("PartitionName")
        own = Counter(kind for names, kind in kinds if kind and name in names)
        # Slurm's total counts nodes that will come later (State=FUTURE); they are not among those described.
        num_nodes = own.total() or _number(row.get("TotalNodes"))
        if name and num_nodes and row.get("State") == "UP":
            gpus = own.most_common(1)[0][0].num_gpus if own else 0
            directives = [f"--partition={name}", *([f"--gpus-per-node={gpus}"] if gpus else [])]
            limits = (row.get("MaxNodes"), row.get("MaxTime"))
            is_default = row.get("Default") == "YES"
            partitions[name] = _partition(num_nodes, own, limits, directives, is_default=is_default)
    return {
        "scheduler": "slurm",
        "launcher": "srun",
        "partitions": partitions,
        "name": config.get("ClusterName"),
        "connects": config.get("MpiDefault", "none") != "none",
    }


# In "gpu:a100:4(S:0-3),craynetwork:4" after what is in parentheses is gone: gres.conf(5).
_GPUS = re.compile(r"(?:^|,)gpu(?::(?!no_consume)([^:,]*[A-Za-z][^:,]*))?(?::(?:no_consume)?)*(\d{0,6})")


def _slurm_kind(row: dict[str, str]) -> NodeKind | None:
    sockets, per_socket = _number(row.get("Sockets")), _number(row.get("CoresPerSocket"))
    if not sockets or not per_socket:
        return None
    gpus = _GPUS.findall(re.sub(r"\([^)]*\)", "", row.get("Gres", "")))
    num_gpus = sum(int(count or 1) for _, count in gpus)
    return NodeKind(
        cores=sockets * per_socket,
        threads_per_core=_number(row.get("ThreadsPerCore")),
        memory=_gibibytes((_number(row.get("RealMemory")) or 0) << 20),  # 1 MiB where a site does not set it
        num_gpus=num_gpus,
        gpu_model=next((model for model, _ in gpus if model), None),
        ranks=num_gpus or sockets,
        reserved_cores=_number(row.get("CoreSpecCount")) or 0,
    )


def _pbs(ask: Ask) -> Facts:
    nodes = [row for _, row in _blocks(ask("pbsnodes", "-a")) if "offline" not in row.get("state", "")]
    kinds = Counter(filter(None, map(_pbs_kind, nodes)))
    partitions = {
        name: _partition(
            *(kinds.total(), kinds),  # PBS does not say which nodes a queue has
            limits=(row.get("resources_max.nodect"), row.get("resources_max.walltime")),
            directives=[f"-q {name}"],
        )
        for name, row in (_blocks(ask("qstat", "-Q", "-f")) if kinds else ())
        if (row.get("queue_type"), row.get("enabled"), row.get("started")) == ("Execution", "True", "True")
    }
    # PALS's mpiexec prints "mpiexec version 1.8.0 revision ...".
    launcher = "pals" if re.match(r"mpiexec version \d", ask("mpiexec", "--version")) else "mpiexec"
    return {"scheduler": "pbs", "launcher": launcher, "partitions": partitions, "connects": True}


def _pbs_kind(row: dict[str, str]) -> NodeKind | None:
    cores, num_gpus = (_number(row.get(f"resources_available.{name}")) or 0 for name in ("ncpus", "ngpus"))
    memory = _gibibytes((_number(row.get("resources_available.mem", "").removesuffix("kb")) or 0) << 10)
    return NodeKind(cores, None, memory, num_gpus, None, num_gpus or 1) if cores else None


def _partition(
    num_nodes: int,
    kinds: Counter[NodeKind],
    limits: tuple[str | None, str | None],
    directives: list[str],
    *,
    is_default: bool = False,
) -> Facts:
    """A partition or queue that takes jobs. `limits`: nodes and wall time of a job, as the scheduler prints them."""
    most, clock = _number(limits[0]), re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,6}):(\d\d):\d\d", limits[1] or "")
    days, hours, minutes = (int(word or 0) for word in clock.groups()) if clock else (0, 0, 0)
    minutes += 60 * (24 * days + hours)
    return {
        "is_default": is_default,
        "kinds": [kind for kind, _ in kinds.most_common()],
        "directives": directives,
        "num_nodes": num_nodes,
        "max_nodes": most if most and most < num_nodes else None,
        "max_walltime": None if not minutes else f"{minutes} min" if minutes % 60 else f"{minutes // 60} h",
    }


def _rows(output: str) -> list[dict[str, str]]:
    """Name=value of each line, the first of a name: OS and Reason, which come later, may have more in them."""
    lines = (re.findall(r"\b(\w+)=(\S*)", line) for line in output.splitlines())
    return [dict(reversed(pairs)) for pairs in lines]


def _blocks(output: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Name and attributes of each block: a line with the name, then indented lines `attribute = value`."""
    for block in re.split(r"^(?=\S)", output, flags=re.MULTILINE):
        name, *lines = block.splitlines() or [""]
        if name:
            pairs = (line.strip().partition(" = ") for line in lines)
            yield name.removeprefix("Queue: ").strip(), {key: value for key, _, value in pairs}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) <= 18 else None


def _gibibytes(num_bytes: float) -> str | None:
    """As in 251.4 GiB; None where nothing is known, or nothing is left of it."""
    text = f"{num_bytes / 2**30:.1f}"
    return f"{text} GiB" if float(text) else None
