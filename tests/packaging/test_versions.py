"""The container and the citation have the version of pyproject.toml, and fragments of the changelog a kind."""

import re
import tomllib
from pathlib import Path

TOP = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
VERSION = PYPROJECT["project"]["version"]
OLDEST_PYTHON = PYPROJECT["project"]["requires-python"].removeprefix(">=")


def test_the_container_installs_this_wheel_with_extras_that_exist():
    text = (TOP / "packaging/apptainer/dlscale.def").read_text()
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
