"""Starts the driver where it is no part of dlscale: as `benchmarks.message_sizes.driver`, with the rows beside it."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Only while the driver's own files are imported: what lies there must not hide libraries of the same name.
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    rank = importlib.import_module("benchmarks.message_sizes.driver.rank")
    launchers = importlib.import_module("base.schedulers").LAUNCHERS
    del sys.path[0]
    rank.start([name for launcher in launchers for name in launcher.ranks])
