"""A test for ReFrame: what it runs can be run, what it reads is there, and nobody's words break out."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlscale.analysis.findings import scaling
from dlscale.analysis.measured import measure
from dlscale.analysis.render.data import SCHEMA
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import export as exports
from dlscale.benchmarks.cli.export_reframe import reframe_test, run_words
from dlscale.benchmarks.cli.run import run as run_verb
from tests.made_records import make_record

NASTY = """a b'$HOME"`id`\\n@NAME@; #"""


def made(*, scheduled=False, sizes=(1, 2), title="Weak scaling", valid_systems=("*",), job=None, more=()):
    words = run_words("weak-scaling", "local", sizes, ("none", "ring"), scheduled=scheduled, more=more)
    return reframe_test(
        "weak-scaling", title=title, words=words, valid_systems=valid_systems, minutes=22, job=job or {}
    )


def export(command, *words):
    done = CliRunner().invoke(command, words, standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def fields_of(text):
    """The literal fields of the only test in a ReFrame file."""
    (test,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assigned = [node for node in test.body if isinstance(node, ast.Assign)]
    return test.name, {node.targets[0].id: ast.literal_eval(node.value) for node in assigned}


def words_of(text):
    """What the shell makes of the words in a ReFrame file's job script."""
    return shlex.split(" ".join(fields_of(text)[1]["executable_opts"]))


def options_of(words):
    """The words as `dlscale run` understands them."""
    assert words[0] == "run"
    with run_verb.make_context("run", words[1:]) as context:
        return context.params


def test_reframe_runs_the_study():
    text = made(valid_systems=["cori:knl", "daint:gpu"])
    name, fields = fields_of(text)
    assert name == "dlscale_weak_scaling"
    assert fields["valid_systems"] == ["cori:knl", "daint:gpu"]
    assert fields["time_limit"] == "22m"
    assert "num_tasks" not in fields
    options = options_of(words_of(text))
    assert (options["study"], options["system"]) == ("weak-scaling", "local")
    assert (options["ranks"], options["backends"]) == ([1, 2], ["none", "ring"])
    assert options["results"] == Path("results")


def test_a_scheduled_run_uses_the_allocation_it_is_in():
    text = made(scheduled=True, sizes=(1, 4, 16), job={"num_tasks": 64, "exclusive_access": True})
    fields = fields_of(text)[1]
    assert (fields["num_tasks"], fields["exclusive_access"]) == (64, True)
    options = options_of(words_of(text))
    assert (options["nodes"], options["in_allocation"]) == ([1, 4, 16], True)


def test_reframe_reads_what_a_report_has():
    text = made()
    (row,) = map(scaling.scaling_row, scaling.FINDING.of(measure([make_record()])))
    read = set(re.findall(r"row\['(\w+)'\]", text)) | {
        name
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "ROW"
        for name in ast.literal_eval(node.value)
    }
    assert {"samples_per_second", "num_launches", "num_planned", "backend"} <= read <= set(row)
    assert f"!= {SCHEMA}:" in text


def test_names_of_numbers_tell_cells_apart():
    tree = ast.parse(made())
    parts = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.Assign)) or ast.unparse(node) == "import re"
    ]
    names: dict = {}
    exec(compile(ast.Module(parts, []), "test", "exec"), names)  # noqa: S102 - our own file, without ReFrame's part
    records = [
        make_record(backend="grpc_ps", num_ranks=ranks, num_servers=servers, backend_options=options)
        for ranks in (1, 2)
        for servers in (1, 2)
        for options in ({}, {"asynchronous": True})
    ]
    found = [names["label"](scaling.scaling_row(row)) for row in scaling.FINDING.of(measure(records))]
    assert len(set(found)) == 8
    assert "hep_cnn_torch_grpc_ps_default_1n_2r_1s" in found


@pytest.mark.parametrize("word", [NASTY, "a\nb", ""])
def test_words_reach_dlscale_as_they_are(word):
    assert words_of(made(more=("--data", word)))[-2:] == ["--data", word]


def test_titles_break_out_of_nothing():
    text = made(title='x """\nimport os\n# \\ on this machine')
    assert fields_of(text)[1]["descr"].endswith("on this machine")


def test_the_verb_knows_sizes_and_time(tmp_path):
    out = tmp_path / "new" / "test.py"
    export(exports.reframe, "cori", "--nodes", "1,2", "--out", str(out), "--", "--budget", "20min")
    fields = fields_of(out.read_text())[1]
    assert (fields["num_tasks"], fields["time_limit"], fields["exclusive_access"]) == (2, "70m", True)
    assert {"num_tasks_per_node", "num_cpus_per_task"} <= set(fields)
    with pytest.raises(UsageError, match="exists"):
        export(exports.reframe, "cori", "--out", str(out))


def test_files_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = 'name = "own"\ntitle = "Own"\nscaling_mode = "weak"\nworkloads = ["hep_cnn"]\nframeworks = ["torch"]\n'
    Path("own study.toml").write_text(
        own + 'backends = ["none"]\nprecision = "fp32"\nlaunches = 6\nbudget = "1min"\n'
    )
    text = export(exports.reframe, "local", "--study", "own study.toml")
    assert words_of(text)[1] == str(tmp_path / "own study.toml")
    assert fields_of(text)[0] == "dlscale_own_study"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nowhere"], "no system 'nowhere'"),
        (["local", "--study", "nothing"], "no study 'nothing'"),
        (["local", "--nodes", "2"], "use --ranks"),
        (["cori", "--ranks", "2"], "use --nodes"),
        (["cori", "--nodes", "100000"], "100000 nodes"),
        (["local", "--backends", "smoke"], "no backend 'smoke'"),
        (["local", "--", "--budgt", "1s"], "--budgt"),
        (["local", "--", "--ranks", "2"], "sets itself"),
        (["local", "--", "--results", "x"], "sets itself"),
        (["local", "--", "--account", "m1"], "has no scheduler"),
        (["local", "--", "--help"], "dlscale run --help"),
    ],
)
def test_mistakes(words, problem):
    with pytest.raises(Exception, match=re.escape(problem)) as raised:
        export(exports.reframe, *words)
    assert type(raised.value).__name__ in ("UsageError", "NoSuchOption")
