"""No user name and no home folder reaches a record, from whatever text they come."""

import pytest

from dlscale.base import strings
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.record import EnergyReading, Failure, Gate, NodeSettings, Record
from dlscale.benchmarks.records.spool import (
    CaseEnd,
    CaseResult,
    SpoolWriter,
    read_spools,
)
from tests.benchmarks.records.test_assemble import CASE, METADATA
from tests.benchmarks.spools import rank_info
from tests.made_records import NODE

ALONE = CASE.model_copy(update={"cell": CASE.cell.model_copy(update={"num_ranks": 1, "global_batch": 2})})
PLANTED = "/home/jane/x.so of jane, /scratch/jdoe7/y and jane_logs"
NODE_TEXT = {"cpu_governor"}
OF_RANK = {"node", "load_after"}


@pytest.fixture(autouse=True)
def jane(monkeypatch):
    monkeypatch.setenv("HOME", "/home/jane")
    monkeypatch.setenv("LOGNAME", "jdoe7")
    monkeypatch.setenv("USER", "jdoe7")


@pytest.mark.parametrize("end", ["good", "gate", "error"])
def test_no_name_in_a_record(tmp_path, end):
    found = a_record(tmp_path, end=end, kind="error")
    text = found.model_dump_json()
    for word in ("jane", "jdoe7", "/home", "hunter2", "hvs.1"):
        assert word not in text, text
    assert "~/x.so of <user>" in text
    (node,) = found.nodes
    assert (node.node, node.load_before) == ("n1", 0.4)
    assert node.load_after == (None if end == "error" else 1.5)
    assert found.good == (end == "good")


@pytest.mark.parametrize("word", ["interrupted", "measured", "rapl", "tiny", "hep", "n1", "2"])
def test_a_user_named_like_a_word_of_records_has_the_records_of_everybody(tmp_path, monkeypatch, word):
    """Of a record's fields, a name is looked for in free text only."""
    monkeypatch.setenv("HOME", f"/home/{word}")
    monkeypatch.setenv("USER", word)
    found = a_record(tmp_path, end="error", kind="interrupted")
    assert Record.model_validate_json(found.model_dump_json()) == found
    assert (found.failure.kind, found.evidence, found.energy[0].source) == ("interrupted", "measured", "rapl")
    assert (found.case, found.nodes[0].node) == (ALONE, "n1")


def spooled(folder, *, end):
    spool = SpoolWriter(folder, 0)
    spool.write(rank_info(0, node="n1"))
    spool.write(NodeSettings(**NODE.model_dump(exclude=OF_RANK) | dict.fromkeys(NODE_TEXT, PLANTED)))
    spool.write(Gate(name="gradient", passed=end != "gate", value=0.0, tolerance=1e-4, detail=PLANTED))
    energy = {"source": "rapl", "joules": 1.0, "seconds": 1.0, "reason": PLANTED}
    spool.write(EnergyReading(**energy), case=0)
    spool.write(CaseResult(steady=True, settings={"plan": PLANTED}), case=0)
    if end != "error":
        spool.write(CaseEnd(peak_rss_bytes=1, load=1.5), case=0)
    spool.close()
    return read_spools(folder, 1)


def a_record(folder, *, end, kind):
    """What one rank leaves: a good case, one that fails its gate, or one that ends early."""
    variables = {
        "UCX_TLS": PLANTED,
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "UCX_AUTH_TOKEN": "hvs.1",
        "HOME": "/home/jane",
        "USER": "jdoe7",
    }
    known = {
        "command": strings.redact(f"mpiexec {PLANTED}"),
        "environment_variables": environment.recorded_variables(variables, own={}),
    }
    failure = Failure(kind=kind, rank=0, message=PLANTED, log_tail=PLANTED)
    metadata = METADATA.model_copy(update=known)
    return assemble(ALONE, 0, spooled(folder, end=end), attempt=1, metadata=metadata, failure=failure)


@pytest.mark.parametrize(
    ("home", "text", "expected"),
    [
        ("/home/ab", "/scratch/ab/lab and ab", "/scratch/<user>/lab and <user>"),  # only where it is a name
        ("/home/ted", "interrupted by ted: /scratch/ted_1", "interrupted by <user>: /scratch/<user>_1"),
        ("/home/user", "/data/user/x and useful", "/data/<user>/x and useful"),
        ("/root", "/root/x root complex", "~/x root complex"),  # no name
        ("/home/ab", "docker://ab:hunter2@registry/x", "docker://registry/x"),
    ],
)
def test_a_name_is_replaced_where_it_is_one_and_twice_is_once(monkeypatch, home, text, expected):
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("USER", "root")
    once = strings.redact(text)
    assert (once, strings.redact(once)) == (expected, expected)


def test_the_checkout_is_left_out_wherever_a_command_is_given(monkeypatch, tmp_path):
    python, beside = f"{strings.CHECKOUT}/.venv/bin/python", f"{strings.CHECKOUT}-2/x"
    monkeypatch.chdir(tmp_path)
    assert strings.redact(f"{python} {tmp_path}/mine.py") == "<checkout>/.venv/bin/python ./mine.py"
    assert strings.redact(beside) == beside
    monkeypatch.chdir(strings.CHECKOUT)
    assert strings.redact(python) == "./.venv/bin/python"


def test_paths_survive_a_command_given_in_the_top_folder(monkeypatch):
    monkeypatch.chdir("/")
    assert strings.redact("/opt/mpi/bin/mpiexec") == "/opt/mpi/bin/mpiexec"


def test_a_setting_that_only_sounds_like_a_secret_is_recorded():
    names = ("UCX_KEEPALIVE_INTERVAL", "MPIR_CVAR_RMA_PASSIVE", "TF_NUM_INTRAOP_THREADS")
    secrets = (
        *("UCX_AUTH_TOKEN", "FI_PSM3_UUID_KEY", "DLSCALE_DB_PASSWORD", "TORCH_hub_secret", "TF_CONFIG_X"),
        *("DLSCALE_APIKEY", "NCCL_CREDENTIALS", "TORCH_AUTH", "HOROVOD_BEARER", "FI_PASSCODE"),
        *("MINE_DB_PW", "GITHUB_PAT", "X_AUTHTOKEN", "DEPLOY_SSHKEY", "SITE_CREDS", "X_JWT", "MINE_PWD"),
    )
    unknown = ("OMP_", "UCX_X", "NCCL_JANES", "DLSCALE_MINE", "MALLOC_MMAP_MAX_2")
    everything = dict.fromkeys((*names, *secrets, *unknown), "1")
    assert environment.recorded_variables(everything, own={}).keys() == set(names)
    own = dict.fromkeys((*secrets, "UCX_X"), "2")  # a secret is not recorded where a study names it, either
    found = environment.recorded_variables(everything, own=own)
    assert found == dict.fromkeys(names, "1") | {"UCX_X": "2", "TF_CONFIG_X": "2"}
