"""`dlscale predict`: a verb of the next stage."""

from __future__ import annotations

import click

from dlscale.base.errors import UsageError


@click.command()
def predict() -> int:
    """Carry a measured curve to more nodes (not there yet)."""
    raise UsageError(
        "predict is not there yet: it comes with the next stage; measured curves are in dlscale report"
    )
