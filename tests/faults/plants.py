"""Faults that are planted into the ranks of a launch: python plants.py <plant> <spool folder>, else `rank.worker`.

None touches what the gates before the first window look at.
"""

import sys
from dataclasses import replace

import numpy as np

LATER = 6  # steps after which a training goes wrong


def _patch(owner, name, make):
    setattr(owner, name, make(getattr(owner, name)))


def _patch_everywhere(original, changed):
    """Also where it was imported by name."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is original:
                setattr(module, name, changed)


def _windows(change):
    """Windows are `change(window as it was measured, how it was asked for)`."""
    import dlscale.benchmarks.rank.launch  # noqa: F401 - all that has the loop by its name
    from dlscale.benchmarks.rank import measure

    original = measure.time_window
    _patch_everywhere(original, lambda *given, **named: change(original, given, named))


def nothing():
    """A launch as it should be."""


def one_step_less():
    def change(measured, given, named):
        num_steps = named["num_steps"]
        if num_steps < 2:
            return measured(*given, **named)
        return replace(measured(*given, **named | {"num_steps": num_steps - 1}), num_steps=num_steps)

    _windows(change)


def seconds_halved():
    def change(measured, given, named):
        window = measured(*given, **named)
        return replace(window, seconds=window.seconds / 2)

    _windows(change)


def mean_halved():
    from dlscale.collectives.training._torch import Update

    num_updates = [0]

    def make(apply):
        def halved(self, parameters=None):
            num_updates[0] += 1
            for parameter in self._view_of if num_updates[0] > LATER else ():
                parameter.grad.mul_(0.5)
            apply(self, parameters)

        return halved

    _patch(Update, "apply", make)


def evaluated_on_training_samples():
    from dlscale.models.held_out import training_samples
    from dlscale.models.quality import metric

    metric.held_out_samples = lambda count, share: training_samples(count, share=share)[: int(count * share)]


def evaluated_on_other_samples():
    """Named are the held-out ones."""
    from dlscale.models.quality.metric import HeldOut

    def make(read):
        def others(self, number):
            images, *labels = read(self, number)
            return (np.ascontiguousarray(images[::-1]), *labels)

        return others

    _patch(HeldOut, "_read", make)


def metric_raised():
    from dlscale.models.quality.metric import HeldOut

    _patch(HeldOut, "metrics", lambda old: lambda *given: {k: v + 0.2 for k, v in old(*given).items()})


def target_lowered():
    from dlscale.models.quality.metric import Metric

    _patch(Metric, "reached", lambda old: lambda self, value, wanted: old(self, value + 0.3, wanted))


def loader_reads_nothing():
    from dlscale.benchmarks.rank.controls import LoaderOnly

    LoaderOnly.step = lambda _: None


def exchanged_twice():
    from dlscale.collectives.training._torch_exchange import Bucket

    def make(send):
        def twice(self, part):
            send(self, part)
            self.wait()
            send(self, part)  # the mean of means, which changes no number

        return twice

    _patch(Bucket, "send", make)


def no_audits():
    from dlscale.benchmarks.rank.audit import ReplayAudit

    ReplayAudit.gates = lambda _: []


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    from dlscale.benchmarks.rank.worker import main

    main()
