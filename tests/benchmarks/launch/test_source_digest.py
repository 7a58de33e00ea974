"""Which code was measured: what a study runs of it, and the same sources compiled elsewhere, which are told apart."""

import ast
import json
from pathlib import Path

import pytest

from dlscale.benchmarks.launch import measured_code as module
from dlscale.benchmarks.launch.measured_code import BORROWED, MeasuredCode, changed_text, measured_code, owner

FILES = {
    "models/workload.py": "0",
    "models/hep_cnn/_torch.py": "1",
    "models/cosmogan/_torch.py": "2",
    "collectives/gloo.py": "3",
    "collectives/ring/engine.py": "4",
    "collectives/ring/_engine.so": "5",
    "collectives/tf_collective/__init__.py": "6",
    "benchmarks/rank/measure.py": "7",
}


def digest(*, workloads=("hep_cnn",), backends=("none", "gloo"), **changed):
    names = {Path(name).stem if "_torch" not in name else name.split("/")[1]: name for name in FILES}
    files = FILES | {names[key]: value for key, value in changed.items()}
    return MeasuredCode(files=files).of_study(workloads=workloads, backends=backends).source_digest


@pytest.mark.parametrize("changed", ["workload", "hep_cnn", "gloo", "measure"])
def test_what_a_study_runs_is_in_its_digest(changed):
    assert digest(**{changed: "changed"}) != digest()


@pytest.mark.parametrize("changed", ["cosmogan", "engine", "_engine"])
def test_another_workload_or_backend_makes_no_study_stale(changed):
    assert digest(**{changed: "changed"}) == digest()
    more = {"workloads": ("hep_cnn", "cosmogan"), "backends": ("none", "ring")}
    assert digest(**more, **{changed: "changed"}) != digest(**more)


def test_a_backend_that_runs_anothers_files_has_them_in_its_digest():
    borrowed = MeasuredCode(files=FILES).of_study(workloads=(), backends=("nccl",)).files
    assert "collectives/tf_collective/__init__.py" in borrowed


def test_no_workload_or_backend_imports_another_that_is_not_declared():
    top = Path(str(module.__file__)).parents[2]
    for name in measured_code().files:
        mine = owner(name)
        path = top / name
        if mine is None or path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.unparse(node) if isinstance(node, ast.Import | ast.ImportFrom | ast.Call) else ""
            for other in {owner(f"{package}/{rest}") for package, rest in modules_in(text)} - {None, mine}:
                assert other in BORROWED.get(mine, ()), f"{name} imports {other}"


def modules_in(text):
    """(package, rest) of modules of dlscale that an import statement, or a call that imports, names."""
    if not text.startswith(("from dlscale.", "import dlscale.", "importlib.import_module('dlscale.")):
        return
    words = text.replace("'", " ").replace("(", " ").replace(")", " ").replace(",", " ").split()
    base = next(word for word in words if word.startswith("dlscale."))
    names = words[words.index("import") + 1 :] if text.startswith("from") else []
    for whole in [base, *(f"{base}.{name}" for name in names)]:
        _, package, *rest = whole.split(".")
        yield package, "/".join(rest)


def test_files_that_changed_have_names():
    assert changed_text({"a": "1", "b": "1"}, {"a": "1", "b": "2"}) == "b"
    assert changed_text({}, {"a": "1"}) == "", "an older study did not record its files"
    assert changed_text(dict.fromkeys("abcde", ""), {"a": ""}) == "b, c, d and 1 more"


def test_this_installation_has_every_kind_of_file():
    names = set(measured_code().files)
    assert names > {"models/hep_cnn/_torch.py", "benchmarks/rank/measure.py", "benchmarks/records/spool.py"}
    assert {owner(name) for name in names} > {None, "hep_cnn", "ring", "gloo"}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installation of one module and one compiled file: its (source digest, code digest, compiler)."""

    def describe(*, python="x = 1", compiled="1", sources=None, compiler="GNU 12.2.0"):
        (tmp_path / "module.py").write_text(python)
        (tmp_path / "_engine.so").write_text(compiled)
        (tmp_path / module.BUILD_FILE).unlink(missing_ok=True)
        if sources:
            build = {"compiler": compiler, "sources": sources}
            (tmp_path / module.BUILD_FILE).write_text(json.dumps(build))
        files = [(name, tmp_path / name) for name in ("module.py", "_engine.so")]
        monkeypatch.setattr(module, "_files", lambda: iter(files))
        monkeypatch.setattr(module, "_native_folder", lambda: tmp_path)
        found = measured_code()
        return found.source_digest, found.code_digest, found.build.get("compiler")

    return describe


def test_the_same_sources_compiled_elsewhere(installed):
    here, elsewhere = installed(sources="s"), installed(sources="s", compiled="2", compiler="GNU 13.1.0")
    assert here[0] == elsewhere[0]
    assert here[1] != elsewhere[1]
    assert (here[2], elsewhere[2]) == ("GNU 12.2.0", "GNU 13.1.0")


def test_other_sources(installed):
    here = installed(sources="s")[0]
    assert installed(sources="t")[0] != here
    assert installed(sources="s", python="x = 2")[0] != here


def test_a_build_that_does_not_tell_its_sources_is_known_by_its_bytes(installed):
    assert installed()[2] is None
    assert installed()[0] != installed(compiled="2")[0]
    assert installed()[0] == installed()[0]
