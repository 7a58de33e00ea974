"""`dlscale run frameworks`: what it would run, and its answer from records that are there."""

import json
from types import SimpleNamespace

import pytest
from PIL import Image

from dlscale.benchmarks.cli import main, run_frameworks
from dlscale.benchmarks.cli.run_frameworks import prepare
from dlscale.benchmarks.records.preparation import read_preparations
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
from tests.made_records import make_record, write_study

STUDY = "strong-scaling-28ec6089"


@pytest.fixture
def compared(monkeypatch, tmp_path):
    """Run the verb without ranks; gives back its status and the campaigns that it would have run."""
    ran, answered = [], []

    def run(campaign, *_, **__):
        ran.append(campaign)
        return outcome["status"]

    def campaign(study, system, options):
        plan = expand(
            study, environment="x", shape=shape(study, system), data=options.data, policy=system.policy
        )
        store = SimpleNamespace(folder=tmp_path / study.name, summaries=dict)
        return SimpleNamespace(plan=plan, store=store, todo=lambda _: list(plan.launches))

    def answer(folders, _, job_seconds, **__):
        answered.append(([folder.name for folder in folders], job_seconds))
        return 0

    outcome = {"status": 0}
    monkeypatch.setattr(run_frameworks, "run_here", run)
    monkeypatch.setattr(run_frameworks, "campaign_of", campaign)
    monkeypatch.setattr(run_frameworks, "show_campaign", lambda *_, **__: None)
    monkeypatch.setattr(run_frameworks, "answer", answer)

    def verb(*words, **changes):
        outcome.update(changes)
        with pytest.raises(SystemExit) as ended:
            main(["run", "frameworks", *words, "--results", str(tmp_path)])
        return ended.value.code, ran, answered

    return verb


def test_speed_is_measured_then_losses_on_the_most_ranks(compared):
    status, (speed, losses), answered = compared("--ranks", "1,2", "--set", "job_limit=10min")
    assert (status, answered) == (0, [(["frameworks", "framework-losses"], 600.0)])
    cells = {launch.cell.id: launch.cell for launch in speed.plan.launches}.values()
    programs = {(cell.framework, cell.compiled) for cell in cells}
    assert len(programs) == 4
    assert len(cells) == 8
    assert len(speed.plan.launches) == 8 * 8, "six comparisons need eight launches of each"
    assert {launch.cell.num_ranks for launch in losses.plan.launches} == {2}
    assert all(launch.cell.target for launch in losses.plan.launches)
    assert len(losses.plan.launches) == 4 * 6
    assert losses.plan.study.rules.checkpoint_every, "the price of a checkpoint"


def test_more_comparisons_get_more_launches_and_what_has_no_target_is_named(compared, capsys):
    words = ("--ranks", "2", "--workloads", "hep_cnn,cosmogan", "--dry-run")
    assert compared(*words)[:2] == (0, [])
    said = capsys.readouterr().out
    assert "no trainings of cosmogan: it has no target here; run them with --workloads cosmogan" in said
    assert "speed by framework: about" in said
    assert "loss by framework: about" in said
    _, (speed, losses), _ = compared(*words[:-1])
    assert speed.plan.num_launches == 9, "twelve comparisons"
    assert {launch.cell.workload for launch in losses.plan.launches} == {"hep_cnn"}


def test_options_go_to_the_study_that_has_them(compared):
    words = "--ranks 2 --target auc=0.9 --budget 5min --launches 2 --set compiled=no"
    _, (speed, losses), _ = compared(*words.split())
    assert (speed.plan.study.budget, losses.plan.study.budget) == (300.0, None)
    assert (speed.plan.study.target, losses.plan.study.target.threshold) == (None, 0.9)
    assert {launch.cell.compiled for launch in speed.plan.launches} == {False}
    _, ran, _ = compared("--ranks", "2", "--set", "losses=no")
    assert len(ran) == 3, "the two before, and speed alone"


def test_failed_cases_are_answered_and_told(compared):
    status, ran, answered = compared("--ranks", "2", status=2)
    assert (status, len(ran), len(answered)) == (2, 2, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "job_limit=soon"), "job_limit"),
        (("--set", "job_limit=0s"), "job_limit"),
        (
            ("--system", "cori"),
            "submit dlscale run frameworks --set choice.losses=no and dlscale run framework-losses",
        ),
        (
            ("--set", "formats=zip", "--dry-run"),
            "formats is a list with commas: one of folders, tfrecord, lmdb, list",
        ),
        (
            ("--set", "formats=lmdb", "--dry-run"),
            "choice.formats needs images to repackage: give --workloads resnet50",
        ),
    ],
)
def test_mistakes_are_one_line(words, said, mistake, tmp_path):
    assert said in mistake("run", "frameworks", *words, "--results", tmp_path)


