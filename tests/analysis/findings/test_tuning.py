"""Searches of learning rates, from records with known numbers of samples and ends."""

import json

import pytest

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.findings import scaling, solution_table, tuning
from dlscale.analysis.findings.solution_plots import solution_figure
from dlscale.analysis.findings.solutions import unequal_tuning
from dlscale.analysis.findings.tuning import rate_searches
from dlscale.analysis.measured import measure
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.cli.study_report import Loaded
from dlscale.benchmarks.cli.tuned_file import put_tuned
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.study.study_file import StudyFile
from dlscale.benchmarks.study.tuned import read_tuned
from dlscale.benchmarks.systems.system import load_system
from tests.analysis.reading import data_of, screen_text
from tests.made_records import TARGET, make_record, solved

GRID = (1e-3, 2e-3, 4e-3)


def tried(rate, *outcomes, seconds=1.0, **fields):
    """Records of one rate and configuration: a training for each number of samples, or (samples, end)."""
    fields = {"backend": "ring", "num_ranks": 2} | fields
    target = TARGET | {"max_samples": 4000, "learning_rate": rate} | fields.pop("target", {})
    records = []
    for block, outcome in enumerate(outcomes):
        samples, end = outcome if isinstance(outcome, tuple) else (outcome, "reached")
        record = make_record(target=target, local_batch=16, block=block, **fields)
        last = {
            "step": samples // record.case.cell.global_batch,
            "samples": samples,
            "seconds": seconds,
            "auc": 0.95 if end == "reached" else 0.8,
        }
        records.append(solved(record, last, end=end))
    return records


def search(*groups, planned=()):
    records = [record for group in groups for record in group]
    table = measure(records, planned=planned)
    (found,) = rate_searches(solution_table.FINDING.of(table), scaling.FINDING.of(table))
    return found


BUDGET = (4000, "budget")


@pytest.mark.parametrize(
    ("outcomes", "best", "expected", "words"),
    [
        # Samples decide, whatever the clock says.
        ([[2000] * 3, [1000, 1200, 1100], [3000] * 3], 2e-3, 1100, "at the least expected number of samples"),
        # Two of three fast ones and one that took all its samples: (800 + 800 + 4000) / 2.
        ([[2000] * 3, [800, 800, BUDGET]], 1e-3, 2000, "do not tell it from 0.002"),
        ([[2000] * 3, [800, 800, (320, "diverged")]], 2e-3, 960, "(2 of 3 trainings did)"),
        ([[2000] * 2, [1000] * 2, [1000] * 2], 2e-3, 1000, "Equal: 0.004; the smallest is taken."),
        ([[500] * 3, [3000] * 3, [3000] * 3], 1e-3, 500, "the smallest of the grid"),
        ([[3000] * 3, [3000] * 3, [500] * 3], 4e-3, 500, "the largest of the grid"),
        ([[2000, (640, "budget")], [1000, BUDGET]], 1e-3, 2640, "The clock ended 1 training"),
        ([[BUDGET] * 2] * 3, None, None, "the closest had 0.8 at 0.001"),
        ([[BUDGET, (640, "budget")]] * 3, None, None, "The clock ended 3 trainings before the samples did"),
    ],
)
def test_the_least_expected_number_of_samples_wins(outcomes, best, expected, words):
    clocks = (1.0, 30.0, 0.1)
    found = search(
        *(
            tried(rate, *own, seconds=seconds)
            for rate, own, seconds in zip(GRID, outcomes, clocks, strict=False)
        )
    )
    assert (found.best and found.best.rate) == best
    assert (found.best and found.best.expected.center) == (expected and pytest.approx(expected))
    assert words in found.text
    assert (found.complete, found.num_trainings) == (True, sum(map(len, outcomes)))


@pytest.mark.parametrize(("samples", "told"), [(4000, True), (640, False)])
def test_the_load_of_a_machine_has_no_part_unless_the_clock_ends_a_training(samples, told):
    records = [*tried(1e-3, 2000), *tried(2e-3, (samples, "budget"))]
    windows = [[one.model_copy(update={"foreign_cpu": 0.4}) for one in record.windows] for record in records]
    busy = [record.model_copy(update={"windows": own}) for record, own in zip(records, windows, strict=True)]
    text = screen_text(measure(busy))
    assert ("do not depend on how busy the machine was" in text) == told


def test_no_rate_is_chosen_before_all_had_the_same_budget():
    first, second = tried(1e-3, 2000, 2000), tried(2e-3, 1000, 1000)
    planned = [record.case for record in (*first, *second)]
    found = search(first, second[:1], planned=planned)
    assert (found.complete, found.best) == (False, None)
    assert "3 of 4 trainings have a result, so no rate is chosen" in found.text
    found = search(first, planned=planned)
    assert [len(rate.trainings) for rate in found.tried] == [2, 0], "a rate without any record counts"


