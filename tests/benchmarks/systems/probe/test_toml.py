"""What is written is read back equal; comments never spoil a document."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.benchmarks.systems.probe.toml import TomlEntry, TomlTable, comment, document

TEXTS = [
    'say "no"',
    "C:\\nodes\\1",
    "Zürich, 東京 🖥",
    "a\tb\nc\rd",
    "\x00\x1f\x7f",
    "'''",
    "# no comment",
    "",
    "\\u0041",
]
KEYS = st.text(st.characters(codec="utf-8"), max_size=20)
LEAVES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)


@pytest.mark.parametrize("text", TEXTS)
def test_difficult_texts_are_read_back(text):
    written = document([TomlTable(("a", text), [TomlEntry(text or "empty", text, comment=text)])])
    assert tomllib.loads(written) == {"a": {text: {text or "empty": text}}}


@given(st.dictionaries(KEYS.filter(bool), VALUES, max_size=5), st.text())
def test_everything_is_read_back(values, remark):
    entries = [TomlEntry(key, one, comment=remark) for key, one in values.items()]
    assert tomllib.loads(document([TomlTable((), entries)])) == values


def test_half_a_surrogate_pair_is_replaced():
    assert tomllib.loads(document([TomlTable((), [TomlEntry("a", "x\ud800y", comment="\udcff")])])) == {
        "a": "x?y"
    }


def test_true_is_not_one():
    assert document([TomlTable((), [TomlEntry("yes", True), TomlEntry("one", 1)])]) == "yes = true\none = 1\n"


def test_tables_without_keys_are_comments_only():
    text = document([TomlTable(("a",), [TomlEntry(comment="why not")]), TomlTable((), [])])
    assert text == "# why not\n"


def test_long_comments_are_wrapped_and_lines_kept():
    lines = comment("word " * 60 + "\nlast\x07line")
    assert all(len(line) <= 110 and line.startswith("# ") for line in lines)
    assert lines[-1] == "# last line"
    assert len(lines) == 4
