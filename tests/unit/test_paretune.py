"""`import paretune`: eleven names, whose examples are correct."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest

import paretune
from paretune.core.errors import BadInput

ROOT = Path(__file__).parents[2]


def test_at_most_eleven_names_are_offered_and_each_is_there_with_its_docstring() -> None:
    assert len(paretune.__all__) <= 11
    assert {"JobSpec", "SplitSampler", "launch", "estimate", "run_study", "study", "front", "prices"} <= set(
        paretune.__all__
    )
    assert set(paretune.__all__) <= set(dir(paretune))
    for name in paretune.__all__:
        assert name in (paretune.__doc__ or "")
        assert getattr(paretune, name).__doc__


@pytest.mark.slow
def test_the_names_for_type_checkers_are_those_that_are_offered(tmp_path: Path) -> None:
    request = "\n".join(f"from paretune import {name}" for name in paretune.__all__)
    program = tmp_path / "user.py"
    program.write_text(f"{request}\njob = launch(JobSpec())\nreveal_type(job)\nreveal_type(job.metrics['f1'])\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert 'Revealed type is "paretune.jobs.outcome.JobOutcome"' in done.stdout
    assert 'Revealed type is "float"' in done.stdout.replace("builtins.float", "float")


@pytest.mark.parametrize(
    "module", ["", ".commands.estimate.estimate", ".jobs.launch", ".commands.prices", ".studies.run"]
)
@pytest.mark.slow
def test_the_examples_are_right(module: str, next_to_the_studies: Path) -> None:
    result = doctest.testmod(importlib.import_module(f"paretune{module}"))

    assert result.attempted
    assert not result.failed


def test_the_module_runs_as_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paretune", "train", "--seed", "x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (
        2,
        "paretune: seed must be a whole number at least 0 and at most 4294967295, got 'x'\n",
    )


SIMULATED = paretune.JobSpec(launcher="simulated", instance_type="ml.g5.xlarge", max_train_samples=4000)


def test_quiet_says_nothing_and_otherwise_progress_goes_to_standard_error(
    next_to_the_studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paretune.launch(SIMULATED)
    out, err = capsys.readouterr()
    assert out == ""
    assert "simulated job paretune-" in err

    paretune.launch(SIMULATED, quiet=True)
    assert capsys.readouterr().out == ""


def test_a_dry_run_in_the_specification_is_refused_rather_than_paid(next_to_the_studies: Path) -> None:
    with pytest.raises(BadInput, match=r"launch\(spec, dry_run=True\)"):
        paretune.launch(SIMULATED.replace(dry_run=True))

    assert not (next_to_the_studies / ".paretune" / "jobs").exists()


def test_the_profile_completes_a_specification_for_instances(
    next_to_the_studies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (next_to_the_studies / "own.toml").write_text('region = "eu-west-1"\nmax_cost_usd = 0.5\n')
    monkeypatch.setenv("PARETUNE_PROFILE", "own.toml")

    table = paretune.estimate([SIMULATED, SIMULATED.replace(max_cost_usd=2.0)])
    assert table.region == "eu-west-1"
    assert [spec.max_cost_usd for spec, _ in table.jobs] == [0.5, 2.0]
    with pytest.raises(paretune.ParetuneError, match="max_cost_usd"):
        paretune.launch(SIMULATED)


@pytest.mark.slow
def test_a_study_recorded_by_name_run_id_or_result_has_one_front(next_to_the_studies: Path) -> None:
    study = paretune.run_study("studies/pareto.yaml", n_trials=8, sampler="random", quiet=True)
    by_name, by_id = paretune.front("cost, time and F1"), paretune.front(study.run_id[:12])

    assert len(study.to_frame()) >= 8  # plus repeats of the front
    assert by_name.objectives == {"cost_usd": "minimize", "job_seconds": "minimize", "f1": "maximize"}
    ids = [row["run_id"] for row in paretune.front(study).rows()]
    assert ids == [row["run_id"] for row in by_name.rows()] == [row["run_id"] for row in by_id.rows()]
    assert 0 < len(ids) < len(study.to_frame())
    assert by_name.remarks == ["all of them are simulated"]
    cheapest = paretune.front(study, {"cost_usd": "minimize"}).to_frame()
    completed = study.to_frame().query("status == 'Completed'")
    assert cheapest["cost_usd"].tolist() == [completed["cost_usd_mean"].min()]
    assert study.to_frame()["cost_usd"].min() < completed["cost_usd"].min()  # a job that did not fit
    with pytest.raises(BadInput, match="no study is called 'cost'; recorded studies: cost, time and F1"):
        paretune.front("cost")


def test_the_front_of_a_frame_of_mlflow_reads_its_columns() -> None:
    frame = pandas.DataFrame(
        {
            "metrics.f1": [0.9, 0.8, float("nan")],
            "metrics.cost_usd": [2.0, 3.0, 1.0],
            "tags.paretune.origin": ["measured", "simulated", "measured"],
        }
    )
    trials = paretune.front(frame)

    assert trials.rows() == [{"f1": 0.9, "cost_usd": 2.0, "origin": "measured"}]
    assert trials.remarks == [
        "the table mixes measured and simulated runs: compare within one origin only",
        "1 of 3 runs have no cost_usd or no f1, and are left out",
    ]


def test_the_front_of_no_runs_is_empty() -> None:
    none = paretune.front([])

    assert none.rows() == []
    assert str(none) == "front: 0 of 0 runs (minimize cost_usd, maximize f1)"


def test_objectives_that_cannot_be_are_refused_and_none_are_the_usual_ones() -> None:
    rows = [{"f1": 0.9, "cost_usd": 1.0}]
    assert paretune.front(rows).objectives == {"cost_usd": "minimize", "f1": "maximize"}
    with pytest.raises(BadInput, match="f1 must be minimize or maximize, got 'max'"):
        paretune.front(rows, {"f1": "max"})
    with pytest.raises(BadInput, match="no run has a number for f2; the columns are f1, cost_usd"):
        paretune.front(rows, {"f2": "maximize"})


def test_what_a_notebook_shows_is_escaped() -> None:
    trials = paretune.front([{"f1": 0.9, "cost_usd": 1.0, "model": "<script>alert(1)</script>", "origin": "<b>"}])
    output = trials._repr_html_()

    assert "<script>" not in output
    assert "<b>" not in output
    assert "&lt;script&gt;" in output
    assert "all of them are &lt;b&gt;" in output


def test_choices_make_a_row_per_combination_and_all_their_faults_are_said_at_once() -> None:
    with pytest.raises(BadInput) as refused:
        paretune.estimate(SIMULATED, instance_count=[1, 0], sed=[1], model=[])

    assert refused.value.faults == (
        "model must have at least one value",
        "unknown parameter sed: did you mean seed?",
        "instance_count must be at least 1 and at most 1024, got 0",
    )


def test_a_study_in_python_has_its_front_best_trial_and_trials(next_to_the_studies: Path) -> None:
    types = ["ml.g5.xlarge", "ml.g5.12xlarge"]
    goals = {"cost_usd": "minimize", "job_seconds": "minimize"}
    job = SIMULATED.replace(instance_type="ml.g4dn.xlarge", global_batch_size=32)

    study = paretune.study("types", {"instance_type": types}, job=job, objectives=goals, n_trials=2, quiet=True)

    trials = study.trials_dataframe()
    assert sorted(trials["instance_type"]) == sorted(types)
    assert set(study.front["run_id"]) == set(trials["run_id"][trials["pareto_rank"] == 0])
    assert study.best is not None
    assert study.best["parameters"] == {"instance_type": study.front["instance_type"][0]}
    again = {"name": "types", "search": {"instance_type": {"choices": types}}, "n_trials": 2}
    changed = {name: text for name, text in job.given_text().items() if name != "instance_type"}
    again |= {"job": changed, "objectives": goals}
    assert paretune.run_study(again, quiet=True).run_id == study.run_id


def test_a_study_in_python_ignores_the_values_of_its_job_inside_a_mapping_that_it_searches(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paretune.studies.run.run_study_file", lambda file, **_: file)
    (workplace / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
        "parser.add_argument('--depth', type=int)\nparser.parse_args()\n"
    )
    adapters = SIMULATED.replace(fine_tuning="lora", lora={"r": 2, "lora_alpha": 8})
    script: dict[str, Any] = {"entry_script": "train.py", "training_arguments": {"lr": 0.1, "depth": 3}}
    goals = {"cost_usd": "minimize", "acc": "maximize"}

    file: Any = paretune.study("a", {"lora.r": [4, 8]}, job=adapters, n_trials=2)
    own: Any = paretune.study("b", {"lr": [0.2, 0.3]}, job=paretune.JobSpec(**script), objectives=goals, n_trials=2)

    assert (file.job.given()["lora"], file.search["lora.r"].values) == ({"lora_alpha": 8}, (4, 8))
    assert own.job.training_arguments == {"depth": 3}
    assert own.search["training_arguments.lr"].values == (0.2, 0.3)


def test_an_override_of_a_study_in_python_may_be_a_list_of_mappings(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paretune.studies.run.run_study_file", lambda file, **_: file)
    (workplace / "train.py").write_text("print('acc 0.5, loss 0.1')\n")
    content: dict[str, Any] = {
        "name": "x",
        "job": {"entry_script": "train.py"},
        "search": {"instance_count": {"choices": [1, 2]}},
    }
    content |= {"objectives": {"acc": "maximize"}, "n_trials": 2}
    readers = [{"Name": "acc", "Regex": "acc ([0-9.]+), "}, {"Name": "loss", "Regex": "loss ([0-9.]+)"}]

    for some in (readers, tuple(readers), readers[:1]):
        file: Any = paretune.run_study(content, metric_definitions=some)
        assert [*file.job.metric_definitions] == [*some]


def test_faults_of_a_study_in_python_have_no_lines_and_name_their_parameters() -> None:
    with pytest.raises(BadInput) as refused:
        paretune.study("types", {"learning_rate": [1e-5, "fast"]}, job={"modle": "x"}, n_trials=2, n_trial=3)

    assert [fault.partition(",")[0] for fault in refused.value.faults] == [
        "unknown parameter modle: did you mean model or role?",
        "learning_rate must be a number greater than 0",
        "unknown key n_trial: did you mean n_trials?",
    ]
    with pytest.raises(BadInput, match="learning_rate must be a number"):
        paretune.study("types", {"learning_rate": [{1e-5}]}, n_trials=2)
    with pytest.raises(BadInput, match=r"search must be a dict of parameters to the values to try, .*, got 3"):
        paretune.study("types", 3)  # type: ignore[arg-type]