def test_configurations_are_searched_one_by_one_and_followed_rates_are_no_search():
    alone = {"backend": "none", "num_ranks": 1}
    records = [
        *tried(1e-3, 2000, 2000, **alone),
        *tried(2e-3, 900, 900, **alone),
        *tried(1e-3, 800, 800),
        *tried(2e-3, 1000, 1000),
    ]
    table = measure(records)
    found = rate_searches(solution_table.FINDING.of(table), scaling.FINDING.of(table))
    assert [(each.configuration.num_ranks, each.best.rate) for each in found] == [(1, 2e-3), (2, 1e-3)]
    followed = measure([*tried(1e-3, 900, 900, **alone), *tried(2e-3, 900, 900)])
    assert not tuning.FINDING.of(followed)


def test_each_rate_is_relative_to_the_same_one_on_1_rank():
    alone = {"backend": "none", "num_ranks": 1}
    records = [*tried(1e-3, 2000, 2000, **alone), *tried(2e-3, 1000, 1000, **alone)]
    records += [*tried(1e-3, 3000, 3000), *tried(2e-3, 4000, 4000)]
    found = [row for row in solution_table.FINDING.of(measure(records)) if row.cell.num_ranks == 2]
    ratios = {row.target.learning_rate: row.samples_ratio.center for row in found}
    assert ratios == {1e-3: pytest.approx(1.5), 2e-3: pytest.approx(4.0)}


def test_json_has_every_rate():
    table = measure([record for rate in GRID for record in tried(rate, 1000, 1000, 1000)])
    rows = json.loads(json.dumps(data_of(table)))["learning_rates"]
    assert [(row["learning_rate"], row["chosen"]) for row in rows] == [
        (1e-3, True),
        (2e-3, False),
        (4e-3, False),
    ]
    assert not data_of(measure(tried(1e-3, 1000)))["learning_rates"]


@pytest.fixture
def put(tmp_path, capsys):
    """Write tuned.toml as a report does; gives back the file, if there is one, and what was printed."""

    def write(records, planned=()):
        study = load_study("time-to-solution", axes={"learning_rate": list(GRID)})
        file = StudyFile(
            study=study, system=load_system("local"), environment="x", fingerprint=make_record().fingerprint
        )
        folder = tmp_path / "tuning-1a2b3c4d"
        folder.mkdir(exist_ok=True)
        (folder / "study.json").write_text(file.model_dump_json())
        table = measure(records, planned=planned)
        put_tuned(Loaded(folder=folder, study=table))
        path, printed = folder / "tuned.toml", capsys.readouterr()
        return read_tuned(path) if path.exists() else None, printed.out + printed.err

    return write


def test_the_file_has_the_rates_of_the_grid_and_what_the_search_took(put):
    """With scaling the rate that was used is not the one of 1 rank, which the grid and the file have."""
    linear, missed = {"scaling": "linear"}, [(4000, "budget")] * 3
    records = []
    for rate in GRID:
        records += tried(2 * rate, *[500 if rate == 2e-3 else 900] * 3, target=linear)
        records += tried(rate, *missed, backend="none", num_ranks=1, target=linear)
    tuned, said = put(records)
    assert (
        "tuned.toml (1 of 2 configurations); use it: dlscale run time-to-solution --set target.tuned=" in said
    )
    (found,) = tuned.rates
    assert (found.learning_rate, found.configuration.num_ranks, found.num_reached) == (2e-3, 2, 3)
    assert (tuned.study, tuned.learning_rates, tuned.num_seeds) == ("tuning-1a2b3c4d", list(GRID), 3)
    assert (tuned.num_trainings, tuned.max_samples, tuned.last_seed - tuned.first_seed) == (18, 4000, 2)
    assert tuned.seconds == pytest.approx(18 * (2.1 + 0.1 + 1.0 + 0.1))


def test_no_file_is_written_of_an_unequal_or_fruitless_search(put):
    first, second = tried(1e-3, 2000, 2000), tried(2e-3, 1000, 1000)
    planned = [record.case for record in (*first, *second)]
    found, said = put([*first, *second[:1]], planned)
    assert (found, said.count("\n")) == (None, 1)
    assert (
        "no tuned.toml: trainings of hep_cnn tiny in torch on 2 ranks with global batch 32 are missing"
        in said
    )
    found, said = put([record for rate in GRID for record in tried(rate, (4000, "budget"))])
    assert (found, "no tuned.toml: no rate reached the target; try other" in said) == (None, True)
    assert put(tried(1e-3, 1000)) == (None, ""), "a study of one rate says nothing"


