"""A study of a script of the user's own against the metrics that it logs: on this machine, interrupted, continued."""

import csv
import io
import os
import signal
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.processes import command, paretune, wait_until, working_in
from tests.study_tables import books_of

pytestmark = pytest.mark.slow

SCRIPT = '''
"""A training as people write them: nothing in it knows of paretune."""
import argparse
import json
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", type=Path)
parser.add_argument("--leaves", type=int)
parser.add_argument("--seed", type=int, default=0)
told, _ = parser.parse_known_args()
Path(__file__).with_name("begun").touch()
while not Path(__file__).with_name("go").exists():
    time.sleep(0.1)
for epoch in (1, 2, 3):
    value = 0.9 - 0.01 * abs(told.leaves - 15) - 0.1 * abs(epoch - 2) + 0.0001 * (told.seed % 5)
    print({"eval_ndcg": value, "epoch": epoch})
told.output_dir.mkdir(parents=True, exist_ok=True)
(told.output_dir / "all_results.json").write_text(json.dumps({"eval_ndcg": value, "eval_gap": 1 - value}))
'''
STUDY = """\
name: own metric
job: {entry_script: own.py, max_runtime_minutes: 2}
search:
  training_arguments.leaves: {choices: [7, 15]}
objectives: {cost_usd: minimize, eval_ndcg: maximize, eval_gap: minimize}
sampler: grid
budget_usd: 0.05
"""
WITHIN_S = 300.0


def test_a_study_of_an_own_script_is_gone_on_with_and_recommends_by_its_own_metric(workplace: Path) -> None:
    assert len(STUDY.splitlines()) <= 10
    (workplace / "own.py").write_text(SCRIPT)
    (workplace / "study.yaml").write_text(STUDY)
    home = workplace / ".paretune"

    def started(log: str):  # type: ignore[no-untyped-def]
        words = paretune("study", "--study", "study.yaml")
        return command(words, home=home, cwd=workplace, environment=os.environ, log=workplace / log)

    with started("first") as running:
        start = workplace / "begun"
        wait_until(lambda: start.exists() or running.process.poll() is not None, within_s=WITHIN_S, what="a job begins")
        running.process.send_signal(signal.SIGTERM)
        assert running.wait(WITHIN_S) == 130, running.text
        wait_until(lambda: not working_in(home), within_s=60.0, what="no process is left")
    (workplace / "go").touch()
    with started("second") as running:
        assert running.wait(WITHIN_S) == 0, running.text
        message = running.text

    assert "the cheapest within noise of the best eval_ndcg" in message
    assert '"leaves": 15' in message
    client = MlflowClient()
    (study,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
    check_tables(client, study.info.run_id, workplace)
    running, _, balance = books_of(workplace / "study.yaml", f"sqlite:///{home / 'studies.db'}")
    assert running == []
    assert study.data.metrics["cost_usd"] == pytest.approx(balance.spent_usd)
    assert study.data.metrics["cost_usd"] <= 0.05


def check_tables(client: MlflowClient, run_id: str, folder: Path) -> None:
    """pareto.csv has a column for each metric and each name that was searched; pareto.html names them."""
    text = Path(client.download_artifacts(run_id, "pareto.csv", str(folder))).read_text()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["status"] == "Completed"]
    for row in rows:
        last = 0.8 - 0.01 * abs(int(row["training_arguments.leaves"]) - 15)
        assert float(row["eval_ndcg"]) == pytest.approx(last, abs=0.001)
        assert float(row["eval_gap"]) == pytest.approx(1 - last, abs=0.001)
        assert float(row["eval_ndcg_low"]) < float(row["eval_ndcg_high"])
    assert {row["training_arguments.leaves"] for row in rows} == {"7", "15"}
    output = Path(client.download_artifacts(run_id, "pareto.html", str(folder))).read_text()
    assert "eval_ndcg" in output
    assert "eval_gap" in output
    assert ">leaves<" in output
