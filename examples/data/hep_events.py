"""Simulated collisions for HEP-CNN: gluino pairs (signal) and QCD jets (background), seen by a simple calorimeter.

pip install pythia8mc==8.317.2                                        # has wheels for Python 3.11
python examples/data/hep_events.py events.h5 --events 100000          # 100 events per second and core
python examples/data/hep_events.py events_224.h5 --events 100000 --size 224    # for preset paper
dlscale run weak-scaling --workloads hep_cnn --data events.h5

The file has the layout of the published benchmark: `data` (N, C, H, W) float32, each channel divided by its maximum
over the file; `label` (N), 1 for signal; `weight` (N), the cross section [mb] that an event stands for. Half of the
events are signal, and each slice of the background has the same number of events, in random order.

Processes, cross sections and ranges of pT are those of github.com/eracah/atlas_dl, config/DelphesXSec; slices that
together weigh a hundredth of the signal are left out. PYTHIA: C. Bierlich et al., arXiv:2203.11601.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

# Name, label, cross section [mb], range of pT of the hard scattering [GeV].
COMPONENTS = (
    ("RPV10_1400_850", 1, 1.436e-11, None),
    ("JZ3", 0, 1.643e-04, (160, 400)),
    ("JZ4", 0, 1.997e-06, (400, 800)),
    ("JZ5", 0, 4.138e-08, (800, 1300)),
    ("JZ6", 0, 1.565e-09, (1300, 1800)),
    ("JZ7", 0, 1.173e-10, (1800, 2500)),
    ("JZ8", 0, 4.269e-12, (2500, 3200)),
)
# Without R-hadrons, for the decay table makes gluinos prompt.
SIGNAL = (
    "SUSY:gg2gluinogluino = on",
    "SUSY:qqbar2gluinogluino = on",
    "RHadrons:allow = off",
    "SLHA:verbose = 0",
)
BLOCK_EVENTS = 250  # a few seconds
CHANNELS = ("transverse energy", "electromagnetic transverse energy", "number of tracks")
MAX_ETA, MAX_PHI = 2.5, 3.15  # as published
LEAST_COUNT_GEV = 0.5  # energies are whole numbers of it, as of any calorimeter with a digitiser
TRACK_MIN_PT_GEV = 1.0
BEND_GEV = 0.3 * 2.0 * 1.15 / 2  # a particle of this pT just reaches the calorimeter: 2 T, radius 1.15 m


def slha() -> str:
    """Spectrum, mixings and decays of the signal, in the SUSY Les Houches Accord (hep-ph/0311123, 0801.0045).

    gluino (1400 GeV) -> q qbar neutralino_1 (850 GeV), neutralino_1 -> q q q or qbar qbar qbar: every gluino ends as
    five light quarks. All else is too heavy to matter, but PYTHIA starts only with a whole spectrum and all mixings.
    R-parity violation enters by the decay table alone.
    """
    heavy = (35, 36, 37, *range(1000001, 1000007), *range(1000011, 1000017), 1000023, 1000024)
    masses = dict.fromkeys((*heavy, *range(2000001, 2000007), 2000011, 2000013, 2000015), 5000.0)
    masses |= {24: 80.385, 25: 125.0, 1000021: 1400.0, 1000022: 850.0}
    masses |= {1000025: 5100.0, 1000035: 5200.0, 1000037: 5200.0}
    sm = (127.934, 1.16639e-05, 0.118, 91.1876, 4.18, 172.5, 1.77682)
    neutralinos = np.eye(4)
    neutralinos[2:, 2:] = 0.707106781 * np.array([[1, -1], [1, 1]])
    blocks = {
        "MODSEL": "1 0",
        "SMINPUTS": "\n".join(f"{number} {value}" for number, value in enumerate(sm, start=1)),
        "MINPAR": "3 10.0",
        "EXTPAR": "0 1000.0",
        "MASS": "\n".join(f"{particle} {mass}" for particle, mass in masses.items()),
        "NMIX": matrix(neutralinos),
        **dict.fromkeys(("UMIX", "VMIX", "STOPMIX", "SBOTMIX", "STAUMIX"), matrix(np.eye(2))),
        "ALPHA": "-0.1",
        "HMIX Q= 1.0e+03": "1 1000.0\n2 10.0\n3 246.0\n4 2.5e+07",
        "GAUGE Q= 1.0e+03": "1 0.36\n2 0.64\n3 1.06",
    }
    gluino = [f"1000022 {quark} {-quark}" for quark in (1, 2, 3, 4)]
    neutralino = ["2 1 3", "-2 -1 -3", "4 1 3", "-4 -1 -3"]
    lines = [f"Block {name}\n{indented(content)}" for name, content in blocks.items()]
    for particle, modes in ((1000021, gluino), (1000022, neutralino)):
        lines.append(f"DECAY {particle} 0.1\n" + indented("\n".join(f"0.25 3 {mode}" for mode in modes)))
    return "\n".join(lines) + "\n"


def matrix(values: np.ndarray) -> str:
    """Lines of row, column and value."""
    return "\n".join(f"{row + 1} {column + 1} {value}" for (row, column), value in np.ndenumerate(values))


def indented(text: str) -> str:
    """The text with blanks before its lines: what begins in the first column is a block's name."""
    return "\n".join(f"   {line}" for line in text.split("\n"))


