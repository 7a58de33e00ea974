"""Faults of ranks that share samples, planted into a launch: python halos.py <plant> <spool folder>, else `worker`.

`patch(owner, name, value)` plants: `setattr`, or a test's that takes it back. The gate before the first window sees
all but the last, which begins later.
"""

import json
import sys
from pathlib import Path

LATER = 60  # exchanges after which a carrier goes wrong: the gates have some 20, and a step of HEP-CNN 5


def narrow_halo(patch, framework="torch"):
    """Halos are a row too narrow above, and what is missing is taken for the edge of the sample."""
    if framework == "torch":
        from torch.nn import functional

        from dlscale.models.parallel._torch import _Windows

        whole = _Windows.with_halo

        def narrow(self, values, *, fill=0.0):
            padded = whole(self, values, fill=fill)
            return functional.pad(padded[:, :, 1:], (0, 0, 1, 0), value=fill) if self.above else padded

        patch(_Windows, "with_halo", narrow)
        return
    import tensorflow as tf

    from dlscale.models.parallel._tensorflow import Exchanges

    halo = Exchanges.halo

    def narrower(self, values, *, above, fill=0.0, **more):
        padded = halo(self, values, above=above, fill=fill, **more)
        edge = ((0, 0), (1, 0), (0, 0), (0, 0))
        return tf.pad(padded[:, 1:], edge, constant_values=fill) if above else padded

    patch(Exchanges, "halo", narrower)


def edge_gradient_dropped(patch, framework="torch"):
    """Going back, each rank keeps what its own rows have of the gradient."""
    if framework == "torch":
        from dlscale.models.parallel._torch import _Halo

        def backward(ctx, gradient):
            height = gradient.shape[2] - ctx.above - ctx.below
            others = [None] * (len(ctx.needs_input_grad) - 1)
            return gradient[:, :, ctx.above : ctx.above + height].clone(), *others

        patch(_Halo, "backward", staticmethod(backward))
        return
    import tensorflow as tf

    from dlscale.models.parallel._tensorflow import Exchanges

    halo = Exchanges.halo

    def dropping(self, values, *, above, below, sides=(0, 0), **more):
        fixed = tf.stop_gradient(values)
        padded = halo(self, fixed, above=above, below=below, sides=sides, **more)
        return padded + tf.pad(values - fixed, ((0, 0), (above, below), sides, (0, 0)))

    patch(Exchanges, "halo", dropping)


def batch_norm_of_own_rows(patch, framework="torch"):
    """Each rank normalises its rows by themselves."""
    if framework == "torch":
        from torch import nn

        from dlscale.models.parallel._torch import _BatchNorm

        patch(_BatchNorm, "forward", nn.BatchNorm2d.forward)
        return
    from dlscale.models.parallel._tensorflow import Exchanges, batch_norm

    patch(Exchanges, "normalised", lambda _, *given, epsilon: batch_norm(*given, epsilon=epsilon))


def uneven_taken_for_even(patch, framework="torch"):
    """The whole is taken for so many times one's own rows."""
    from dlscale.models.parallel import Rows

    patch(Rows, "height", lambda self, own: own * self.split)


def halo_of_the_step_before(patch, framework="torch", *, period=5, later=LATER):
    """Rows come as they were so many exchanges ago: those of a step."""
    from dlscale.collectives.neighbours import CarriedNeighbours

    exchange, before, count = CarriedNeighbours.exchange, {}, [0]

    def stale(self, up, down, from_up, from_down):
        exchange(self, up, down, from_up, from_down)
        place, count[0] = count[0] % period, count[0] + 1
        for way, found in (("up", from_up), ("down", from_down)):
            if found.size:
                fresh = found.copy()
                old = before.get((place, way))
                if old is not None and old.shape == fresh.shape and count[0] > later:
                    found[...] = old
                before[place, way] = fresh

    patch(CarriedNeighbours, "exchange", stale)


if __name__ == "__main__":
    plant = globals()[sys.argv.pop(1)]
    cell = json.loads((Path(sys.argv[1]) / "launch.json").read_text())["cases"][0]["cell"]
    plant(setattr, cell["framework"])
    from dlscale.benchmarks.rank.worker import main

    main()
