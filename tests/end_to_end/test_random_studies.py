"""Studies drawn at random over tables drawn at random: whatever is searched, the promises of a study hold.

`PARETUNE_RANDOM_STUDIES` is how many are run, eight by default; `.ci/full studies` runs 200. `-k 'study[17]'` runs the
eighteenth alone. A quarter of them are studies of a script.
"""

import itertools
import json
import os
import random
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run as RecordedRun

from paretune.cli import main
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("PARETUNE_RANDOM_STUDIES", "8"))
TYPES = ("ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6.xlarge", "ml.g5.12xlarge")
BATCHES, RATES = (8, 16, 32, 64), (1e-5, 3e-5, 1e-4, 3e-4)
HEADER = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds,f1"


def write_table(path: Path, draw: random.Random) -> dict[str, list[Any]]:
    """Write recorded runs of a grid, some of which fail or run out of memory, and return the axes of the grid."""
    axes: dict[str, list[Any]] = {
        "instance_type": sorted(draw.sample(TYPES, draw.randint(1, 3))),
        "instance_count": [1, 2][: draw.randint(1, 2)],
        "per_device_train_batch_size": sorted(draw.sample(BATCHES, draw.randint(2, 4))),
        "learning_rate": sorted(draw.sample(RATES, draw.randint(1, 4))),
    }
    speeds = {name: draw.uniform(0.5, 3.0) for name in axes["instance_type"]}
    full = {name: draw.choice([32, 64, 128]) for name in axes["instance_type"]}
    share, best, usual = draw.choice([0.0, 0.1, 0.3]), draw.uniform(0.7, 0.95), draw.choice(RATES)
    lines = [f"{HEADER},status"]
    for kind, count, batch, rate in itertools.product(*axes.values()):
        seconds = 120 + 1500 / (speeds[kind] * count**0.9) * (8 / batch) ** 0.3
        f1 = best - 0.02 * abs(RATES.index(rate) - RATES.index(usual)) - 0.0003 * batch * count
        end = ",Failed" if draw.random() < share else ",OutOfMemory" if batch >= full[kind] else ""
        if not end or len(lines) == 1:  # some run completes in every table
            end = f"{f1:.4f},Completed"
        lines.append(f"{kind},{count},{batch},{rate},2,{seconds:.1f},{end}")
    path.write_text("\n".join(lines) + "\n")
    return axes


def drawn(seed: int, folder: Path) -> dict[str, Any]:
    """Write a table to `folder`, and return a study of it."""
    draw = random.Random(seed)
    axes = write_table(folder / "runs.csv", draw)
    simulation = {"f1_noise": draw.choice([0.0, 0.003]), "capacity_error_rate": draw.choice([0.0, 0.1])}
    content: dict[str, Any] = {
        "name": f"random {seed}",
        "job": {
            "launcher": "simulated",
            "simulation.runs": str(folder / "runs.csv"),
            "simulation": simulation,
            "num_train_epochs": 2,
            "max_runtime_minutes": draw.choice([20, 60]),
        },
        "search": {name: {"choices": values} for name, values in axes.items()},
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
        "n_trials": draw.randint(4, 14),
        "n_parallel": draw.choice([1, 1, 3]),
        "seed": seed,
        "sampler": draw.choice(["split", "split", "split", "tpe", "random"]),
    }
    if draw.random() < 0.3:
        content["objectives"] = {"cost_usd": "minimize", "job_seconds": "minimize", "f1": "maximize"}
    if draw.random() < 0.7:
        content["budget_usd"] = round(draw.uniform(1.0, 12.0), 2)
    if draw.random() < 0.5:
        metric, bound = draw.choice([("f1", {"min": 0.7}), ("job_seconds", {"max": 900.0}), ("cost_usd", {"max": 0.6})])
        content["constraints"] = {metric: bound}
    if draw.random() < 0.3:
        content["stop"] = "never"
    if draw.random() < 0.25:
        (folder / "train.py").write_text("".join(f"parser.add_argument('--{name}')\n" for name in list(axes)[2:]))
        content["job"] |= {"entry_script": "train.py", "simulation": {}}
        content["job"].pop("num_train_epochs")
    return content


def recorded(condition: str = "tags.`paretune.trial` LIKE '%'") -> dict[str, RecordedRun]:
    """Return the runs of trials, or others, by their ids."""
    return {run.info.run_id: run for run in MlflowClient().search_runs(["0"], condition)}


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_promises_of_a_study_hold_in_any_study(
    seed: int, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = drawn(seed, workplace)
    Path("study.yaml").write_text(yaml.safe_dump(content))

    code = main(["study", "study.yaml", "--json"])
    printed, messages = capsys.readouterr()

    assert "Traceback" not in messages
    answer, runs = json.loads(printed), recorded()
    if "error" in answer:  # every job has failed, or none fits the budget
        assert code == answer["error"]["exit_code"] == (3 if runs else 4), answer
        assert not any(tags_of(each)["paretune.state"] == "Completed" for each in runs.values())
        spent_usd = sum(each.data.metrics.get("cost_usd", 0.0) for each in runs.values())
        assert spent_usd <= content.get("budget_usd", float("inf")) * (1 + 1e-5)
        return
    picks = answer["recommended"]
    assert code == (0 if picks else 3)

    spent_usd = sum(each.data.metrics.get("cost_usd", 0.0) for each in runs.values())
    assert answer["spent_usd"] == pytest.approx(spent_usd, rel=1e-5)  # runs have their digits that are known
    assert answer["spent_usd"] <= content.get("budget_usd", float("inf"))

    done = [each for each in runs.values() if tags_of(each)["paretune.state"] == "Completed"]
    commands = Counter(tags_of(each)["paretune.command"] for each in done)
    assert not [command for command, count in commands.items() if count > 1], "a job was paid for twice"

    by_trial = {int(tags_of(each)["paretune.trial"]): each.data.metrics for each in runs.values()}
    finished = [row for row in answer["trials"] if row["status"] == "Completed" and row["origin"] != "estimated"]
    for row, name in itertools.product(finished, content["objectives"]):
        assert row[name] == pytest.approx(by_trial[row["trial"]][name]), (row["trial"], name)

    for pick in picks:
        for metric, bounds in content.get("constraints", {}).items():
            reached = pick["means"].get(metric, by_trial[pick["trial"]][metric])
            assert bounds.get("min", -float("inf")) <= reached <= bounds.get("max", float("inf")), (pick, metric)
    for pick in picks[:1]:
        before = recorded("").keys()
        assert main(shlex.split(pick["command"])[1:]) == 0
        (again,) = [each for name, each in recorded("").items() if name not in before]
        for name in ("f1", "cost_usd", "job_seconds"):
            assert again.data.metrics[name] == pytest.approx(by_trial[pick["trial"]][name]), (pick["command"], name)