def start_pythia(component: tuple, seed: int, folder: str) -> object:
    """An initialised generator of one component."""
    import pythia8mc

    _, label, _, pt_range = component
    pythia = pythia8mc.Pythia("", False)
    settings = ["Beams:eCM = 13000.", "Print:quiet = on", "Random:setSeed = on", f"Random:seed = {seed}"]
    if pt_range:
        settings += [f"PhaseSpace:pTHatMin = {pt_range[0]}.", f"PhaseSpace:pTHatMax = {pt_range[1]}."]
    for setting in (*settings, *(SIGNAL if label else ["HardQCD:all = on"])):
        if not pythia.readString(setting):
            raise RuntimeError(f"PYTHIA does not know the setting {setting!r}")
    if label:
        path = Path(folder) / f"{os.getpid()}.slha"
        path.write_text(slha())
        pythia.settings.word("SLHA:file", str(path))
    if not pythia.init():
        raise RuntimeError(f"PYTHIA cannot start component {component[0]}")
    return pythia


def image_counts(particles: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """The image (C, H, W) of one collision in whole counts: rows are pseudorapidity, columns azimuth.

    `particles` has the columns px, py, pz, energy, charge and kind of the visible ones. Photons and electrons leave
    their energy in the electromagnetic part, hadrons in the hadronic one, muons none. The field bends charged particles
    and keeps the softest from arriving. Resolutions are the design values of ATLAS.
    """
    px, py, pz, energy, charge, pdg_id = particles.T
    pt, phi = np.hypot(px, py), np.arctan2(py, px)
    eta = np.arcsinh(pz / np.maximum(pt, 1e-9))
    charged, kind = charge != 0, np.abs(pdg_id).astype(np.int64)
    tracks = histogram(eta, phi, charged & (pt > TRACK_MIN_PT_GEV), size)

    electromagnetic = (kind == 11) | (kind == 22)
    sampling, constant = np.where(electromagnetic, 0.10, 0.50), np.where(electromagnetic, 0.007, 0.03)
    sigma = np.sqrt(sampling**2 * energy + (constant * energy) ** 2)
    measured = np.maximum(energy + sigma * rng.standard_normal(len(energy)), 0)
    deposit = measured * pt / np.hypot(pt, pz)
    bend = np.where(charged, charge * np.arcsin(np.minimum(BEND_GEV / np.maximum(pt, 1e-9), 1)), 0)
    hit_phi = np.remainder(phi - bend + np.pi, 2 * np.pi) - np.pi
    arrives = ~charged | (pt > BEND_GEV)
    parts = [
        np.rint(histogram(eta, hit_phi, arrives & part, size, weights=deposit) / LEAST_COUNT_GEV)
        for part in (electromagnetic, ~electromagnetic & (kind != 13))
    ]
    return np.stack([parts[0] + parts[1], parts[0], tracks]).astype(np.uint32)


def histogram(eta, phi, mask, size, weights=None) -> np.ndarray:
    """Sum of `weights` (without them, the number of entries) per cell, (size, size)."""
    mask = mask & (np.abs(eta) < MAX_ETA)
    rows, columns = (
        np.minimum((angle[mask] / limit + 1) / 2 * size, size - 1).astype(np.int64)
        for angle, limit in ((eta, MAX_ETA), (phi, MAX_PHI))
    )
    weights = None if weights is None else weights[mask]
    return np.bincount(rows * size + columns, weights, size * size).astype(np.float64).reshape(size, size)


def make_block(task: tuple) -> list[tuple[np.ndarray, np.ndarray]]:
    """Some events of one component: cells that are not zero, and their counts.

    A block has its own seeds and its own PYTHIA, so that it is the same whichever process makes it.
    """
    place, number, num_events, size, seed, folder = task
    shower, detector = np.random.SeedSequence(seed, spawn_key=(place, number)).spawn(2)
    pythia = start_pythia(COMPONENTS[place], int(shower.generate_state(1)[0]) % 900_000_000 + 1, folder)
    rng, events, failures = np.random.default_rng(detector), [], 0
    while len(events) < num_events:
        if not pythia.next():  # it gives up a collision now and then
            failures += 1
            if failures > num_events + 20:
                raise RuntimeError(f"PYTHIA failed {failures} times in {COMPONENTS[place][0]}")
            continue
        particles = np.array([
            (p.px(), p.py(), p.pz(), p.e(), p.charge(), p.id())
            for p in pythia.event
            if p.isFinal() and p.isVisible()
        ])  # fmt: skip
        image = image_counts(particles, size, rng).reshape(-1)
        cells = np.flatnonzero(image)
        events.append((cells.astype(np.uint32), image[cells]))
    return events


def shares(num_events: int) -> list[int]:
    """Events of each component: half are signal, the others equal over the slices of the background."""
    background, num_slices = num_events // 2, len(COMPONENTS) - 1
    slices = [background // num_slices + (index < background % num_slices) for index in range(num_slices)]
    return [num_events - background, *slices]


def write(path: Path, events: list[list], size: int, rng: np.random.Generator) -> None:
    """The events of each component, in an order drawn from `rng`, as the file that HEP-CNN reads."""
    maxima = np.ones(len(CHANNELS), dtype=np.uint32)
    for cells, counts in (event for component in events for event in component):
        np.maximum.at(maxima, cells // size**2, counts)
    num_events = sum(map(len, events))
    rows = iter(rng.permutation(num_events))
    labels, weights = np.zeros(num_events, dtype=np.int64), np.zeros(num_events)
    part = path.with_name(f".{path.name}.part")
    with h5py.File(part, "w") as file:
        shape = (len(CHANNELS), size, size)
        # Without byte shuffle: most cells hold one of a few counts, so that whole floats repeat.
        data = file.create_dataset(
            "data", (num_events, *shape), np.float32, chunks=(1, *shape), compression="gzip"
        )
        for (_, label, cross_section_mb, _), component in zip(COMPONENTS, events, strict=True):
            for cells, counts in component:
                row, image = next(rows), np.zeros(shape, dtype=np.float32)
                image.reshape(-1)[cells] = counts
                data[row] = image / maxima[:, None, None].astype(np.float32)
                labels[row], weights[row] = label, cross_section_mb / len(component)
        file.create_dataset("label", data=labels, compression="gzip", shuffle=True)
        file.create_dataset("weight", data=weights, compression="gzip", shuffle=True)
        file.attrs["channels"] = list(CHANNELS)
        file.attrs["channel_maxima"] = maxima * (LEAST_COUNT_GEV, LEAST_COUNT_GEV, 1.0)  # GeV, GeV, tracks
        file.attrs["components"] = [name for name, *_ in COMPONENTS]
    part.replace(path)


def main() -> None:
    """Generate the blocks on all cores and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="HDF5 file to write")
    parser.add_argument("--events", type=int, default=4000, help="at least 12; half are signal")
    parser.add_argument("--size", type=int, choices=(64, 224), default=64, help="pixels per side")
    parser.add_argument("--seed", type=int, default=2018)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    asked = parser.parse_args()
    counts = shares(asked.events)
    if not all(counts):
        parser.error(f"--events {asked.events} are too few for one of each component; give 12 or more")
    events: list[list] = [[] for _ in COMPONENTS]
    with (
        tempfile.TemporaryDirectory() as folder,
        multiprocessing.get_context("spawn").Pool(asked.jobs) as pool,
    ):
        tasks = [
            (place, number, min(BLOCK_EVENTS, count - begin), asked.size, asked.seed, folder)
            for place, count in enumerate(counts)
            for number, begin in enumerate(range(0, count, BLOCK_EVENTS))
        ]
        for task, block in zip(tasks, pool.imap(make_block, tasks), strict=True):
            events[task[0]] += block
            print(f"{sum(map(len, events))} of {asked.events} events", file=sys.stderr)
    order = np.random.SeedSequence(asked.seed, spawn_key=(len(COMPONENTS),))
    write(asked.out, events, asked.size, np.random.default_rng(order))


if __name__ == "__main__":
    main()
