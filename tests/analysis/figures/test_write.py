"""The four forms of a figure: what is in their metadata, and that a redraw gives the same bytes."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.figures.write import save_drawing, save_figure
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.heat_maps import heat_map_figure
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.throughput import throughput_figure
from dlscale.analysis.form import SCREEN
from dlscale.analysis.measured import measure
from dlscale.analysis.provenance import Provenance, printable, provenance
from dlscale.benchmarks.records.record import Record
from tests.made_records import make_record, make_study

TOP = Path(__file__).parents[3]
FORMS = (".png", ".pdf", ".svg", ".csv")
SVG = "{http://www.w3.org/2000/svg}"
DUBLIN = "{http://purl.org/dc/elements/1.1/}"
COMMANDS = {
    "plain": "mpiexec -n 2 ./.venv/bin/python -m dlscale.benchmarks.rank.worker (a) 'b\\c'",
    "Latin-1": "srun --comment=größer",
    "any": "srun '<script>&amp;]]></dc:description>' --> \x00\x1b[31m\r\nnext\u2028\u202e ☃ \U0001f600 ü (a\\b)",
}


def with_markers(records, stem):
    """A figure with markers, saved."""
    table = measure(records)
    (family,) = table.families
    declared = throughput_figure(family, rows_of(scaling.FINDING.of(table), family), table.provenance)
    with drawing():
        return save_drawing(
            draw(declared), stem, title="<a> & b", rows=declared.rows, provenance=table.provenance
        )


def drawn(records, folder):
    """A figure with markers and one with an image, saved."""
    table = measure(records)
    heat_map = heat_map_figure(table, table.families[0], SCREEN)
    return with_markers(records, folder / "a") + save_figure(heat_map, folder / "b", table.provenance)


def parse_xml(content):
    return ElementTree.fromstring(content)  # noqa: S314


def pdf_text(content, key):
    """The string of this key in a PDF's information dictionary."""
    start = content.index(b"/%s (" % key) + len(key) + 3
    escaped = re.compile(rb"(?:[^\\()]|\\.)*", re.DOTALL).match(content, start).group()
    names = {b"n": b"\n", b"r": b"\r"}
    text = re.sub(rb"\\(.)", lambda found: names.get(found[1], found[1]), escaped, flags=re.DOTALL)
    return text.decode("utf-16" if text.startswith(b"\xfe\xff") else "ascii")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_form_says_where_it_is_from(tmp_path, command):
    records = [one.model_copy(update={"command": command}) for one in make_study(num_blocks=3)]
    png, pdf, svg, table = with_markers(records, tmp_path / "x")
    assert (png.suffix, pdf.suffix, svg.suffix, table.suffix) == FORMS
    where = provenance(records)
    line = where.line()
    assert line.isprintable()
    assert f"commit 0123456789ab; data sha256 {where.data_hash}; command {printable(command)}" in line
    with Image.open(png) as image:
        assert (image.text["Title"], image.text["Description"]) == ("<a> & b", line)
    assert pdf_text(pdf.read_bytes(), b"Title") == "<a> & b"
    assert pdf_text(pdf.read_bytes(), b"Keywords") == line
    tree = parse_xml(svg.read_bytes())
    assert [one.text for one in tree.iter(f"{SVG}title")] == ["<a> & b"]
    assert [one.text for one in tree.iter(f"{DUBLIN}description")] == [line]
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["data_hash"] for row in rows} == {where.data_hash}
    assert {row["commit"] for row in rows} == {"0123456789ab"}
    assert [row["command"] for row in rows] == [printable(command), *[""] * (len(rows) - 1)]


def test_an_svg_needs_no_font_no_other_file_and_no_date(tmp_path):
    files = drawn(make_study(num_blocks=3), tmp_path)
    for path in (path for path in files if path.suffix == ".svg"):
        tree = parse_xml(path.read_bytes())
        assert not list(tree.iter(f"{SVG}text"))
        assert not list(tree.iter(f"{DUBLIN}date"))
        links = [value for one in tree.iter() for name, value in one.items() if name.endswith("href")]
        assert links
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert "<image" in path.read_text()


@pytest.mark.slow
def test_other_processes_write_the_same_bytes(tmp_path):
    records = make_study(num_blocks=3)
    source = tmp_path / "records"
    source.write_text("\n".join(record.model_dump_json() for record in records[::-1]))
    here = drawn(records, tmp_path)
    started = []
    for seed in ("1", "77"):
        folder = tmp_path / seed
        folder.mkdir()
        variables = os.environ | dict.fromkeys(("PYTHONHASHSEED", "SOURCE_DATE_EPOCH"), seed)
        program = [sys.executable, "-m", "tests.analysis.figures.test_write", str(source), str(folder)]
        started.append((folder, subprocess.Popen(program, env=variables, cwd=TOP)))
    for folder, process in started:
        assert process.wait(timeout=100) == 0
        for path in here:
            assert (folder / path.name).read_bytes() == path.read_bytes(), path.name


def test_of_many_commands_three_are_told():
    records = [
        make_record(block=block).model_copy(update={"command": f"run {block % 30:02}"}) for block in range(60)
    ]
    found = provenance(records)
    assert found.command() == "run 00; run 01; run 02; and 27 more"
    assert found.line() == f"{found.short_line()}; command {found.command()}"
    assert found == provenance(records[::-1])


def test_a_command_does_not_fill_the_file_and_none_is_not_told():
    facts = {"studies": ("s",), "systems": ("t",), "commits": ("c",), "data_hash": "d"}
    endless = Provenance(**facts, commands=("x" * 200_000,))
    assert endless.command() == "x" * 2000 + "... (200000 characters)"
    assert Provenance(**facts, commands=()).line() == "study s; system t; commit c; data sha256 d"


@given(st.text(st.characters(exclude_categories=())))
def test_printable_text_is_one_line_that_xml_can_hold(text):
    found = printable(text)
    assert found.splitlines() in ([found], [])
    assert (found == text) == text.isprintable()
    node = ElementTree.Element("a")
    node.text = found
    assert (parse_xml(ElementTree.tostring(node, "utf-8")).text or "") == found


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    drawn([Record.model_validate_json(line) for line in lines], Path(sys.argv[2]))
