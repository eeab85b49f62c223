"""The designs that are shipped. That each file runs is in tests/end_to_end/test_shipped_studies.py."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli.main import main
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.reading import read_design
from paretune.core.result import read_rows
from paretune.estimating.recorded.recorded_runs import RecordedRuns
from tests.unit.commands.design.test_of_settings import OF_SETTINGS

ROOT = Path(__file__).parents[4]
DESIGNS = sorted(
    path
    for path in (ROOT / "studies").glob("*.yaml")
    if "\nfactors:" in path.read_text() and path.name not in OF_SETTINGS
)


@pytest.fixture
def studies(workplace: Path) -> Path:
    (workplace / "studies").symlink_to(ROOT / "studies")
    return workplace


def test_the_shipped_designs_are_those_of_the_published_benchmark_and_its_successors() -> None:
    assert {path.name for path in DESIGNS} == {
        "polarity_scaling.yaml",
        "polarity_scaling_more.yaml",
        "polarity_fixed_batch.yaml",
        "polarity_today.yaml",
        "data_parallel_one_line.yaml",
    }


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.stem)
def test_a_shipped_design_has_no_faults_and_no_warnings(path: Path, studies: Path) -> None:
    plan = DesignPlan.of(read_design(str(path), {}))

    assert plan.file.budget_usd is not None
    assert not plan.warnings()
    assert all(row.spec.on_sagemaker for row in plan.rows)
    assert all(abs(row.job.deviation or 0.0) < 0.003 for row in plan.rows)


@pytest.mark.slow
def test_the_reference_design_shows_the_benchmark_s_shape_when_it_is_simulated(
    studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["design", "--design", "studies/polarity_scaling.yaml", "--launcher", "simulated"]) == 0
    assert "15 Completed (simulated)" in capsys.readouterr().out

    client = MlflowClient()
    (run,) = client.search_runs(["0"], "tags.`paretune.kind` = 'design'")
    rows = read_rows(Path(client.download_artifacts(run.info.run_id, "design.csv")).read_text())
    seconds = {row["instance_count"]: float(str(row["job_seconds"])) for row in rows}
    assert seconds[1] > 5 * seconds[2] > seconds[4]
    assert all(row["f1"] for row in rows)
    assert {(row["instance_count"], row["global_batch_size"]) for row in rows} == {(1, 32), (2, 512), (4, 1024)}


def test_the_table_of_the_rehearsal_is_what_its_formula_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from search import polarity

    polarity.write(tmp_path / "again.csv")

    assert (tmp_path / "again.csv").read_text() == (ROOT / "studies" / "polarity_rehearsal.csv").read_text()


def test_the_rehearsal_has_the_published_interaction_and_no_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from search.polarity import f1

    lost = {rows: f1(32, 5e-5, rows) - f1(1024, 5e-5, rows) for rows in (90_000, 900_000)}

    assert lost[90_000] > 10 * lost[900_000]  # published: 0.033 and 0.002
    assert not RecordedRuns.read(ROOT / "studies" / "polarity_rehearsal.csv").has_seconds


@pytest.mark.slow
def test_the_rehearsal_has_all_rows_of_all_designs(studies: Path) -> None:
    for path in DESIGNS:
        for row in DesignPlan.of(read_design(str(path), {"launcher": "simulated"})).rows:
            answer = RecordedRuns.read(Path(str(row.spec.recorded_runs))).answer(row.spec, row.spec.plan())
            assert answer.f1 is not None, path
