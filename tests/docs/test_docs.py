"""What the documents name exists, and what exists is named."""

import contextlib
import itertools
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dlscale.analysis.load import Study
from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import VERBS, cli
from dlscale.benchmarks.cli.options import OPTIONS
from dlscale.benchmarks.study import settings
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities
from dlscale.collectives.compression import Compression
from dlscale.collectives.registry import backend_module
from dlscale.collectives.ring.settings import Settings
from dlscale.models import NAMES as WORKLOADS
from dlscale.models.frameworks import FRAMEWORKS
from docs import reference
from docs.reference import REGENERATE, with_backends
from tests.made_records import make_record

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text()
ARCHITECTURE = (TOP / "docs" / "architecture.md").read_text()
DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")


def section(title: str) -> str:
    return ARCHITECTURE.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "names"), [("Workloads", WORKLOADS), ("Systems", definitions.names("systems"))]
)
def test_every_name_has_a_row_and_every_row_a_name(title, names):
    rows = re.findall(r"^\| `([a-z0-9_-]+)` \|", section(title), re.MULTILINE)
    assert sorted(rows) == sorted(names)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("README.md", BACKENDS),
        ("README.md", WORKLOADS),
        ("docs/own-model.md", WORKLOADS),
        ("docs/quick-start.md", definitions.names("study/studies")),
    ],
)
def test_a_page_names_all_of_a_kind(page, names):
    text = (TOP / page).read_text()
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_readme_fits_on_a_few_screens():
    assert len(README.splitlines()) <= 85


def test_the_readme_marks_the_frameworks_and_gpus_of_each_backend():
    header, _, *rows = re.search(r"^\| \| `none`.*\n(\|.*\n)+", README, re.MULTILINE)[0].splitlines()
    columns = [cell.strip("` ") for cell in header.split("|")[2:-1]]
    assert columns == list(BACKENDS)
    marks = {
        row.split("|")[1].strip("` "): [
            name for name, cell in zip(columns, row.split("|")[2:], strict=False) if cell.strip()
        ]
        for row in rows
    }
    assert marks.pop("on GPUs") == [name for name in BACKENDS if "gpu" in capabilities(name).devices]
    assert marks == {
        framework: [name for name in BACKENDS if framework in capabilities(name).frameworks]
        for framework in FRAMEWORKS
    }


def test_every_make_target_is_documented():
    targets = re.findall(r"^([a-z-]+):.*##", (TOP / "Makefile").read_text(), re.MULTILINE)
    named = {word for _, words, _ in shown("make") for word in words}
    assert [target for target in targets if target not in named and target != "help"] == []


def test_the_index_and_the_site_have_every_page():
    index = re.findall(r"\]\(([^)#]+)\)", (TOP / "docs" / "README.md").read_text())
    site = re.findall(r"^      - .*: (\S+)$", (TOP / "mkdocs.yml").read_text(), re.MULTILINE)
    assert site == index
    pages = {str(page.relative_to(TOP / "docs")) for page in PAGES if TOP / "docs" in page.parents}
    listed = {name for name in pages if not name.startswith("decisions/")} - {"README.md"}
    assert set(index) - {"decisions/README.md"} == listed


def test_the_supported_versions_are_those_declared_and_pinned():
    rows = re.findall(
        r"^\| (\S+) \| (>=\S+) \| (\S+) \|$", (TOP / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    declared = (TOP / "pyproject.toml").read_text()
    pinned = (TOP / "constraints.txt").read_text().splitlines()
    assert rows
    for name, oldest, version in rows:
        assert f'"{name}{oldest}"' in declared
        assert f"{name}=={version}" in pinned


def test_the_page_of_gpus_has_the_backends_and_checks_that_there_are():
    text = (TOP / "docs" / "gpu.md").read_text()
    table = text.partition("| backend | on GPUs |")[2].partition("\n\n")[0]
    found = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])]
    on_gpus = [name for name in BACKENDS if "gpu" in capabilities(name).devices]
    assert sorted(found) == sorted(on_gpus)
    for name in set(BACKENDS) - set(on_gpus):
        assert f"`{name}` is refused" in text
    for path in re.findall(r"`((?:tests|collectives)/\S+)`", text):
        assert (TOP / path).exists(), path
    # What `make gpu-check` tries is asked of the same table, so no backend of the page is left out of it.
    check = (TOP / "tests" / "gpu" / "check.py").read_text()
    assert '"gpu" in row.devices' in check


def test_the_table_of_backends_is_that_of_doctor():
    page = (TOP / "docs" / "comparing.md").read_text()
    assert with_backends(page) == page, f"run: {REGENERATE}"


@pytest.mark.parametrize("name", BACKENDS)
def test_the_page_of_backends_names_their_options(name):
    module = backend_module(name)
    kinds = getattr(module, "OPTION_KINDS", ()) or (module.Options,)
    # Those of compression and of the ring's engine are on pages of their own.
    own = {each.name for kind in kinds if kind not in (Compression, Settings) for each in fields(kind)}
    options = (TOP / "docs" / "comparing.md").read_text().partition("## Options\n")[2]
    row = re.search(rf"^\| `{name}` \|(.*)\|$", options, re.MULTILINE)[1]
    assert set(re.findall(r"`(\w+)`", row)) == own


