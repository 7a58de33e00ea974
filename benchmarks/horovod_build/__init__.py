"""Horovod, compiled for the frameworks and the MPI of an environment; the wheel is kept by their versions.

    python -m dlscale.benchmarks.cli.horovod --environment .venv     what `make horovod` does

Horovod publishes no wheels, and its last release is older than the frameworks. It is compiled from the registry's
source package as it is; `target.py` says what stands between it and today's headers.
"""
