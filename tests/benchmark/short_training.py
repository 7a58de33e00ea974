"""Short trainings on the data that ships: does the loss fall, and is it the same in both frameworks?

python tests/benchmark/short_training.py --out docs/figures     (a few minutes; writes a figure and a CSV)

HEP-CNN learns on collision events, CosmoGAN on convergence maps, both in torch and in TensorFlow, from the same
weights, batches, masks and z. One rank, one thread, no communication.
"""

import argparse
import csv
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("agg")
import matplotlib.pyplot as plt
from rich.progress import track
from scipy import stats

from dlscale.benchmarks.rank import affinity
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.cosmogan import LATENT_SIZE
from dlscale.models.frameworks import FRAMEWORKS, framework_module
from dlscale.models.workload import Replica, Shard, Workload

SEED = 1
EVERY = 16  # steps, of which the mean is drawn
# Workload, preset, samples per step, steps, names of the objectives.
TRAININGS = (
    ("hep_cnn", "small", 16, 480, ("cross-entropy",)),
    ("cosmogan", "small", 8, 480, ("discriminator's loss", "generator's loss", "distance of pixels")),
)
COLOURS = {"torch": "#D55E00", "tensorflow": "#0072B2"}  # told apart by the colour-blind, and in grey
DASHES = {"torch": "-", "tensorflow": "--"}


def train(name: str, preset: str, framework: str, *, local_batch: int, num_steps: int) -> np.ndarray:
    """Losses (steps, objectives); for CosmoGAN the pixels' distance is a further column, NaN where not measured."""
    workload = load_workload(name)
    factory = workload.factory(
        framework=framework, preset=preset, local_batch=local_batch, source=workload.input(preset)
    )
    replica = factory(shard=Shard(), seed=SEED)
    trainer = connect("none", control=None).distribute(lambda **_: replica, shard=Shard(), seed=SEED)
    found = []
    for step in track(range(num_steps), description=f"{name} in {framework}"):
        trainer.step()
        found.append(trainer.losses())
        if name == "cosmogan":
            measured = step % EVERY == 0
            found[-1].append(pixel_distance(workload, preset, replica) if measured else np.nan)
    return np.array(found)


def pixel_distance(workload: Workload, preset: str, replica: Replica) -> float:
    """Kolmogorov-Smirnov statistic between the pixels of 32 generated maps and of 32 maps of the sample."""
    facts = workload.preset(preset)
    samples = workload.data().open_samples(workload.input(preset), facts, seed=(0, 0))
    (maps,) = samples.read(np.arange(32))
    z = np.random.default_rng(SEED).standard_normal((32, LATENT_SIZE), dtype=np.float32)
    return float(stats.ks_2samp(replica.predict(z).ravel()[::16], maps.ravel()[::16]).statistic)


def smooth(values: np.ndarray, width: int = EVERY) -> np.ndarray:
    """Means over `width` steps, of what was measured there: single batches are noisy."""
    return np.nanmean(values[: len(values) // width * width].reshape(-1, width), axis=1)


def measure(path: Path) -> None:
    """Train everything, and write the CSV `path`."""
    for framework in FRAMEWORKS:
        framework_module(framework).prepare(1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("workload", "framework", "quantity", "step", "value"))
        for name, preset, local_batch, num_steps, quantities in TRAININGS:
            for framework in FRAMEWORKS:
                found = train(name, preset, framework, local_batch=local_batch, num_steps=num_steps)
                for quantity, values in zip(quantities, found.T, strict=True):
                    rows = enumerate(values)
                    writer.writerows((name, framework, quantity, step, f"{v:.6g}") for step, v in rows)


def draw(path: Path, picture: Path) -> None:
    """The CSV `path` as a figure, and its first and last values in words."""
    frame = pd.read_csv(path)
    figure, axes = plt.subplots(1, 4, figsize=(12.5, 3.2), layout="constrained")
    panels = frame.groupby(["workload", "quantity"], sort=False)
    for axis, ((name, quantity), panel) in zip(axes, panels, strict=True):
        for framework, curve in panel.groupby("framework", sort=False):
            smoothed = smooth(curve["value"].to_numpy())
            steps = (np.arange(len(smoothed)) + 0.5) * EVERY
            axis.plot(steps, smoothed, DASHES[framework], color=COLOURS[framework], label=framework)
            print(f"{name} {framework} {quantity}: {smoothed[0]:.3f} at first, {smoothed[-1]:.3f} at last")
        axis.set_title(f"{name}: {quantity}", fontsize=10)
        axis.set(xlabel="step", ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(f"mean of {EVERY} steps")
    axes[0].legend(frameon=False)
    figure.savefig(picture, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--redraw", action="store_true", help="Draw from the CSV that is there.")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "short-training.csv"
    affinity.bind(1)
    if not arguments.redraw:
        measure(path)
    draw(path, arguments.out / "short-training.png")


if __name__ == "__main__":
    main()
