"""One word, one thing (docs/metrics.md): reserved words, names of files, and how docstrings begin."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOLDERS = ("base", "benchmarks", "collectives", "models", "analysis")
SOURCES = [path for folder in FOLDERS for path in sorted((TOP / folder).rglob("*.py"))]
TREES = {path.relative_to(TOP).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
RESERVED = (
    *("Launch", "Case", "Job", "Plan", "Control", "Exchange", "Row"),
    *("Record", "Cell", "Study", "Window"),
)
VAGUE_FILES = {"words.py", "rows.py", "helpers.py", "utils.py"}
FRAGMENTS = ("Of ", "As ", "Those ")


def test_a_reserved_word_is_the_name_of_one_class():
    places = defaultdict(list)
    for place, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in RESERVED:
                places[node.name].append(place)
    twice = {word: where for word, where in places.items() if len(where) > 1}
    assert twice == {}


def test_every_reserved_word_is_in_the_glossary():
    glossary = (TOP / "docs" / "metrics.md").read_text().split("\n## Glossary\n")[1]
    assert [word for word in RESERVED if f"| {word.lower()} |" not in glossary] == []


def test_a_file_is_named_for_its_concept():
    assert [place for place in TREES if Path(place).name in VAGUE_FILES] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_are_whole(folder):
    begun = [
        f"{place}:{node.body[0].lineno}"
        for place, tree in TREES.items()
        if place == folder or place.startswith(f"{folder}/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").startswith(FRAGMENTS)
    ]
    assert begun == []
