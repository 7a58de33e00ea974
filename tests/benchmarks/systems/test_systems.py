"""The machines that dlscale knows: what their files say, and what is said of files that are unfit."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.start import find_installation, start_on
from dlscale.benchmarks.systems.system import Environment, System, facts, load_system

NAMES = definitions.names("systems")
TEMPLATE = definitions.names("systems")["template"].read_text(encoding="utf-8")
CLUSTERS = [name for name in NAMES if load_system(name).has_jobs]


def edited(tmp_path: Path, *changes: tuple[str, str]) -> str:
    """A user's copy of the template with some of its text replaced."""
    text = TEMPLATE.replace('name = "template"', 'name = "mine"')
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def problems(path: str) -> str:
    """What is said of a file; empty if it is fit."""
    try:
        load_system(path)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_facts_of_the_systems_that_ship_have_sources_where_one_can_look(name):
    system = load_system(name)
    assert system.name == name
    assert {fact.source for _, fact in facts(system)} == set(system.sources)
    assert all(len(text.split()) > 1 or "/" in text for text in system.sources.values())
    assert all(fact.note for _, fact in facts(system) if fact.kind == "computed")
    assert "site" in system.environments or not system.has_jobs


def test_a_copy_of_the_template_is_fit(tmp_path):
    assert problems(edited(tmp_path)) == ""


def test_a_start_as_the_system_has_it():
    system = load_system("template")
    start = start_on(
        system, system.partitions["test"], nodes=("a",), num_ranks=1, variables={}, program=("true",)
    )
    # One rank on a node for four has the share of one of four: a study's ranks are all alike.
    assert (start.ranks_per_node, start.cpus_per_rank, start.devices_per_rank) == (1, 32, 1)
    assert start.launch_options == ("--overlap", "--cpu-bind=cores")


# Recalled numbers must not creep in: these are in no source that was read.
@pytest.mark.parametrize(
    ("name", "field"),
    [("piz-daint", "devices.peak.fp32"), ("piz-daint", "fabric.groups"), ("cooley", "fabric.latency")]
    + [
        (name, f"partitions.{part}.max_walltime")
        for name, part in [("piz-daint", "normal"), ("perlmutter", "regular")]
    ],
)
def test_what_no_source_says_is_left_out(name, field):
    assert field not in dict(facts(load_system(name)))


@pytest.mark.parametrize("name", CLUSTERS)
def test_on_a_cluster_the_centres_own_modules_come_first(name):
    system = load_system(name)
    with pytest.raises(UsageError, match=r"environment site of .* has no Python"):
        find_installation(system)


def test_a_nodes_own_copy_of_the_environment_is_used_where_there_is_one(tmp_path, monkeypatch):
    home, copy = tmp_path / "scratch" / "dlscale-site", tmp_path / "shm" / "dlscale-site"
    for folder in (home, copy):
        (folder / "bin").mkdir(parents=True)
    (home / "bin" / "python").touch(mode=0o755)
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    text = TEMPLATE.replace('"/dev/shm/', f'"{tmp_path}/shm/')
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    system = load_system(str(tmp_path / "mine.toml"))
    on_login_node = find_installation(system, "site")
    assert (on_login_node.prefix, on_login_node.python) == (home, home / "bin" / "python")
    assert on_login_node.mpiexec.name == "srun"  # which starts ranks there; no mpiexec is needed
    (copy / "bin" / "python").touch(mode=0o755)
    assert find_installation(system, "site").python == copy / "bin" / "python"


def test_variables_name_the_folder_of_their_environment(tmp_path, monkeypatch):
    for program in ("python", "mpiexec"):
        (tmp_path / "env" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "env" / "bin" / program).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    variables = {"LD_LIBRARY_PATH": "{prefix}/lib:{prefix}/lib/more", "FABRIC": "shm:{other}"}
    own = Environment(prefix="env", variables=variables, setup="make")
    found = find_installation(load_system("local").model_copy(update={"environments": {"one": own}}), "one")
    assert found.prefix == tmp_path / "env"
    libraries = f"{tmp_path}/env/lib:{tmp_path}/env/lib/more"
    assert found.variables == {"LD_LIBRARY_PATH": libraries, "FABRIC": "shm:{other}"}


@pytest.mark.parametrize(
    ("hostname", "variables", "here"),
    [
        ("cori07", {"NERSC_HOST": "cori"}, {"cori", "cori-haswell"}),
        ("login21", {"NERSC_HOST": "perlmutter"}, {"perlmutter"}),
        ("daint103", {}, {"piz-daint"}),
        ("daint-ln002", {"CLUSTER_NAME": "daint"}, {"alps-daint"}),
        ("login12.frontier.olcf.ornl.gov", {}, {"frontier"}),
        ("thetalogin5", {}, {"theta"}),
        ("polaris-login-02.hsn.cm.polaris.alcf.anl.gov", {}, {"polaris"}),
        ("x3212c0s37b1n0.hsn.cm.polaris.alcf.anl.gov", {}, {"polaris"}),
        ("aurora-uan-0009", {}, {"aurora"}),
        ("x4109c0s0b0n0", {}, {"aurora"}),
        ("cc037", {}, {"cooley"}),
        ("sn-nvda4", {}, {"seawulf"}),
        ("laptop", {"NERSC_HOST": ""}, set()),
    ],
)
def test_systems_recognise_themselves_and_no_other(hostname, variables, here):
    assert {name for name in CLUSTERS if load_system(name).recognises(hostname, variables)} == here


