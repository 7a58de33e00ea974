"""Options of predictions that disturb the network: traffic of other jobs, and nodes with slow links."""

from __future__ import annotations

from typing import Any

import click

from dlscale.base.quantities import split_list


class SlowNodes(click.ParamType[dict[int, float]]):
    """Nodes with the share of their link's rate that they have: 5=0.5,7=0.9."""

    name = "shares"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[int, float]:
        """Node -> share; a malformed one is a one-line error."""
        if isinstance(value, dict):
            return value
        shares: dict[int, float] = {}
        for word in split_list(value):
            node, _, share = word.partition("=")
            try:
                number, rate = int(node), float(share)
            except ValueError:
                self.fail(f"{word!r} is no node and share of its link's rate; write 5=0.5,7=0.9", param, ctx)
            if number < 0 or not 0 < rate <= 1:
                self.fail(f"{word!r}: nodes count from 0, shares are above 0 and at most 1", param, ctx)
            shares[number] = rate
        return shares


background_option = click.option(
    "--background-flows",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Endless flows of other jobs, between nodes outside the job; needs SimGrid.",
)
slow_nodes_option = click.option(
    "--slow-nodes",
    type=SlowNodes(),
    default="",
    help="Nodes with slow links, and the share of the rate that is left: 5=0.5; needs SimGrid.",
)
