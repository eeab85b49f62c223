"""Nights of a recurring training through the simulated launcher: learnt from, killed, gone on with, paid once."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli.main import main
from paretune.commands.recur import night as nights
from paretune.commands.recur.history import NightJob
from paretune.commands.recur.policy import Posterior
from paretune.core.errors import LaunchRefused
from paretune.core.result import read_rows

DEFAULT = {"instance_type": "ml.g5.xlarge", "learning_rate": 4e-5}
CHEAP = {"instance_type": "ml.g6.xlarge", "learning_rate": 4e-5}
BAD = {"instance_type": "ml.g6.xlarge", "learning_rate": 1e-3}


def write_file(folder: Path, **changes: Any) -> None:
    """nightly.yaml and its table: g6 is twice as cheap, and the high rate is bad."""
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds"
    rows = [
        f"{kind},1,16,{rate},2,{seconds},{f1}"
        for kind, seconds in (("ml.g5.xlarge", 3600), ("ml.g6.xlarge", 2000))
        for rate, f1 in ((4e-5, 0.93), (1e-3, 0.5))
    ]
    (folder / "runs.csv").write_text("\n".join([f"{header},f1", *rows]) + "\n")
    file = {
        "name": "nightly",
        "job": {
            "launcher": "simulated",
            "recorded_runs": str(folder / "runs.csv"),
            "simulation": {"f1_noise": 0.001, "seconds_noise": 0.01},
            "num_train_epochs": 2,
            "max_runtime_minutes": 120,
            **DEFAULT,
        },
        "search": {
            "instance_type": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]},
            "learning_rate": {"choices": [4e-5, 1e-3]},
        },
        "floor": {"f1": 0.9},
        **changes,
    }
    (folder / "nightly.yaml").write_text(yaml.safe_dump(file, sort_keys=False))


def play(night: str, *words: str) -> int:
    """The exit code of a night."""
    return main(["recur", "--file", "nightly.yaml", "--night", night, *words])


def jobs() -> list[Run]:
    """Runs of the recurring training's jobs, the first first."""
    condition = "tags.`paretune.recur` = 'nightly' and tags.`paretune.night` LIKE '_%'"
    return MlflowClient().search_runs(["0"], condition, order_by=["attributes.start_time ASC"])


def created(folder: Path) -> list[str]:
    """Names of all simulated jobs."""
    return sorted(path.stem for path in (folder / ".paretune" / "simulated" / "jobs").glob("*.json"))


