"""The recipes for centres name this version, its Python and the dependencies of pyproject.toml and constraints.txt."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parents[2]
PACKAGING = TOP / "packaging"
SPACK = PACKAGING / "spack/spack_repo/dlscale/packages"
PYPROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
VERSION = PYPROJECT["project"]["version"]
OLDEST_PYTHON = PYPROJECT["project"]["requires-python"].removeprefix(">=")
PINS = dict(
    line.split("==")
    for line in (TOP / "constraints.txt").read_text().split("\n")
    if line[:1] not in ("#", "")
)
# What their pages call the extras of the same name.
OPTIONAL = {"tensorflow": "tensorflow-cpu", "horovod": "horovod"}


def spack_calls(package):
    """Each directive of a Spack package: its name, its arguments and the type that `default_args` gives it."""
    tree = ast.parse((SPACK / package / "package.py").read_text())
    return [
        (
            call.func.id,
            [argument.value for argument in call.args],
            {key.arg: ast.unparse(key.value) for key in call.keywords},
        )
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and all(isinstance(argument, ast.Constant) for argument in call.args)
    ]


def spack_spec(requirement):
    """A requirement of pyproject.toml as Spack writes it: a range has its last version, too."""
    requirement = Requirement(requirement)
    bounds = {bound.operator: bound.version for bound in requirement.specifier}
    below = str(int(bounds["<"]) - 1) if "<" in bounds else ""
    name = canonicalize_name(requirement.name.removesuffix("-cpu"))
    prefix = "" if name in ("cmake", "ninja") else "py-"
    return f"{prefix}{name}@{bounds['>=']}:{below}"


def spack_dependencies():
    return [arguments[0] for name, arguments, _ in spack_calls("py_dlscale") if name == "depends_on"]


def easyconfig():
    """The variables of the EasyBuild recipe, which is Python without imports."""
    (path,) = (PACKAGING / "easybuild").glob("*.eb")
    variables = {}
    exec(path.read_text(), variables)  # noqa: S102 - a file of this repository
    return path, variables


def definition():
    return (PACKAGING / "apptainer/dlscale.def").read_text()


def test_spack_asks_for_what_pyproject_asks_for():
    extras = PYPROJECT["project"]["optional-dependencies"]
    requirements = [
        *PYPROJECT["project"]["dependencies"],
        *PYPROJECT["build-system"]["requires"],
        *(bound for name in OPTIONAL for bound in extras[name]),
    ]
    wanted = {spack_spec(requirement) for requirement in requirements} | {f"python@{OLDEST_PYTHON}:"}
    named = {re.match(r"[^ +]+", spec)[0] for spec in spack_dependencies()}
    assert named - wanted == {"c", "cxx", "mpi", "cmake@3.18:", "ninja"}
    assert wanted <= named


def test_spack_has_this_version():
    assert ("version", [VERSION], {}) in spack_calls("py_dlscale")
    assert f"dlscale-{VERSION}.tar.gz" in (SPACK / "py_dlscale/package.py").read_text()


@pytest.mark.parametrize("package", ["py_msgspec", "py_plotext", "py_rich_click"])
def test_spack_has_the_pinned_version_of_what_its_own_repository_lacks(package):
    (version,) = [arguments[0] for name, arguments, _ in spack_calls(package) if name == "version"]
    assert version == PINS[package.removeprefix("py_").replace("_", "-")]


def test_easybuild_installs_what_constraints_pin():
    path, variables = easyconfig()
    toolchain = variables["toolchain"]
    assert path.name == f"dlscale-{VERSION}-{toolchain['name']}-{toolchain['version']}.eb"
    assert variables["version"] == VERSION
    extensions = {canonicalize_name(name): version for name, version, _ in variables["exts_list"]}
    assert extensions.pop("dlscale") == VERSION
    pinned = {name: PINS[name] for name in extensions}
    assert {name: version.removesuffix("+cpu") for name, version in extensions.items()} == pinned


def test_easybuild_has_all_dependencies():
    _, variables = easyconfig()
    given = {
        canonicalize_name(name): version
        for name, version, *_ in variables["dependencies"] + variables["exts_list"]
    }
    requirements = PYPROJECT["project"]["dependencies"] + PYPROJECT["build-system"]["requires"]
    for requirement in map(Requirement, requirements):
        assert given[canonicalize_name(requirement.name)] in requirement.specifier
    assert given["python"] in Requirement(f"python{PYPROJECT['project']['requires-python']}").specifier


def test_the_container_installs_this_wheel_with_extras_that_exist():
    text = definition()
    tag = "cp" + OLDEST_PYTHON.replace(".", "")
    assert f"dist/dlscale-{VERSION}-{tag}-*.whl" in text
    assert f"Version {VERSION}\n" in text
    (extras,) = re.findall(r"\.whl\)\[([a-z,]+)\]", text)
    assert set(extras.split(",")) <= set(PYPROJECT["project"]["optional-dependencies"])
    assert "PIP_CONSTRAINT=constraints.txt" in text


def test_the_citation_has_this_version():
    assert f"\nversion: {VERSION}\n" in (TOP / "CITATION.cff").read_text()


def test_fragments_of_the_changelog_have_a_kind():
    kinds = "|".join(kind["directory"] for kind in PYPROJECT["tool"]["towncrier"]["type"])
    names = [path.name for path in (TOP / "changelog.d").iterdir() if path.name != "README.md"]
    assert not [name for name in names if not re.fullmatch(rf"\+[a-z0-9-]+\.({kinds})\.md", name)]
