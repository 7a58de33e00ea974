"""Throughput over ranks, and efficiency relative to the same backend, further down than the efficiency."""

from dlscale.analysis.findings.scaling_plots import OWN, THROUGHPUT

FINDINGS = (THROUGHPUT, OWN)
