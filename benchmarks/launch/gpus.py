"""GPUs of an environment: asked for only where a study wants them, because a framework must be started to know.

python -m dlscale.benchmarks.launch.gpus FRAMEWORK ...     prints what each of the frameworks sees as JSON
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.launch import asking
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.study.plan import Plan
from dlscale.benchmarks.systems.start import Installation
from dlscale.models.frameworks import GPU_HELP, check_tf32, gpu_module


class SeenGpus(Frozen):
    """The GPUs that one framework sees."""

    framework: Name
    version: Text
    names: list[Text]  # in the driver's order: the number is the local rank
    libraries: dict[Text, Text]
    backend: Text  # between them, by what the framework was built with; empty without a library for that
    library: Text  # its name, with the version where the framework tells it
    without_tf32: list[Text]  # names


class Gpus(Frozen):
    """What the frameworks of one environment see; each may see others, or none."""

    seen: list[SeenGpus]

    def check(self, environment: str, *, ranks_per_node: int, tf32: bool) -> None:
        """Returns if every framework sees a GPU for every rank of a node, with TF32 if asked. Raises UsageError."""
        for gpus in self.seen:
            what = f"{gpus.framework} {gpus.version} of environment {environment}"
            if not gpus.names:
                raise UsageError(f"device gpu was asked for, but {what} sees no GPU; {GPU_HELP}")
            check_tf32(what, gpus.without_tf32 if tf32 else ())
            if ranks_per_node > len(gpus.names):
                raise UsageError(
                    f"{ranks_per_node} ranks per node were asked for on device gpu, and {what} sees "
                    f"{len(gpus.names)} (one each); give at most --ranks {len(gpus.names)}"
                )

    def added_to(self, probe: Probe) -> Probe:
        """The facts with those of the GPUs, which belong to the fingerprint of what is measured on them."""
        versions, node = dict(probe.versions), dict(probe.node)
        for gpus in self.seen:
            versions |= gpus.libraries
            versions.setdefault(gpus.framework, gpus.version)  # under another name in a build for CPUs
            node[f"gpus_{gpus.framework}"] = ", ".join(gpus.names)
        return probe.model_copy(update={"versions": versions, "node": node})


def with_gpus(installation: Installation, probe: Probe, plan: Plan) -> Probe:
    """`probe`, with the GPUs' facts for a plan on device gpu. Raises UsageError if a rank would have no GPU."""
    if plan.study.device == "cpu":
        return probe
    cells = [case.cell for launch in plan.launches for case in launch.cases]
    seen = ask(installation, sorted({cell.framework for cell in cells}))
    most = max((math.ceil(cell.num_ranks / cell.num_nodes) for cell in cells), default=0)
    rounded = any(cell.precision == "tf32" for cell in cells)
    seen.check(installation.name, ranks_per_node=most, tf32=rounded)
    return seen.added_to(probe)


INTEL = "0x8086"  # its number on the PCI bus


def makers(top: Path = Path("/")) -> dict[str, bool]:
    """Whose GPUs the kernel shows to this process, without loading a framework, which takes seconds."""
    drawing = [
        top / "sys/class/drm" / node.name / "device/vendor" for node in (top / "dev/dri").glob("renderD*")
    ]
    return {
        "NVIDIA": any(
            any((top / "dev").glob(pattern)) for pattern in ("nvidia[0-9]*", "dxg")
        ),  # dxg: under Windows
        "AMD": (top / "dev/kfd").exists(),
        "Intel": any(path.is_file() and path.read_text().strip() == INTEL for path in drawing),
    }


def ask(installation: Installation, frameworks: Sequence[str]) -> Gpus:
    """Ask an environment's own Python what the frameworks see. Raises UsageError if it cannot say."""
    try:
        seen = asking.ask(
            installation.python,
            "benchmarks.launch.gpus",
            *frameworks,
            answer=Gpus,
            variables=installation.variables,
        )
    except asking.NoAnswerError as error:
        raise UsageError(
            f"environment {installation.name}: its Python cannot list its GPUs ({error}); {GPU_HELP}"
        ) from None
    return seen


def see(frameworks: Iterable[str]) -> Gpus:
    """What the frameworks of this Python see."""
    return Gpus(seen=[_seen(framework) for framework in frameworks])


def _seen(framework: str) -> SeenGpus:
    gpus = gpu_module(framework)
    backend, library = gpus.exchange_library()
    return SeenGpus(
        framework=framework,
        version=gpus.version(),
        names=gpus.names(),
        libraries=gpus.libraries(),
        backend=backend,
        library=library,
        without_tf32=gpus.without_tf32(),
    )


def main() -> None:
    """Print what this Python's frameworks see in one line."""
    sys.stdout.write("\n" + see(sys.argv[1:]).model_dump_json() + "\n")


if __name__ == "__main__":
    main()