@pytest.fixture
def answer(dlscale, tmp_path):
    """Answer from both frameworks over `none` and `ring`, 3 launches of each cell; gives back status and output."""
    folder = tmp_path / "local" / STUDY
    records = [
        make_record(
            framework=framework,
            backend=backend,
            num_ranks=num_ranks,
            block=block,
            scaling_mode="strong",
            local_batch=16 // num_ranks,
            global_batch=16,
            samples_per_second=rate * num_ranks * (1 + block / 100),
        )
        for framework, rate in (("torch", 233.0), ("tensorflow", 150.0))
        for backend in ("none", "ring")
        for num_ranks in (1, 2)
        for block in range(3)
    ]
    # A case that failed and was made good since has not failed.
    again = records[0].model_copy(update={"attempt": 2})
    records[0] = make_record(failure="it hangs", **records[0].case.cell.model_dump())
    write_study(folder, records, planned=True, schema=1, study={"name": "strong-scaling"})
    (folder / "records" / f"{again.case.id}.2.json").write_text(again.model_dump_json())

    def verb(*words):
        return dlscale("compare", "--frameworks", "strong", *words, "--results", tmp_path)[:2]

    return verb


@pytest.mark.usefixtures("no_pictures")
def test_the_answer_from_records(answer, tmp_path):
    status, said = answer("--json")
    found = json.loads(said)
    assert status == 4, "3 launches decide nothing"
    assert [row["backend"] for row in found["answers"]] == ["none", "ring"]
    assert len(found["rows"]) == 8
    assert len(found["comparisons"]) == 2
    assert all(row["reason"].startswith("3 launches cannot decide 2") for row in found["comparisons"])
    ring = next(row for row in found["rows"] if (row["backend"], row["num_ranks"]) == ("ring", 2))
    assert ring["program"] == "torch eager"
    assert ring["samples_per_second"] == pytest.approx(2 * 233 * 1.01)
    assert ring["peak_rss_bytes"] > 2**28
    assert ring["start_seconds"] > 0.5
    status, said = answer()
    assert "no answer yet" in said
    assert "Speed, and time to the target" in said
    assert "What else it costs" in said
    (page,) = (tmp_path / "reports").glob("frameworks-*.html")
    text = page.read_text()
    assert "Which framework to use here" in text
    assert "mpiexec -n 2 python SCRIPT" in text
    drawn = {path.name for path in page.with_suffix("").iterdir()}
    assert {"hep_cnn-tiny-none-0-frameworks.csv", "hep_cnn-tiny-ring-1-frameworks.png"} <= drawn


@pytest.fixture
def images(tmp_path):
    """Class folders of four tiny images."""
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for shade in (10, 200):
            Image.new("RGB", (8, 8), (shade, shade, shade)).save(tmp_path / "images" / label / f"{shade}.png")
    return tmp_path / "images"


def test_images_are_repackaged_once_and_what_that_takes_is_kept(images, tmp_path, capsys):
    formats = ["list", "folders"]
    first = list(prepare(images, formats, tmp_path / "formats", skip_bad=False))
    said = capsys.readouterr().out
    assert said.count("repackaging") == 2
    assert "repackaged in 0 s" not in said
    assert [found.format for _, found in first] == formats
    paths = [path for path, _ in first]
    assert all(path.name.startswith("images-") for path in paths)
    for path, found in first:
        assert (found.num_samples, found.source, found.source_format) == (4, "images", "class folders")
        assert found.num_bytes == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        assert found.seconds > 0
    assert list(prepare(images, formats, tmp_path / "formats", skip_bad=False)) == first
    assert "repackaging" not in capsys.readouterr().out
    assert read_preparations(tmp_path / "formats") == sorted(
        (found for _, found in first), key=lambda found: found.name
    )


def test_formats_are_read_by_studies_of_their_own(compared, images, tmp_path):
    words = ("--workloads", "resnet50", "--data", str(images), "--set", "losses=no", "--ranks", "2")
    status, ran, answered = compared(*words, "--batch", "2", "--set", "formats=list,folders")
    assert (status, len(ran), len(answered[0][0])) == (0, 3, 3)
    for campaign in ran[1:]:
        cells = {
            case.cell.id: case.cell for launch in campaign.plan.launches for case in launch.cases
        }.values()
        assert {(cell.backend, cell.num_ranks, cell.compiled) for cell in cells} == {("none", 1, False)}
        assert {cell.control for cell in cells} == {"train", "loader"}
        assert campaign.plan.num_launches == 6
    assert {path.name.rpartition("-")[2] for path in (tmp_path / "formats").iterdir() if path.is_dir()} == {
        "list",
        "folders",
    }
