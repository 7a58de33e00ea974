"""The same document in LaTeX and in markdown."""

import re

from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.declare import Column, TableOf
from dlscale.analysis.proposal.document import (
    Heading,
    Items,
    Paragraph,
    Picture,
    escape_latex,
    to_latex,
    to_markdown,
)

DOCUMENT = (
    Heading(1, "Scalability"),
    Heading(2, "hep_cnn & more"),
    Paragraph("Keeps 93 % [91, 95] of #1."),
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
    Picture(label="fig:x", caption="Efficiency [%].", stem="a-efficiency"),
)


def test_both_have_all_of_it():
    latex, markdown = to_latex(DOCUMENT), to_markdown(DOCUMENT)
    assert "\\section{Scalability}" in latex
    assert "## Scalability" in markdown
    assert "\\subsection{hep\\_cnn \\& more}" in latex
    assert "Keeps 93\\,\\% [91, 95] of \\#1." in latex
    assert "Keeps 93 % [91, 95] of #1." in markdown
    assert "\\item first\\_one" in latex
    assert "* first_one" in markdown
    assert "\\includegraphics[width=\\linewidth]{a-efficiency.pdf}" in latex
    assert "](a-efficiency.png)" in markdown
    assert "| 2 | surely |" in markdown
    assert "\\begin{tabular}{rl}" in latex


def test_a_bracket_at_the_begin_of_a_row_is_no_option_of_the_row_before():
    rows = [line.strip() for line in to_latex(DOCUMENT).splitlines() if line.strip().endswith("\\\\")]
    assert rows == ["{ranks} & {keeps 75\\,\\%} \\\\", "{2} & {surely} \\\\", "{[4]} & {not} \\\\"]


def test_environments_and_braces_are_closed():
    latex = to_latex(DOCUMENT)
    open_ones = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", latex):
        if kind == "begin":
            open_ones.append(name)
        else:
            assert open_ones.pop() == name
    assert not open_ones
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


def test_what_is_escaped_can_be_read_again():
    assert escape_latex("a_b 5 % {x} \\y") == "a\\_b 5\\,\\% \\{x\\} \\textbackslash{}y"