def choose(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Have every try take a point."""

    def drawn(self: Posterior, among: object, again_usd: float, rng: np.random.Generator) -> int:
        return at

    monkeypatch.setattr(Posterior, "_sample", drawn)


@pytest.mark.slow
def test_a_night_that_was_killed_is_gone_on_with_and_all_nights_are_learnt_from(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)
    for number in range(4):
        assert play(f"n{number}") == 0
    before = created(workplace)
    assert len(before) == 4
    points = [json.loads(run.data.tags["paretune.night_point"]) for run in jobs()]
    assert points[0] == DEFAULT
    assert CHEAP in points
    assert BAD not in points

    child = os.fork()
    if child == 0:  # dies as by kill -9, when its job has begun to train
        run_job = nights.run_job
        nights.run_job = lambda spec, workspace, _, **study: run_job(  # type: ignore[attr-defined]
            spec,
            workspace,
            lambda events: os._exit(9) if any(event.message == "training" for event in events) else None,
            **study,
        )
        play("n4")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    started = created(workplace)
    assert len(started) == 5
    assert jobs()[-1].data.tags["paretune.state"] == "Running"

    assert play("n4") == 0
    assert created(workplace) == started
    assert play("n4") == 0
    assert created(workplace) == started
    result = [run for run in jobs() if run.data.tags["paretune.night"] == "n4"]
    assert [run.info.status for run in result] == ["FINISHED"]
    assert result[0].data.tags["paretune.returned"] == "true"
    _check_books(capsys.readouterr().out)


def _check_books(printed: str) -> None:
    client = MlflowClient()
    (parent,) = client.search_runs(["0"], "tags.`paretune.kind` = 'recur'")
    table = read_rows(Path(client.download_artifacts(parent.info.run_id, "nights.csv")).read_text())

    assert [row["night"] for row in table] == [f"n{number}" for number in range(5)]
    assert all(row["meets_floor"] for row in table)
    spent = sum(run.data.metrics["cost_usd"] for run in jobs())
    assert sum(float(str(row["spent_usd"])) for row in table) == pytest.approx(spent)
    assert parent.data.metrics["cost_usd"] == pytest.approx(spent)
    assert parent.data.metrics["saved_usd"] > 0
    assert {run.data.tags["mlflow.parentRunId"] for run in jobs()} == {parent.info.run_id}
    assert "nights.png" in [item.path for item in client.list_artifacts(parent.info.run_id)]
    assert re.search(r"5 nights: .* less than the default every night \(estimated\)", printed)


@pytest.mark.slow
def test_a_try_below_the_floor_is_followed_by_the_safest_point_and_both_are_paid(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)
    assert play("n0") == 0
    choose(monkeypatch, 3)  # the cheap cluster with the bad rate
    capsys.readouterr()

    assert play("n1", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    tried, again = output["jobs"]
    assert (tried["point"], again["point"]) == (BAD, DEFAULT)
    assert (tried["part"], again["part"]) == ("try", "retrain")
    assert (tried["returned"], again["returned"]) == (False, True)
    assert output["spent_usd"] == pytest.approx(tried["usd"] + again["usd"])
    assert output["returned_value"] == again["value"] > 0.9


def test_a_night_without_a_model_above_the_floor_says_so_with_exit_code_3(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace, floor={"f1": 0.99}, retrains=1)

    assert play("n0") == 3
    printed = capsys.readouterr().out
    assert "no model of this night meets f1 0.9900: none is returned" in printed
    assert len(created(workplace)) == 2
    assert not [run for run in jobs() if "paretune.returned" in run.data.tags]
    assert play("n0") == 3
    assert len(created(workplace)) == 2


def test_a_night_whose_worst_case_exceeds_its_dollars_begins_no_job(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)

    assert play("n0", "--max_cost_usd", "0.5") == 4
    assert "no try fits beside it" in capsys.readouterr().err
    assert not created(workplace)
    assert not jobs()


@pytest.mark.slow
def test_dollars_of_a_night_cut_no_job_off_that_takes_longer_than_its_estimate_or_than_the_nights_before(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(workplace)
    assert play("n0", "--max_cost_usd", "12") == 0

    table = workplace / "runs.csv"
    table.write_text(table.read_text().replace(",3600,", ",9000,"))  # the data have grown
    choose(monkeypatch, 0)
    assert play("n1", "--max_cost_usd", "20", "--max_runtime_minutes", "180") == 0
    first, tried, again = jobs()
    took = first.data.metrics["job_seconds"] / 60
    limits = [float(run.data.params["max_runtime_minutes"]) for run in (first, tried, again)]
    assert limits == [120, pytest.approx(2 * took + 5, abs=0.2), 180]
    assert "MaxRuntimeExceeded" in tried.data.tags["paretune.failure_reason"]
    assert again.data.tags["paretune.returned"] == "true"


def test_a_budget_of_its_name_binds_a_recurring_training(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_file(workplace, job={**DEFAULT, "launcher": "simulated", "budget": "team.yaml"})
    budgets = workplace / "team.yaml"
    budgets.write_text("budgets: [{name: nights, usd_per_month: 0.5, tags: {study: nightly}}]\n")

    assert play("n0") == 4
    assert "budget nights of simulated jobs (0.5 USD a month" in capsys.readouterr().err
    assert not created(workplace)


def test_a_full_budget_of_the_month_ends_the_night_and_says_nothing_about_its_point(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)
    assert play("n0") == 0
    choose(monkeypatch, 2)
    budgets = workplace / "team.yaml"
    budgets.write_text("budgets: [{name: all, usd_per_month: 0.5}]\n")
    assert play("n1", "--budget", "team.yaml") == 4
    assert "budget all of simulated jobs" in capsys.readouterr().err
    assert len(created(workplace)) == 1

    budgets.write_text("budgets: [{name: all, usd_per_month: 50}]\n")
    assert play("n1", "--budget", "team.yaml") == 0
    assert json.loads(jobs()[-1].data.tags["paretune.night_point"]) == CHEAP
    assert len(created(workplace)) == 2


def test_a_retraining_that_no_longer_fits_the_dollars_of_the_night_is_not_launched(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace, floor={"f1": 0.99})

    def down(*_: object, **__: object) -> None:
        raise LaunchRefused("AWS does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Posterior, "fallback", down)
        patched.setattr(nights._NightRun, "_open_try", lambda run, night: run._open(0, "try", night, {}))
        assert play("n0") == 2
    assert len(created(workplace)) == 1

    assert play("n0", "--max_cost_usd", "2.5") == 4
    assert "does not fit beside the 1." in capsys.readouterr().err
    assert len(created(workplace)) == 1


def test_a_try_that_is_refused_costs_nothing_and_the_safest_point_runs(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)
    table = (workplace / "runs.csv").read_text().splitlines()
    (workplace / "runs.csv").write_text("\n".join(table[:-1]) + "\n")  # nobody knows the cheap cluster's bad rate
    assert play("n0") == 0
    choose(monkeypatch, 3)
    capsys.readouterr()

    assert play("n1", "--json") == 0
    refused, again = json.loads(capsys.readouterr().out)["jobs"]
    assert (refused["part"], refused["usd"], refused["point"]) == ("refused", None, BAD)
    assert (again["part"], again["returned"], again["point"]) == ("retrain", True, DEFAULT)
    assert len(created(workplace)) == 2


def test_a_default_whose_job_fails_is_followed_by_a_point_that_works(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)
    table = workplace / "runs.csv"
    header, *rows = table.read_text().splitlines()
    ends = ["Failed" if row.startswith("ml.g5.xlarge,1,16,4e-05") else "Completed" for row in rows]
    rows = [f"{row},{end}" for row, end in zip(rows, ends, strict=True)]
    table.write_text("\n".join([f"{header},status", *rows]) + "\n")

    assert play("n0", "--json") == 0
    states = [(job["part"], job["state"], job["point"]) for job in json.loads(capsys.readouterr().out)["jobs"]]
    assert states == [("try", "Failed", DEFAULT), ("retrain", "Completed", CHEAP)]


def test_a_night_that_has_ended_launches_nothing_under_a_higher_floor_and_says_that_it_misses_it(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)
    assert play("n0") == 0
    write_file(workplace, floor={"f1": 0.99})
    capsys.readouterr()

    assert play("n0") == 3
    assert "it misses f1 0.9900, the floor as it is now" in capsys.readouterr().out
    assert len(created(workplace)) == 1


def test_a_metric_that_no_job_logs_is_named_and_paid_for_once_a_night(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(workplace)
    result = NightJob.of
    monkeypatch.setattr(NightJob, "of", lambda run, metric: replace(result(run, metric), value=None))

    assert play("n0") == 3
    output = capsys.readouterr()
    assert "has logged no f1, which the floor is about" in output.out
    assert "log f1, or change floor" in output.err
    assert len(created(workplace)) == 1
