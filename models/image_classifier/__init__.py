"""What ResNet-50 and Inception v3 have in common: convolutions with batch norm, and the rule of weight decay.

Neither is a workload of its own. Importing it needs no framework.
"""

from __future__ import annotations


def decays(name: str) -> bool:
    """True if weight decay applies to the parameter: to all but batch norm's scales and shifts.

    Source: Goyal et al. 2017, arXiv:1706.02677, section 5.1.
    """
    return ".norm." not in name