def test_a_retired_system_is_here_nowhere(monkeypatch):
    monkeypatch.setenv("NERSC_HOST", "cori")
    cori = load_system("cori")
    assert (cori.recognises(), cori.is_here()) == (True, False)
    assert cori.elsewhere == "cori was switched off in May 2023"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('value = "512 GB"', 'value = "512 GB/s"', "node.memory: '512 GB/s' is not in bytes"),
        ('value = "512 GB"', 'value = "0 GB"', "not positive"),
        ('{ value = 64, source = "lscpu"', '{ value = 0, source = "lscpu"', "greater than 0"),
        ('source = "lscpu", kind = "machine"', 'source = "lscpu", kind = "recalled"', "kind"),
        ('{ value = 64, source = "lscpu", kind = "machine" }', "64", "node.cores: input should be"),
        ('{ value = 64, source = "lscpu",', "{ value = 64,", "node.cores.source: field required"),
        (
            'lscpu = "lscpu on a compute node',
            'hwloc = "lscpu on a compute node',
            "node: cores names source 'lscpu', which [sources]",
        ),
        ("peak.bf16", "peak.half", "devices.peak.half.[key]: string should match pattern"),
        (
            'backend = "nccl"',
            'backend = "gloo"',
            "devices.backend: string should match pattern '^(nccl|xccl)$'",
        ),
        (
            'launcher = "srun"',
            'launcher = "jsrun"',
            "launcher: jsrun starts no programs where scheduler is slurm",
        ),
        ('"--partition=test"', '"#SBATCH --partition=test"', "is for the script or the study to say"),
        ('"--partition=test"', '"--nodes=4"', "'--nodes=4' is for the script or the study to say"),
        ("[node]", "[node", "is not valid TOML"),
        ('name = "', 'name = "../', "' cannot name a folder; give up to 120 letters"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, old, new, expected):
    found = problems(edited(tmp_path, (old, new)))
    assert expected in found
    assert "\n" not in found


SECTION = r"^\[{}\]\n.*?(?=^\[|\Z)"


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path, mistake):
    """Those of fields, those of rules that join fields, and what is missing."""
    path = edited(
        tmp_path,
        ('partition = "standard"', "#"),
        ('value = "512 GB"', 'value = "512 GB/s"'),
        ('"--partition=test"', '"--nodes=4"'),
    )
    text = Path(path).read_text()
    for name in ("placement", "filesystem"):
        text = re.sub(SECTION.format(name), "", text, flags=re.DOTALL | re.MULTILINE)
    Path(path).write_text(text)
    line = mistake("system", "show", path)
    for number, part in enumerate(
        (
            "node.memory: '512 GB/s' is not in bytes",
            'filesystem: it is missing; add [filesystem] with results = "$SCRATCH/dlscale"',
            "partitions.test.directives.0: '--nodes=4' is for the script or the study to say",
            "placement: it is missing; add [placement] with ranks_per_node = 1",
        ),
        1,
    ):
        assert f"({number}) {part}" in line


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("utf-8-sig", ""), ("utf-16", "correct that")],
)
def test_files_that_windows_wrote(tmp_path, encoding, expected):
    path = Path(edited(tmp_path))
    path.write_text(path.read_text(), encoding=encoding)
    assert problems(str(path)).endswith(expected)
    assert bool(expected) == bool(problems(str(path)))


def test_the_only_partition_is_the_default_one():
    content = load_system("template").model_dump(mode="json")
    del content["partition"], content["partitions"]["test"]
    assert System.model_validate(content).partition == "standard"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("show", "cory"), ["no system 'cory' (did you mean cori?)", "piz-daint"]),
        (("show", "nowhere.toml"), ["nowhere.toml cannot be read"]),
    ],
)
def test_unknown_systems_are_one_line(mistake, words, expected):
    line = mistake("system", *words)
    assert all(part in line for part in expected)


def test_list_has_a_row_for_each_system_with_stable_keys(dlscale):
    status, text, _ = dlscale("system", "list", "--json")
    rows = {row["system"]: row for row in json.loads(text)["rows"]}
    assert status == 0
    assert list(rows) == list(NAMES)
    assert rows["frontier"] == {
        "system": "frontier",
        "title": "Frontier (OLCF, HPE Cray EX)",
        "scheduler": "slurm",
        "num_nodes": 9856,
        "devices_per_node": 8,
        "device_model": "AMD Instinct MI250X, one of two dies",
        "state": "in service",
        "retired": None,
        "here": False,
    }
    assert (rows["local"]["here"], rows["local"]["num_nodes"]) == (True, None)
    assert rows["theta"]["retired"] == "switched off on 31 December 2023"


def test_a_system_is_one_line_of_the_list(dlscale, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, text, _ = dlscale("system", "list")
    lines = text.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert "…" not in text


def test_show_prints_a_file_that_has_every_fact_with_kind_and_source(dlscale):
    status, text, _ = dlscale("system", "show", "piz-daint")
    assert status == 0
    assert System.model_validate(tomllib.loads(text)) == load_system("piz-daint")


def test_show_prints_the_model_as_json(dlscale):
    status, text, _ = dlscale("system", "show", "cori", "--json")
    assert status == 0
    assert json.loads(text) == load_system("cori").model_dump(mode="json")
