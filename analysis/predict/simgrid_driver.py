"""Runs SimGrid: reads one question as JSON from standard input, writes one answer as JSON to standard output.

    python simgrid_driver.py < question.json

Started by `simgrid_engine` in the interpreter that the binding was made for, which need not have dlscale: only the
standard library is imported. SimGrid allows one engine per process, hence one process per platform. The binding is
loaded by its path, for what else lies in a distribution's folder must not shadow an environment's packages.

A question has `binding` (the path of the extension), and to be answered with more than its version, `platform` (a
file), `links` (name -> bytes per second, in place of the platform's), `background` ([source, target] pairs of endless
flows) and `patterns`, each with `sources` and `targets` (names of hosts) and `num_bytes` of each flow. The answer has
`version`, `seconds` (of each pattern: from the common start of its flows to the end of the last), `cpu_seconds` and
`peak_mib`.
"""

import importlib.util
import json
import resource
import sys
from typing import Any

ENDLESS_BYTES = 10**18
# Max-min sharing with full link rates: nothing that was calibrated for another network.
CONFIGURATION = ("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0")


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    simgrid = _load(question["binding"])
    answer = {"version": simgrid.simgrid_version}
    if "platform" in question:
        answer["seconds"] = _run(simgrid, question)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    answer |= {"cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}
    json.dump(answer, sys.stdout)


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("simgrid", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension of this Python, {sys.version.split()[0]}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(simgrid: Any, question: dict[str, Any]) -> list[float]:
    """Seconds of each pattern, one after the other; a single actor starts all flows."""
    engine = simgrid.Engine(["dlscale", *(f"--cfg={option}" for option in CONFIGURATION)])
    engine.load_platform(question["platform"])
    for name, bytes_per_second in question["links"].items():
        simgrid.Link.by_name(name).set_bandwidth(bytes_per_second)
    host = simgrid.Host.by_name
    send = simgrid.Comm.sendto_async
    seconds: list[float] = []

    def drive() -> None:
        endless = [send(host(a), host(b), ENDLESS_BYTES) for a, b in question["background"]]
        for pattern in question["patterns"]:
            start = engine.clock
            pairs = zip(pattern["sources"], pattern["targets"], strict=True)
            flows = [send(host(a), host(b), pattern["num_bytes"]) for a, b in pairs]
            for flow in flows:
                flow.wait()
            seconds.append(engine.clock - start)
        for flow in endless:  # one that is destroyed while it runs prints a page
            flow.cancel()

    # Version 4 starts actors from their hosts.
    first = engine.all_hosts[0]
    if hasattr(simgrid.Actor, "create"):
        simgrid.Actor.create("driver", first, drive)
    else:
        first.add_actor("driver", drive)
    engine.run()
    return seconds


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # the caller shows one line
        sys.exit(f"{type(error).__name__}: {error}")
