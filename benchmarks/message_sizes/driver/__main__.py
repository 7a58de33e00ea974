"""Starts the driver, where dlscale is not installed as well: then this tree is the package."""

import importlib.util
import sys
import types
from pathlib import Path

if __name__ == "__main__":
    if importlib.util.find_spec("dlscale") is None:
        package = types.ModuleType("dlscale")
        package.__path__ = [str(Path(__file__).resolve().parents[3])]
        sys.modules["dlscale"] = package
    importlib.import_module("dlscale.benchmarks.message_sizes.driver.rank").start()
