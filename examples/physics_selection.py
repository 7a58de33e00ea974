"""HEP-CNN versus the published physics selection, on events that the network has not seen.

dlscale data hep-cnn --events 40000 --out events.h5
python examples/physics_selection.py events.h5

Of the events that pass the preselection the network learns from one half. On the other half it gets the loosest
threshold that lets no more of the background's cross section pass than the selection does, and finds more or less of
the signal (docs/measurements/physics-selection.md).
"""

import argparse
import math
import tempfile
from pathlib import Path

import h5py
import numpy as np

from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.hep_cnn.quality import signal_score
from dlscale.models.workload import Shard

REPLICATES = 1000  # of the bootstrap
MIN_PASSING = 10  # background events in the signal region, with fewer of which nothing is decided


def train(images, labels, options):
    """A network trained on as many signal as background events, of the kind that has fewer some more than once."""
    rng = np.random.default_rng(options.seed)
    kinds = [rng.permutation(np.flatnonzero(labels == kind)) for kind in (0, 1)]
    rows = rng.permutation(np.concatenate([np.resize(kind, max(map(len, kinds))) for kind in kinds]))
    replicas = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.h5"  # holds nothing else, so that no other event can be met
        with h5py.File(path, "w") as file:
            file["data"], file["label"] = images[rows], labels[rows]
        workload = load_workload("hep_cnn")
        source = workload.input(options.preset, path, num_samples=options.batch)
        factory = workload.factory(
            framework=options.framework, preset=options.preset, local_batch=options.batch, source=source
        )

        def build(**arguments):
            replicas.append(factory(**arguments))
            replicas[0].set_learning_rate(options.learning_rate)
            return replicas[0]

        trainer = connect("none", control=None).distribute(build, shard=Shard(), seed=options.seed)
        for _ in range(options.epochs * math.ceil(len(rows) / options.batch)):
            trainer.step()
        trainer.close()
    return replicas[0]


def signal_efficiencies(scores, signal, selected, weights, times):
    """Of the selection and of the network at the same background, if each event were there `times` times."""
    order = np.argsort(-scores, kind="stable")
    background = times * weights * ~signal
    allowed = background @ selected * (1 + 1e-9)
    refused = order[np.cumsum(background[order]) > allowed]
    accepted = scores > scores[refused[0]] if len(refused) else np.ones(len(scores), bool)
    found = times * signal
    return found @ selected / found.sum(), found @ accepted / found.sum()


def main():
    """Train, compare and say who finds more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("events", type=Path, help="file of dlscale data hep-cnn --size 64")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=2018)
    options = parser.parse_args()

    with h5py.File(options.events) as file:
        chosen = np.flatnonzero(file["preselection"][()])
        images, labels, selected, weights, component = (
            file[name][()][chosen] for name in ("data", "label", "psr", "weight", "component")
        )
    rng = np.random.default_rng(options.seed)
    learning = np.zeros(len(chosen), bool)
    for kind in np.unique(component):
        members = rng.permutation(np.flatnonzero(component == kind))
        learning[members[: len(members) // 2]] = True

    network = train(images[learning], labels[learning], options)
    images, selected, weights, component = (
        part[~learning] for part in (images, selected > 0, weights, component)
    )
    signal = labels[~learning] == 1
    parts = np.array_split(images.transpose(0, 2, 3, 1), math.ceil(len(images) / 128))
    scores = np.concatenate([signal_score(network.predict(part)) for part in parts])

    cuts, found = signal_efficiencies(scores, signal, selected, weights, np.ones(len(scores)))
    members = [np.flatnonzero(component == kind) for kind in np.unique(component)]
    differences = []
    for _ in range(REPLICATES):
        drawn = np.concatenate([rng.choice(rows, len(rows)) for rows in members])
        times = np.bincount(drawn, minlength=len(scores))
        if (times * ~signal) @ selected:
            differences.append(-np.subtract(*signal_efficiencies(scores, signal, selected, weights, times)))
    passing = selected & ~signal
    rejection = 1 - weights @ passing / (weights @ ~signal)
    print(f"background rejection {rejection:.4%}, carried by {passing.sum()} events")
    print(f"signal efficiency: selection {cuts:.2%}, network {found:.2%}")
    if passing.sum() < MIN_PASSING:
        raise SystemExit(
            f"fewer than {MIN_PASSING} background events in the signal region decide nothing: generate more"
        )
    low, high = np.quantile(differences, (0.025, 0.975))
    verdict = "better" if low > 0 else "worse" if high < 0 else "not shown to differ"
    print(
        f"difference {100 * (found - cuts):+.2f} points, 95 % interval [{100 * low:+.2f}, {100 * high:+.2f}]: {verdict}"
    )


if __name__ == "__main__":
    main()
