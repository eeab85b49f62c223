"""Phases of jobs on SageMaker: medians and intervals by kind of instance, and how they divide a predicted job."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from paretune.estimating import phases
from paretune.estimating.phases import PHASES, Seconds, phases_of, read_phases, usual
from paretune.specification.job import JobSpec

HOUR = Seconds(seconds=3600, seconds_low=3000, seconds_high=4320)


def divide(total: Seconds = HOUR, *, instance_type: str = "ml.g5.xlarge", **more: Any) -> dict[str, Seconds]:
    return dict(phases_of(total, JobSpec(instance_type=instance_type), **more))


def test_the_billed_phases_add_up_to_the_seconds_of_the_job() -> None:
    phases = divide()
    assert tuple(phases) == PHASES
    assert sum(phases[phase].seconds for phase in PHASES[2:]) == pytest.approx(3600)
    assert phases["training"].seconds_high / phases["training"].seconds == pytest.approx(1.2)


def test_the_bytes_of_a_model_are_uploaded_in_addition() -> None:
    small, large = divide(uploaded_bytes=0), divide(uploaded_bytes=5e9)
    assert large["uploading"].seconds - small["uploading"].seconds == pytest.approx(25)  # 200 MB/s
    assert large["training"].seconds == pytest.approx(small["training"].seconds - 25)


OFFLINE = {"HF_HUB_OFFLINE": "1"}


def spec(**changes: object) -> JobSpec:
    return JobSpec(instance_type="ml.g5.xlarge", max_runtime_minutes=60.0, **changes)


def test_full_fine_tuning_leaves_all_weights_in_fp32_and_adapters_their_share() -> None:
    lora = spec(model="distilbert-base-uncased", fine_tuning="lora")
    jobs = (lora.replace(fine_tuning="full"), lora.replace(lora={"merge": False}), lora.replace(lora={"merge": True}))
    full, adapters, merged = (phases.output_bytes(job, OFFLINE) for job in jobs)

    assert full == pytest.approx(0.267e9, rel=0.02)
    assert adapters < full / 20
    assert merged == pytest.approx(full + adapters)
    assert phases.output_bytes(spec(probe_steps=40), OFFLINE) == 0


def test_a_folder_s_configuration_tells_the_size_and_an_unknown_model_is_assumed_large(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 1000, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **sizes}))

    assert phases.output_bytes(spec(model=str(tmp_path)), OFFLINE) < 1e7
    assert phases.output_bytes(spec(model="nobody/knows-this"), OFFLINE) == phases.UNKNOWN_MODEL_BYTES


@pytest.mark.parametrize("minutes", [1.0, 5.0, 60.0])
@pytest.mark.parametrize("model", ["bundled:minilm", "gpt2-xl"])
def test_what_comes_before_the_container_training_saving_and_upload_stay_within_the_worst_case(
    minutes: float, model: str
) -> None:
    job = spec(model=model) if model != "bundled:minilm" else spec()
    job = job.replace(max_runtime_minutes=minutes)
    limit_s = 60 * minutes

    deadline_s = phases.deadline_s(job, limit_s, OFFLINE)
    saving_s = 3 * phases._fp32_bytes(job, OFFLINE) / 500e6
    worst_s = limit_s + phases.billed_after_limit_s(job, OFFLINE)

    assert limit_s / 2 <= deadline_s < limit_s
    upload_s = phases.longest_upload_s(job, OFFLINE)
    assert phases.LONGEST_BEFORE_CONTAINER_S + deadline_s + saving_s + upload_s <= worst_s + 1e-6


@pytest.mark.parametrize(("limit_s", "trained_s"), [(603, 841), (60, 350)])
def test_the_worst_case_covers_how_late_aws_has_stopped_public_jobs(limit_s: float, trained_s: float) -> None:
    """sagemaker-python-sdk#4451 and airflow#33982: AWS's limit did not count what came before their containers."""
    job = spec(entry_script=__file__).replace(max_runtime_minutes=limit_s / 60)
    billed_s = trained_s - limit_s + phases.deadline_s(job, limit_s, OFFLINE)  # this one stops itself
    worst_s = limit_s + phases.billed_after_limit_s(job, OFFLINE)

    assert billed_s + phases.longest_upload_s(job, OFFLINE) <= worst_s


def test_a_script_counts_with_uploads_of_public_jobs_and_its_first_with_the_longest() -> None:
    public = usual("uploading", "gpu")
    script = spec(entry_script=__file__)
    large = script.replace(model="gpt2-xl")

    assert phases.longest_upload_s(script, OFFLINE) == public.bound
    assert phases.longest_upload_s(large, OFFLINE) > public.bound
    for job in (script, large):
        upload_s, more_s = phases.longest_upload_s(job, OFFLINE), phases.first_upload_s(job, OFFLINE)
        assert upload_s + more_s == pytest.approx(2 * public.longest)
    assert phases.first_upload_s(spec(model="gpt2-xl"), OFFLINE) == 0.0


def _job(*transitions: tuple[str, float, float | None]) -> dict[str, Any]:
    entries = [{"Status": status, "StartTime": begin, "EndTime": end} for status, begin, end in transitions]
    return {"SecondaryStatusTransitions": entries}


def test_the_phases_of_public_jobs_fill_their_lives() -> None:
    files = sorted((Path(__file__).parent / "describe_answers").glob("*.json"))
    assert len(files) == 23  # as the docs say
    for answer in (json.loads(path.read_text()) for path in files):
        begin, end = (
            datetime.fromisoformat(answer["SecondaryStatusTransitions"][at]["StartTime"]).timestamp() for at in (0, -1)
        )
        if answer["TrainingJobStatus"] == "Completed":
            phases = read_phases(answer)
            assert set(phases) == {"starting", "downloading", "training", "uploading"}
            assert sum(phases.values()) == pytest.approx(end - begin)
        else:
            assert read_phases(answer, now=begin + 30) == {"starting": 30}


def test_an_unknown_status_counts_as_the_phase_before_it() -> None:
    phases = read_phases(_job(("Downloading", 0, 10), ("Meditating", 10, 25), ("Training", 25, 40), ("Failed", 40, 40)))
    assert phases == {"downloading": 25, "training": 15}


def test_waits_for_capacity_are_told_apart() -> None:
    begun = [("Starting", 0, 10), ("Pending", 10, 70), ("Downloading", 70, 80), ("Training", 80, 100)]
    again = [("Interrupted", 100, 160), ("Starting", 160, 170), ("Downloading", 170, 175), ("Training", 175, 180)]
    phases = read_phases(_job(*begun, *again, ("Uploading", 180, 190), ("Completed", 190, 190)))
    assert phases == {"starting": 20, "waiting": 120, "downloading": 15, "training": 25, "uploading": 10}


def test_a_status_that_begins_before_its_predecessor_begins_with_it() -> None:
    phases = read_phases(_job(("Starting", 0, 10), ("Training", 50, 60), ("Uploading", 20, 65), ("Completed", 65, 65)))
    assert phases == {"starting": 50, "training": 0, "uploading": 15}
