"""Starts the driver where it is no part of dlscale: as the package `driver`, found beside this file alone."""

import importlib
import os
import sys

if __name__ == "__main__":
    # Files of this folder and the one above it must not hide libraries of the same name.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rank = importlib.import_module("driver.rank")
    del sys.path[0]
    rank.start()
