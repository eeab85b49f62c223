"""What earlier runs have shown, read from their records."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.core.clock import SystemClock
from paretune.estimating import evidence
from paretune.estimating.architecture import well_known
from paretune.estimating.counting import Work, describe
from paretune.estimating.evidence import Evidence, collect, read
from paretune.estimating.workload import setting_of
from paretune.specification.job import JobSpec
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.store import Tracking
from tests.support.recorded_jobs import put_run

A10G = {"instance_type": "ml.g5.xlarge", "max_train_samples": 1600, "per_device_train_batch_size": 32}
MEASURED = {"billable_seconds": 500.0, "throughput_samples_per_second": 64.0, "peak_memory_gib": 3.0}
COMPLETED = {"paretune.origin": "measured", "paretune.state": "Completed"}
OOM = {
    "paretune.origin": "measured",
    "paretune.state": "Failed",
    "paretune.cause": "out_of_memory",
}


def run_of(tags: Mapping[str, str] = COMPLETED, metrics: Mapping[str, float] = MEASURED, **changes: Any) -> RecordedRun:
    spec = JobSpec(**{**A10G, **changes})
    return RecordedRun("run", params=spec.as_text(), tags=dict(tags), metrics=dict(metrics))


def work_of(**changes: Any) -> Work | None:
    spec = JobSpec(**{**A10G, **changes})
    built = well_known(spec.model)
    assert built is not None
    setting = setting_of(spec, spec.plan(), built)
    return None if setting is None else describe(setting)


def test_a_finished_job_shows_seconds_a_step_and_a_peak() -> None:
    content = read([run_of()])

    (time,), ((memory, peak),) = content.times, content.peaks
    assert (time.seconds, time.step_seconds, time.origin) == (500.0, 0.5, "measured")  # 32 rows at 64 a second
    assert time.work == work_of()
    assert (memory.model, peak) == (f"{JobSpec().model} 128 full", 3.0)
    assert content.did_not_fit == []


def test_trainings_of_one_s_own_show_their_seconds_if_measured_undisturbed() -> None:
    script = {"entry_script": "train.py"}
    simulated = COMPLETED | {"paretune.origin": "simulated"}
    content = read([run_of(**script), run_of(simulated, **script), run_of(OOM, **script), run_of(spot=True, **script)])

    assert content.of_user_code == [(JobSpec(**A10G, **script), 500.0)]
    assert content.times == []


def test_a_disturbed_job_shows_its_step_but_not_its_seconds() -> None:
    retried = run_of(COMPLETED | {"paretune.out_of_memory_retries": "1"})
    resumed = run_of(metrics=MEASURED | {"resumed": 1.0})
    again = run_of(COMPLETED | {"paretune.job_name": "paretune-0a1b-2"})  # after an internal error of AWS
    content = read([retried, resumed, again, run_of(spot=True), run_of(profile_steps=10)])

    assert [(time.seconds, time.step_seconds) for time in content.times] == [(None, 0.5)] * 5


def test_a_job_that_waited_in_vain_for_its_first_instance_type_shows_its_seconds() -> None:
    tags = {"paretune.job_name": "paretune-0a1b-2", "paretune.used_instance_type": "ml.g5.2xlarge"}
    (time,) = read([run_of(COMPLETED | tags)]).times

    assert time.seconds == 500.0


def test_a_job_that_was_repeated_on_a_fallback_type_does_not_show_its_seconds() -> None:
    used = {"paretune.job_name": "paretune-0a1b-2", "paretune.used_instance_type": "ml.g5.2xlarge"}
    script = {"entry_script": "train.py", "fallback_instance_types": "ml.g5.2xlarge"}
    tags = COMPLETED | used | {"paretune.repeated": "true"}
    content = read([run_of(tags), run_of(tags, **script)])

    assert [time.seconds for time in content.times] == [None]
    assert content.of_user_code == []


def test_runs_that_are_no_jobs_or_of_a_script_are_passed_over(tmp_path: Path) -> None:
    runs = [
        RecordedRun("strange", params={"learning_rate": "fast", "instance_type": "ml.nothing"}, tags=COMPLETED),
        run_of(entry_script=str(tmp_path / "train.py")),
        run_of(model="nobody/knows-this"),
        run_of(),
    ]

    content = read(runs)
    assert (len(content.times), content.did_not_fit) == (1, [])


def test_a_model_of_one_s_own_is_known_by_the_weights_its_job_has_counted() -> None:
    counted = {"total_parameters": 2e6, "matrix_parameters": 1e6, "layers": 3.0, "hidden_size": 64.0}
    ((memory, _),) = read([run_of(metrics=MEASURED | counted, model="own/model", max_seq_length=16)]).peaks

    assert memory.parameters == 2e6
    assert memory.units == pytest.approx(32 * 16 * 3 * 64)


def test_a_job_counts_where_it_ran_and_not_where_it_was_asked_to() -> None:
    tags = {
        "paretune.used_instance_type": "ml.g5.12xlarge",
        "paretune.used_per_device_train_batch_size": "8",
        "paretune.used_gradient_accumulation_steps": "1",
    }
    (time,) = read([run_of(COMPLETED | tags, fallback_instance_types="ml.g5.12xlarge")]).times

    assert (time.work.devices, time.work.cluster) == (4, "ml.g5.12xlarge x 1 ddp")
    assert time.step_seconds == 0.5  # the global batch size is still 32


Put = Callable[[RecordedRun], str]


@pytest.fixture
def put(client: MlflowClient) -> Put:
    """Return a function that puts a run into an empty store."""
    return lambda run: put_run(client, run.params, run.tags, run.metrics)


def collected(**how: Any) -> Evidence:
    return collect(Tracking({}, SystemClock()), **how)


def test_local_runs_of_another_machine_are_left_out_and_instances_are_everybody_s(put: Put) -> None:
    local: dict[str, Any] = {"instance_type": "local"}
    put(run_of(COMPLETED | {"paretune.machine": "here"}, **local))
    put(run_of(COMPLETED | {"paretune.machine": "there"}, **local))
    put(run_of(COMPLETED | {"paretune.machine": "there"}))
    put(run_of(COMPLETED | {"paretune.state": "Running"}))
    put(RecordedRun("", params={"model": "anything"}, tags={}, metrics=MEASURED))  # not a run of paretune

    assert len(collected(machine="here").times) == 2
    assert len(collected().times) == 3


def test_the_newest_runs_are_read_and_those_that_ran_out_of_memory_are_never_forgotten(
    put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "NEWEST", dict.fromkeys(evidence.NEWEST, 2))
    put(run_of(OOM, {}, per_device_train_batch_size=64))
    put(run_of(COMPLETED | {"paretune.out_of_memory_retries": "1"}, {}))
    for seconds in (1.0, 2.0, 3.0):
        put(run_of(metrics={"billable_seconds": seconds}))
        put(run_of(metrics={"billable_seconds": seconds}, instance_type="local"))

    result = collected()
    assert len(result.times) == 4  # two local ones, two of instances
    assert [item.rows for item in result.did_not_fit] == [64]
