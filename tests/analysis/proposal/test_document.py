"""The same document in LaTeX and in markdown: what is escaped, and what is closed."""

import re

from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.declare import Column, Sentence, TableOf
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
    Picture(caption="Efficiency [%].", stem="a-efficiency"),
)


def test_both_have_all_of_it_with_markup_escaped():
    latex, markdown = to_latex(DOCUMENT), to_markdown(DOCUMENT)
    for part in (
        *("\\subsection{hep\\_cnn \\& more}", "Keeps 93\\,\\% [91, 95] of \\#1.", "\\item first\\_one"),
        *("\\includegraphics[width=\\linewidth]{a-efficiency.pdf}", "\\begin{tabular}{rl}"),
        # A bracket at the begin of a row is no option of the row before.
        *("{ranks} & {keeps 75\\,\\%} \\\\", "{2} & {surely} \\\\", "{[4]} & {not} \\\\"),
    ):
        assert part in latex
    for part in ("Keeps 93 % [91, 95] of #1.", "* first_one", "](a-efficiency.png)", "| 2 | surely |"):
        assert part in markdown


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
