"""SimGrid's replay of an MPI program, message by message: an independent check of the phases of flows.

Each rank's trace is one all-reduce, whose algorithm `smpirun` runs as MPI libraries wrote it. Replay is for checks of
up to a few hundred ranks: a ring has 2 P (P-1) messages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from dlscale.analysis.predict.engine import NetworkExchange
from dlscale.analysis.predict.network import Network, allocated
from dlscale.analysis.predict.platform_xml import host_name, platform_xml
from dlscale.analysis.predict.simgrid_driver import CONFIGURATION
from dlscale.base.errors import UsageError

_BYTE = 6  # the data type in a trace: counts are bytes


def replayed_seconds(network: Network, exchange: NetworkExchange, num_bytes: int, *, selector: str) -> float:
    """Seconds of one all-reduce by SMPI's algorithm `selector` (lr, rab_rdb, rdb ...), one rank per node.

    Sums cost nothing in it. Raises UsageError without smpirun, or if it fails.
    """
    if not shutil.which("smpirun"):
        raise UsageError("no smpirun on PATH; apt-get install --no-install-recommends libsimgrid-dev")
    nodes = allocated(network, exchange.num_nodes, exchange.placement, exchange.seed).tolist()
    trace = "".join(
        f"{rank} init\n{rank} allreduce {num_bytes} 0 {_BYTE}\n{rank} finalize\n"
        for rank in range(len(nodes))
    )
    with tempfile.TemporaryDirectory(prefix="dlscale-smpi-") as name:
        folder = Path(name)
        files = {
            "platform.xml": platform_xml(network, nodes, routing=exchange.routing, with_latency=True),
            "hosts": "".join(f"{host_name(node)}\n" for node in nodes),
            "trace": trace,
            "traces": f"{folder / 'trace'}\n",
        }
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        command = ["smpirun", "-np", str(len(nodes)), "-hostfile", str(folder / "hosts")]
        command += ["-platform", str(folder / "platform.xml"), "-replay", str(folder / "traces")]
        # Its own factors were calibrated for another network; the later of two options holds.
        command += [f"--cfg={option}" for option in (*CONFIGURATION, f"smpi/allreduce:{selector}")]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = re.search(r"Simulation time ([0-9.eE+-]+)", done.stdout + done.stderr)
    if done.returncode or not said:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [
            f"exit status {done.returncode}"
        ]
        raise UsageError(f"smpirun failed: {lines[0].strip()[:300]}")
    return float(said[1])
