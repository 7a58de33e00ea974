"""The same document in LaTeX and in markdown: what is escaped, and what is closed."""

import re

from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.declare import Column, Sentence, TableOf, Value
from dlscale.analysis.proposal.document import Heading, Items, Picture, to_latex, to_markdown
from dlscale.analysis.text import escape_latex

DOCUMENT = (
    Heading(2, "hep_cnn & more"),
    Sentence(text="Keeps 93 % [91, 95] of #1."),
    Items(("first_one", "50 % of it")),
    TableOf[tuple[str, str]](
        name="x",
        caption="Per rank_count.",
        columns=(
            Column("ranks", lambda row: row[0]),
            Column("keeps 75 %", lambda row: row[1], numeric=False),
        ),
        data=lambda row: {"ranks": row[0]},
    ).of((("2", "surely"), ("[4]", "not"))),
    Picture(caption="Efficiency [%].", stem="a-efficiency", width=3.5),
)


def test_both_have_all_of_it_with_markup_escaped():
    latex, markdown = to_latex(DOCUMENT), to_markdown(DOCUMENT)
    for part in (
        *("\\subsection{hep\\_cnn \\& more}", "Keeps 93\\,\\% [91, 95] of \\#1.", "\\item first\\_one"),
        *("\\includegraphics[width=3.5in]{a-efficiency.pdf}", "\\begin{tabular}{rl}"),
        # A bracket at the begin of a row is no option of the row before.
        *("{ranks} & {keeps 75\\,\\%} \\\\", "{2} & {surely} \\\\", "{[4]} & {not} \\\\"),
    ):
        assert part in latex
    for part in ("Keeps 93 % [91, 95] of #1.", "* first_one", "](a-efficiency.png)", "| 2 | surely |"):
        assert part in markdown


def test_a_table_wider_than_a_page_is_several_of_8_pt_that_all_tell_their_rows_apart():
    wide = TableOf[str](
        name="w",
        caption="Wide.",
        columns=(
            *(Column(label, lambda row: row) for label in ("backend", "ranks")),
            *(Column(f"number {place}", lambda row: row * 5) for place in range(7)),
            Column("engine", lambda row: row, numeric=False, detail=True),
            Column("words", lambda row: row * 40, numeric=False),
            Column("doubts", lambda row: Value(text=row, notes=(f"{row}. " * 30,)), numeric=False),
        ),
        data=lambda row: {"row": row},
    ).of(["1.23", "4.56"])
    latex = to_latex([wide])
    assert "resizebox" not in latex
    assert "\\fontsize{8}" in latex
    tables = re.findall(r"\\begin\{tabular\}\{(.*?)\}\n(.*?)\\end\{tabular\}", latex, re.DOTALL)
    heads = [re.findall(r"\{(.*?)\}(?= [&\\])", lines.splitlines()[1]) for _, lines in tables]
    assert all(head[:2] == ["backend", "ranks"] for head in heads)
    assert [label for head in heads for label in head[2:]] == [
        *(f"number {place}" for place in range(7)),
        *("words", "doubts"),
    ]
    assert max(sum(map(len, head)) for head in heads) <= 78
    assert "p{1.7in}" in latex  # breaks its words
    assert "1: 1.23. 1.23." in latex  # a note has its number in the table


def test_environments_and_braces_are_closed():
    latex = to_latex(DOCUMENT)
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", latex):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    bare = re.sub(r"\\[{}]", "", latex)
    assert bare.count("{") == bare.count("}")


@given(st.text(max_size=200))
def test_no_text_is_a_command(text):
    shown = escape_latex(text)
    known = r"\\(?:text(?:backslash|asciitilde|asciicircum|less|greater|bar)\{\}|[{}#$%&_,])"
    rest = re.sub(known, "", shown)
    assert not set(rest) & set("\\{}#$%&_~^<>|")
    assert shown.isascii()
    assert "\n" not in shown