def test_over_several_backends_each_cell_has_a_rate_of_its_own_or_the_one_that_came_closest(put):
    """Over servers, or with late gradients, updates are others, and so is the rate that suits them."""
    late = {"backend_options": {"pipelined": True}}
    records = [record for rate in GRID for record in tried(rate, 1000 if rate == 2e-3 else 2000)]
    records += [record for rate in GRID for record in tried(rate, 500 if rate == 4e-3 else 900, **late)]
    for rate in GRID:
        records += tried(rate, (4000, "budget"), backend="mpi_ps", num_servers=1)
    tuned, _ = put(records)
    found = {rate.configuration.text: rate.learning_rate for rate in tuned.rates}
    plain = "hep_cnn tiny in torch over ring on 2 ranks with global batch 32"
    assert found == {plain: 2e-3, plain.replace("ring", "ring (pipelined=True)"): 4e-3}
    (missed,) = tuned.missed
    assert (missed.configuration.backend, missed.learning_rate, missed.closest) == ("mpi_ps", 1e-3, 0.8)
    rates = {id(record): tuned.rate_of(record.case.cell) for record in records}
    assert set(rates.values()) == {1e-3, 2e-3, 4e-3}
    with pytest.raises(UsageError, match="no learning rate for hep_cnn tiny in torch on 2 ranks"):
        tuned.rate_of(tried(1e-3, 1000, backend="gloo")[0].case.cell)


def test_a_report_writes_the_file_and_fails_where_a_configuration_has_no_rate(put, tmp_path, capsys):
    alone = {"backend": "none", "num_ranks": 1}
    records = [record for rate in GRID for record in tried(rate, 1000, **alone)]
    put(records)
    (tmp_path / "tuning-1a2b3c4d" / "tuned.toml").unlink()
    store = Store(tmp_path / "tuning-1a2b3c4d")
    store.records_folder.mkdir()
    plan = [[record.case.model_dump(mode="json")] for record in records]
    study = json.loads((store.folder / "study.json").read_text())
    (store.folder / "study.json").write_text(json.dumps(study | {"launches": plan}))
    for record in records:
        store.add(record)
    assert status_of(["report", str(store.folder)]) == 0
    assert "learning rate 0.001 reaches" in " ".join(capsys.readouterr().out.split())
    assert read_tuned(store.folder / "tuned.toml").num_trainings == 3
    for record in (record for rate in GRID for record in tried(rate, (4000, "budget"))):
        store.add(record)
    assert status_of(["report", str(store.folder)]) == 4
    assert "(1 of 2 configurations)" in capsys.readouterr().out


def test_the_figure_draws_no_ideal_line_of_one_of_several_rates():
    alone = {"backend": "none", "num_ranks": 1}
    searched = [record for rate in GRID for record in [*tried(rate, 900, **alone), *tried(rate, 600)]]
    one_rate = [*tried(1e-3, 900, **alone), *tried(1e-3, 600)]
    for records, num_ideal in ((with_curve_names(searched, ())[0], 0), (one_rate, 1)):
        table = measure(records)
        figure = draw(solution_figure(table.families[0], solution_table.FINDING.of(table), table.provenance))
        assert [line.get_label() for line in figure.axes[1].lines].count("ideal") == num_ideal


def status_of(words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code or 0


def test_equal_cells_with_several_rates_are_named_by_them():
    alone = tried(1e-3, 900, backend="none", num_ranks=1)
    named, _ = with_curve_names([*tried(1e-3, 900), *tried(2e-3, 900), *alone], ())
    names = [record.case.cell.curve for record in named]
    assert names == ["ring, learning rate 0.001", "ring, learning rate 0.002", "none, learning rate 0.001"]
    followed = [*alone, *tried(2e-3, 900)]
    assert with_curve_names(followed, ())[0] == followed


TUNING = {
    "study": "tuning-1a2b3c4d",
    "num_rates": 5,
    "num_seeds": 3,
    "max_samples": 4000,
    "max_seconds": 60.0,
}


def test_results_say_how_their_rates_were_tuned():
    alone = {"backend": "none", "num_ranks": 1}
    records = [*tried(1e-3, 900, 900, **alone), *tried(2e-3, 900, 900, target={"tuning": TUNING})]
    table = measure(records)
    (headline,) = unequal_tuning(solution_table.FINDING.of(table))
    assert headline.endswith("not tuned: none on 1 rank; tuned: 5 rates x 3 seeds: ring on 2 ranks.")
    assert headline in screen_text(table)
    rows = data_of(table)["time_to_solution"]
    assert [(row["tuned"], row["tuning_rates"], row["tuning_seeds"]) for row in rows] == [
        (False, None, None),
        (True, 5, 3),
    ]


@pytest.mark.parametrize("target", [{}, {"tuning": TUNING}], ids=["not tuned", "tuned"])
def test_rates_that_were_tuned_alike_are_no_headline(target):
    assert not unequal_tuning(solution_table.FINDING.of(measure(tried(2e-3, 900, 900, target=target))))
