"""When a training stops itself, and how much longer it may be billed."""

import json
from pathlib import Path

import pytest

from paretune.estimating.phases import usual
from paretune.launchers import deadlines
from paretune.specification.job import JobSpec


def spec(**changes: object) -> JobSpec:
    return JobSpec(instance_type="ml.g5.xlarge", max_runtime_minutes=60.0, **changes)


def output_of(job: JobSpec) -> deadlines.Output:
    return deadlines.output_of(job, {"HF_HUB_OFFLINE": "1"})


def test_full_fine_tuning_leaves_all_weights_in_fp32_and_adapters_their_share() -> None:
    lora = spec(model="distilbert-base-uncased", fine_tuning="lora")
    jobs = (lora.replace(fine_tuning="full"), lora.replace(lora={"merge": False}), lora.replace(lora={"merge": True}))
    full, adapters, merged = (output_of(job).model_bytes for job in jobs)

    assert full == pytest.approx(0.267e9, rel=0.02)
    assert adapters < full / 20
    assert merged == pytest.approx(full + adapters)
    assert output_of(spec(probe_steps=40)).model_bytes == 0


def test_a_folder_s_configuration_determines_the_size_and_an_unknown_model_is_assumed_large(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 1000, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **sizes}))

    assert output_of(spec(model=str(tmp_path))).model_bytes < 1e7
    assert output_of(spec(model="nobody/knows-this")).model_bytes == deadlines.UNKNOWN_MODEL_BYTES


def test_a_script_gets_its_limit_without_the_200_s_that_are_billed_before_its_container_starts() -> None:
    script = spec(entry_script="train.py")

    assert output_of(script).deadline_s == 3600 - 200
    assert output_of(script.replace(max_runtime_minutes=5.0)).deadline_s == 150  # at least half of the limit
    # Measured on 555 public jobs: see the docstring of `paretune.estimating.phases`, and its table phases.csv.
    usual_s = {kind: usual("data", kind).seconds + usual("image", kind).seconds for kind in ("cpu", "gpu", "multi_gpu")}
    assert max(usual_s.values()) == usual_s["multi_gpu"] == pytest.approx(167, abs=0.5)


@pytest.mark.parametrize("minutes", [1.0, 5.0, 60.0])
@pytest.mark.parametrize("model", ["bundled:minilm", "gpt2-xl"])
def test_what_comes_before_the_container_training_saving_and_upload_stay_within_the_worst_case(
    minutes: float, model: str
) -> None:
    job = spec(model=model) if model != "bundled:minilm" else spec()
    job = job.replace(max_runtime_minutes=minutes)
    limit_s = 60 * minutes

    output = output_of(job)
    deadline_s = output.deadline_s
    saving_s = 3 * output.model_bytes / 500e6
    worst_s = limit_s + output.billed_after_limit_s

    assert limit_s / 2 <= deadline_s < limit_s
    upload_s = output.longest_upload_s
    assert deadlines.LONGEST_BEFORE_CONTAINER_S + deadline_s + saving_s + upload_s <= worst_s + 1e-6


@pytest.mark.parametrize(("limit_s", "trained_s"), [(603, 841), (60, 350)])
def test_the_worst_case_covers_how_late_aws_has_stopped_public_jobs(limit_s: float, trained_s: float) -> None:
    # sagemaker-python-sdk#4451 and airflow#33982: AWS's limit did not count what came before their containers.
    job = spec(entry_script=__file__).replace(max_runtime_minutes=limit_s / 60)
    output = output_of(job)
    billed_s = trained_s - limit_s + output.deadline_s  # this one stops itself
    worst_s = limit_s + output.billed_after_limit_s

    assert billed_s + output.longest_upload_s <= worst_s


def test_a_script_counts_with_uploads_of_public_jobs_and_its_first_with_the_longest() -> None:
    public = usual("uploading", "gpu")
    script = spec(entry_script=__file__)
    large = script.replace(model="gpt2-xl")

    assert output_of(script).longest_upload_s == public.bound
    assert output_of(large).longest_upload_s > public.bound
    for job in (script, large):
        output = output_of(job)
        assert output.longest_upload_s + output.first_upload_s == pytest.approx(2 * public.longest)
    assert output_of(spec(model="gpt2-xl")).first_upload_s == 0.0
