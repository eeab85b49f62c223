"""Each metric of a configuration has one number, wherever a study shows it."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

import paretune
from paretune.cli import main
from paretune.core.clock import SystemClock
from paretune.studies.results.page import page, study_note
from paretune.studies.run import run_study
from paretune.tracking import schema
from paretune.tracking.store import Tracking

STUDY = """
name: noisy
job: {launcher: simulated, simulation.runs: table.csv, dataset: someone/reviews, max_train_samples: 60000,
  instance_type: ml.g5.xlarge, per_device_train_batch_size: 32, max_runtime_minutes: 3000}
search:
  learning_rate: {choices: [1.0e-5, 3.0e-5, 1.0e-4, 3.0e-4]}
sampler: grid
budget_usd: 500
"""
QUALITY = {
    1e-5: (0.80, 0.78, 0.81, 0.79),
    3e-5: (0.91, 0.86, 0.88, 0.87),
    1e-4: (0.89, 0.90, 0.87, 0.88),
    3e-4: (0.7,) * 4,
}


def shown(text: str) -> list[float]:
    """Return the numbers after the name of the metric in a text, without their ±."""
    return [float(number) for number in re.findall(r"F1 (\d\.\d+)(?![\d.]* worse)", text)]


def test_a_configuration_has_the_same_mean_on_the_page_in_mlflow_in_the_table_in_the_note_and_in_what_commands_print(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["instance_type,instance_count,per_device_train_batch_size,learning_rate,seed,billable_seconds,f1,status"]
    for rate, values in QUALITY.items():
        for seed, f1 in enumerate(values, start=42):
            lines.append(f"ml.g5.xlarge,1,32,{rate},{seed},{3000 + seed},{f1},Completed")
    (workplace / "table.csv").write_text("\n".join(lines) + "\n")
    (workplace / "study.yaml").write_text(STUDY)

    result = run_study("study.yaml")

    answer, best = result.answer, result.best
    assert best is not None
    pick = answer.picks[0].point
    trained = [trial.values["f1"] for trial in pick.trials]
    mean = sum(trained) / len(trained)
    assert len({*trained}) == 3  # so that one run's value is not the mean
    assert pick.means["f1"] == pytest.approx(mean)
    assert best["means"]["f1"] == pytest.approx(mean)  # type: ignore[index]

    # as text
    stated = float(answer.figures.number("f1", mean, pick.errors["f1"]).partition(" ")[0])
    assert stated == pytest.approx(mean, abs=5e-4)
    text, note = result.answer.text(), study_note(answer)
    assert shown(text.partition("Front, cheapest")[0])[0] == stated
    assert shown(re.sub(r"best F1 [\d.]+", "", note))[0] == stated
    best_in_state = float(re.findall(r"best F1 ([\d.]+)", answer.state())[0])
    assert best_in_state == pytest.approx(max(point.means["f1"] for point in answer.front.points), abs=5e-4)
    html = re.sub(r"<[^>]+>", " ", page(answer))
    assert float(re.findall(r"F1\s+(\d\.\d+) ±", html)[0]) == stated

    # as data
    rows = list(
        csv.DictReader(io.StringIO(Tracking({}, SystemClock()).artifact_text(result.run_id, "pareto.csv") or ""))
    )
    of_pick = [row for row in rows if int(row["repeats"] or row["trial"]) == pick.number]
    assert len(of_pick) == 3
    assert [float(row["f1_mean"]) for row in of_pick] == pytest.approx([mean] * 3)
    assert [float(row["cost_usd_mean"]) for row in of_pick] == pytest.approx([pick.means["cost_usd"]] * 3)
    found = [row for row in paretune.front("noisy").rows() if row["trial"] == pick.number]
    assert [(row["f1"], row["cost_usd"]) for row in found] == [
        (pytest.approx(mean), pytest.approx(pick.means["cost_usd"]))
    ]
    (run,) = Tracking({}, SystemClock()).runs(f"attributes.run_id = '{result.run_id}'")
    assert run.metrics["best_f1"] == pytest.approx(max(point.means["f1"] for point in answer.front.points))
    assert run.metrics["pick_f1"] == pytest.approx(mean)
    assert run.metrics["pick_cost_usd"] == pytest.approx(pick.means["cost_usd"], rel=1e-3)
    assert f"F1 {mean:.3f}".replace("0.", ".") in run.tags[schema.RUN_NAME]

    # what the command prints
    capsys.readouterr()
    assert main(["study", "study.yaml", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recommended"][0]["means"]["f1"] == pytest.approx(mean)
