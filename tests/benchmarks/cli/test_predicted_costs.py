"""What software costs, as a user sees it: in curves of servers, of strong scaling, and in which backend is fastest."""

import json

import pytest


@pytest.fixture
def predicted(dlscale, tmp_path):
    """Predict; {backend: {nodes: row}}."""

    def predict(*words):
        status, out, err = dlscale("predict", *words, "--json", "--results", tmp_path)
        assert status == 0, err
        found = {}
        for row in json.loads(out)["prediction"]:
            found.setdefault(row["backend"], {})[row["num_nodes"]] = row
        return found

    return predict


def test_one_server_of_a_thousand_nodes_is_slower_than_its_link(predicted):
    words = "weak-scaling --system cori --backends ring,grpc_ps --nodes 1,16,128,1024"
    curves = predicted(*words.split())
    ratio = {
        nodes: curves["ring"][nodes]["samples_per_second"] / curves["grpc_ps"][nodes]["samples_per_second"]
        for nodes in (16, 1024)
    }
    assert ratio[16] == pytest.approx(
        1, abs=0.01
    )  # 2.4 MB from 16 workers take milliseconds of a step of 5 s
    assert ratio[1024] > 1.15
    assert curves["grpc_ps"][1024]["efficiency_low"] < 0.5 * curves["ring"][1024]["efficiency_low"]


def test_servers_are_slower_than_the_ring_on_128_nodes_as_in_the_lecture(predicted):
    """Of a system without a stored profile, whose file leaves facts open; Cray's slide says 1.8."""
    words = (
        "weak-scaling --system piz-daint --workloads inception_v3 --backends ring,grpc_ps --set servers=1/1"
    )
    curves = predicted(*words.split(), "--nodes", "1,128")
    ring, servers = (curves[backend][128] for backend in ("ring", "grpc_ps"))
    assert ring["efficiency"] > 1.5 * servers["efficiency"]
    assert (
        servers["efficiency_low"]
        < ring["efficiency_low"] / 1.8
        < ring["efficiency_high"] / 1.8
        < servers["efficiency_high"]
    )


def test_strong_scaling_on_cori_ends(predicted):
    """At 8 or 16 nodes on the slides: a step costs something beside its samples, and few samples leave cores idle."""
    words = "strong-scaling --system cori --backends horovod --nodes 1,8,16,64"
    curves = predicted(*words.split())["horovod"]
    lost = {nodes: row["batch_effect_loss"] for nodes, row in curves.items()}
    assert lost[1] == pytest.approx(0, abs=1e-9)
    assert lost[8] < 0.05
    assert curves[8]["efficiency"] > 0.85 > 0.5 > curves[64]["efficiency"]
    assert curves[16]["efficiency_low"] < 0.55 * 16 * curves[1]["efficiency_low"]


def test_what_cannot_be_ranked_is_said(dlscale, tmp_path):
    words = "predict weak-scaling --system cori --backends ring,horovod,grpc_ps --nodes 1,1024"
    text = dlscale(*words.split(), "--results", tmp_path)[1]
    first, *_ = text.splitlines()
    assert first.startswith("Predicted, not measured on cori: on 1024 nodes horovod keeps ")
    assert first.endswith("; ring may be as fast.")  # servers are slower than both for sure


def test_exchanges_take_no_cores_from_gpus(predicted):
    words = "weak-scaling --system perlmutter --workloads resnet50 --set frameworks=torch --backends nccl --nodes 1,16"
    row = predicted(*words.split())["nccl"][16]
    assert row["efficiency_low"] > 0.5


def test_a_step_on_a_gpu_that_would_be_mostly_launches_is_refused(dlscale, tmp_path):
    words = "run weak-scaling --system perlmutter --preset tiny --nodes 1,2 --data synthetic"
    text = dlscale(*words.split(), "--results", tmp_path)[1]
    assert "is too small to be derived: on perlmutter its operations take" in text