def test_the_example_of_a_finding_is_one():
    page = (TOP / "docs" / "adding.md").read_text().partition("\n## A finding\n")[2]
    names = {"__name__": "peaks"}
    exec(re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1], names)  # noqa: S102
    finding = names["FINDING"]
    assert finding.exported(finding.of(Study([]))).empty
    assert {*finding.columns} <= {*finding.of(Study([make_record()]))}


def anchors(page):
    """The names that a link into a page may have: those of its headings, and those that it gives itself."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = [heading.lower() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    named = {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_lead_somewhere():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#: ]*)#?([^): ]*)\)", page.read_text()):
            found = page.parent / target if target else page
            assert found.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(found), f"{page}: {target}#{anchor}"


@pytest.mark.nightly
def test_the_documents_build_as_a_site():
    done = subprocess.run(["make", "docs"], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (TOP / "site" / "quick-start.html").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb):
    said = CliRunner().invoke(cli, [verb, "--help"])
    assert said.exit_code == 0
    assert re.search(rf"Examples?:.*dlscale {verb}", said.output, re.DOTALL)


@pytest.mark.parametrize(
    "line",
    [
        line
        for line in (README + (TOP / "docs" / "quick-start.md").read_text()).splitlines()
        if line.startswith("dlscale run") and "mine.py" not in line
    ],
)
@pytest.mark.requires("mpiexec", "ring")
def test_commands_of_the_first_pages_can_be_planned(line, tmp_path):
    words = shlex.split(line, comments=True)[1:]
    command = [DLSCALE, *words, *([] if "--dry-run" in words else ["--dry-run"]), "--results", str(tmp_path)]
    assert re.search(
        "mpiexec|srun", subprocess.run(command, capture_output=True, text=True, check=True, cwd=TOP).stdout
    )


PAGES = (TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md")))


def shown(program):
    """(page, words, whole) of each command line of a program: whole lines in blocks of code, and parts in sentences."""
    for page in PAGES:
        text = page.read_text()
        for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if match := re.match(rf"(?:time )?(?:\S*/)?{program}( .*)", line):
                    yield page.name, shlex.split(match[1], comments=True), True
        sentences = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        for part in re.findall(rf"`(?:time )?(?:\S*/)?{program}( [^`]+)`", sentences):
            yield page.name, shlex.split(part.replace("\\|", "|"), comments=True), False


def command_of(words):
    """The verb, or the verb's own verb, that words call; a verb that went raises UsageError."""
    context = click.Context(cli)
    command, rest = cli, words
    while isinstance(command, click.Group) and rest and re.match("[a-z]", rest[0]):
        if command.name == "collectives" and rest[0] not in command.commands:
            break
        command, rest = command.get_command(context, rest[0]), rest[1:]
    return command, rest


def check_command(words, *, whole):
    command, rest = command_of(words)
    if whole:
        with contextlib.suppress(click.exceptions.Exit):
            command.make_context(command.name, list(rest), parent=click.Context(cli))
    known = {name for option in command.params for name in option.opts} | {"--help", "--version"}
    own = rest[: rest.index("--")] if "--" in rest else rest
    assert {word.partition("=")[0] for word in own if word.startswith("--")} <= known
    values = [word for before, word in itertools.pairwise(own) if before == "--set"]
    # NAME=VALUE stands for itself.
    settings.assigned([word for word in values if "=" in word and "NAME" not in word], OPTIONS)


def test_commands_of_the_documents_have_verbs_options_and_settings_that_exist():
    wrong = []
    for page, words, whole in shown("dlscale"):
        try:
            check_command(words, whole=whole)
        except (AssertionError, UsageError, click.ClickException) as error:
            wrong.append(f"{page}: dlscale {' '.join(words)}: {error}")
    assert wrong == []


def test_targets_and_variables_of_make_in_the_documents_exist():
    makefile = (TOP / "Makefile").read_text()
    variables = {
        *re.search(r"^KNOWN := \$\(VARIABLES\) (.*)", makefile, re.MULTILINE)[1].split(),
        *reference.make_variables().split(),
    }
    environments = re.search(r"^ENVIRONMENTS := (.*)", makefile, re.MULTILINE)[1].split()
    for page, words, _ in shown("make"):
        for word in words:
            name, given, _ = word.partition("=")
            known = name in variables if given else word in environments
            assert known or re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), (page, word)


def test_commands_of_every_page_are_looked_at():
    assert {"README.md", "gpu.md", "jobs.md", "comparing.md"} <= {page for page, *_ in shown("dlscale")}
    assert {"README.md", "algorithms.md", "CONTRIBUTING.md"} <= {page for page, *_ in shown("make")}
