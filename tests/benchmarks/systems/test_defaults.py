"""What a study does on a system where nobody says: what its nodes are for, and what was published there."""

import pytest

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import request_of, study_of
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system

SYSTEMS = [load_system(name) for name in definitions.names("systems")]
WITH_DEVICES = [system.name for system in SYSTEMS if system.devices]


def cells(system, name="weak-scaling", **changes):
    machine = load_system(system)
    study = load_study(name, system=machine, **changes)
    plan = expand(study, machine, environment="site", data="synthetic")
    return [case.cell for launch in plan.launches for case in launch.cases]


@pytest.mark.parametrize("name", WITH_DEVICES)
def test_where_nodes_have_gpus_ranks_train_on_them(name):
    backend = {"aurora": "xccl"}.get(name, "nccl")
    found = cells(name, nodes=[1, 2], backend_options={backend: {"allow_open_ports": True}})
    assert {cell.device for cell in found} == {"gpu"}
    assert {cell.backend for cell in found} == {"none", backend}
    assert {cell.device for cell in cells(name, nodes=[1], device="cpu")} == {"cpu"}


def test_a_plan_says_that_a_backend_was_never_tried(dlscale, tmp_path):
    for words, told in (("--device gpu --backends xccl", 1), ("--device gpu --backends nccl", 0)):
        status, out, err = dlscale(
            *["run", "weak-scaling", "--dry-run", "--system", "aurora", "--nodes", "1", "--results"],
            tmp_path,
            *words.split(),
        )
        assert status == 0
        assert " ".join((out + err).split()).count("backend xccl: never tried") == told


def test_cori_trains_what_was_published_there():
    (found,) = {
        (cell.framework, cell.preset, cell.local_batch, cell.cores_per_rank)
        for cell in cells("cori", nodes=[1, 2])
    }
    assert found == ("tensorflow", "paper", 128, 68)
    strong = cells("cori", "strong-scaling", nodes=[1, 2])
    assert {(cell.preset, cell.global_batch) for cell in strong if cell.control == "train"} == {("paper", 64)}
    assert {cell.local_batch for cell in cells("piz-daint", nodes=[1])} == {64}


def test_the_user_has_the_last_word():
    asked = {"frameworks": ["torch"], "preset": "tiny", "backends": ["none", "mpi"]}
    found = cells("cori", nodes=[1], **asked)
    assert {(cell.framework, cell.preset, cell.local_batch) for cell in found} == {("torch", "tiny", 2)}
    assert {cell.local_batch for cell in cells("piz-daint", nodes=[1], batch=8)} == {8}
    assert {cell.local_batch for cell in cells("piz-daint", nodes=[1], preset="small")} == {2}


def test_a_study_file_of_the_users_has_the_last_word_too(tmp_path):
    text = definitions.names("study/studies")["weak-scaling"].read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("frameworks =", 'device = "cpu"\npreset = "tiny"\nframeworks ='))
    found = cells("piz-daint", str(path), nodes=[1])
    assert {(cell.device, cell.framework, cell.preset) for cell in found} == {("cpu", "torch", "tiny")}
    assert {cell.backend for cell in cells("cori", str(path), nodes=[1])} == {"none", "mpi", "gloo", "ring"}


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ([], "synthetic"),
        (["data=mine.h5"], "mine.h5"),
        (["preset=tiny"], None),
        (["preset=tiny", "data=synthetic"], "synthetic"),
    ],
)
def test_data_belong_to_the_preset(options, data):
    request = request_of({"set_": options})
    for system, expected in (("cori", data), ("local", request.data)):
        assert study_of("weak-scaling", load_system(system), request)[1] == expected


@pytest.mark.parametrize(
    ("system", "asked", "words"),
    [
        ("cori", {"device": "gpu"}, "device gpu of cori, whose nodes have room for 0"),
        (
            "perlmutter",
            {"ranks_per_node": 8},
            "8 ranks per node on device gpu of perlmutter, whose nodes have room for 4",
        ),
    ],
)
def test_gpus_that_nodes_do_not_have_are_refused(system, asked, words):
    with pytest.raises(UsageError, match=words):
        cells(system, nodes=[1], **asked)


def test_gpu_nodes_without_a_way_to_exchange_are_not_billed(dlscale, tmp_path):
    command = ("run", "weak-scaling", "--dry-run", "--system", "perlmutter", "--nodes", "1,2,4")
    command = (*command, "--walltime", "4h", "--results")
    for words in ([], ["--set", "allow_open_ports=yes"]):
        status, out, err = dlscale(*command, tmp_path, *words)
        text = " ".join((out + err).split())
        assert status == 0
        assert "hep_cnn torch nccl (allow_open_ports=True) 16 4 128 train" in text
        assert ("rehearsed with --set allow_open_ports=yes" in text) == (not words)
