"""`dlscale run algorithms`: a search for every cell, then the comparison with what it found."""

from types import SimpleNamespace

import pytest

from dlscale.benchmarks.cli import main, run_tuned
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.study.tuned import write_tuned
from tests.benchmarks.study.test_tuned import tuned_of

SMALL = (
    *("--backends", "ring", "--set", "algorithms=sync,easgd"),
    *("--set", "num_rates=2", "--set", "tuning.launches=1"),
)


@pytest.fixture
def compared(monkeypatch, tmp_path):
    """Run the verb without ranks; gives back its status and the campaigns that it would have run."""
    ran = []

    def run(campaign, *_, **__):
        ran.append(campaign)
        if campaign.plan.study.name == "tuning" and outcome["found"]:
            cells = {launch.cell.id: launch.cell for launch in campaign.plan.launches}
            campaign.store.folder.mkdir(parents=True)
            write_tuned(tuned_of(cells.values()), campaign.store.folder / "tuned.toml")
        return outcome["status"]

    def campaign(study, system, _):
        plan = expand(study, environment="x", shape=shape(study, system), data=None, policy=system.policy)
        store = SimpleNamespace(folder=tmp_path / study.name, summaries=dict)
        return SimpleNamespace(plan=plan, store=store, todo=lambda _: list(plan.launches))

    outcome = {"found": True, "status": 0}
    monkeypatch.setattr(run_tuned, "run_here", run)
    monkeypatch.setattr(run_tuned, "campaign_of", campaign)
    monkeypatch.setattr(run_tuned, "show_campaign", lambda *_, **__: None)

    def verb(*words, **changes):
        outcome.update(changes)
        with pytest.raises(SystemExit) as ended:
            main(["run", "algorithms", *words, "--results", str(tmp_path)])
        return ended.value.code, ran

    return verb


def test_the_comparison_has_the_rates_of_the_search_and_other_seeds(compared, capsys):
    status, (search, comparison) = compared(*SMALL, "--launches", "2")
    assert status == 0
    assert (len(search.plan.launches), len(comparison.plan.launches)) == (3 * 2, 3 * 2)
    assert {launch.cell.target.tuning.study for launch in comparison.plan.launches} == {"tuning-1a2b3c4d"}
    rates = {round(launch.cell.target.learning_rate, 9) for launch in comparison.plan.launches}
    assert rates == {1e-3}, "of the search's 0.001 and 0.002"
    assert search.plan.study.seed > comparison.plan.study.seed + 1000
    assert "learning rates: about" in capsys.readouterr().out


def test_a_plan_says_what_both_take_and_starts_nothing(compared, capsys):
    assert compared(*SMALL, "--dry-run") == (0, [])
    said = capsys.readouterr().out
    assert "; the comparison: about" in said


@pytest.mark.parametrize(("outcome", "status"), [({"status": 2}, 2), ({"found": False, "status": 4}, 4)])
def test_without_a_search_nothing_is_compared(compared, outcome, status):
    assert compared(*SMALL, **outcome)[0] == status
    assert len(compared(*SMALL, **outcome)[1]) == 2, "the search again, and no comparison"


def test_where_jobs_are_submitted_the_two_parts_are_two_commands(compared, capsys):
    assert compared("--system", "cori") == (1, [])
    assert (
        "submit dlscale run algorithms --set tuning.only=yes, and then dlscale run algorithms --set target.tuned=FILE"
        in capsys.readouterr().err
    )
