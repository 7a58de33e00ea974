"""Starts a rank by the Python of a library's own environment, where dlscale is not installed: this tree is it then."""

import importlib.util
import sys
import types
from pathlib import Path

if __name__ == "__main__":
    if importlib.util.find_spec("dlscale") is None:
        package = types.ModuleType("dlscale")
        package.__path__ = [str(Path(__file__).resolve().parents[2])]
        sys.modules["dlscale"] = package
    importlib.import_module("dlscale.benchmarks.message_sizes.rank").start(Path(sys.argv[1]))
