"""The room for paused trials of a job that searches, shown before the study begins, or refused with other faults."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.core.errors import BadInput
from paretune.studies.run import run_study
from paretune.studies.search.split.paused_trials import paused_trials
from tests.study_rig import driver_of

SEARCH = {"learning_rate": {"choices": [1e-5, 3e-5, 1e-4]}, "per_device_train_batch_size": {"choices": [4, 8]}}


def study(**job: Any) -> dict[str, Any]:
    common = {"launcher": "simulated", "model": "bert-large-uncased", "max_train_samples": 2000, "num_train_epochs": 1}
    return {"name": "paused", "job": common | job, "search": SEARCH, "in_job": "search", "budget_usd": 90}


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        # 335 M weights are 1.25 GiB in fp32: 16 bytes each in a pause, and (1 + 6 * 2 + 6 * 3 * 3) * 1.25 + 10 on disk
        ({"instance_type": "ml.g5.xlarge"}, "on ml.g5.xlarge: 6 trials at most; a paused one takes about 5 GiB"),
        ({"instance_type": "ml.g5.xlarge"}, "; its own disks"),
        ({"instance_type": "ml.m5.xlarge"}, "(1 in main memory, 4 on disk); a volume of 94 GiB"),
        ({"instance_type": "ml.m5.xlarge", "volume_gib": 400}, "; a volume of 400 GiB"),
    ],
)
def test_the_places_of_paused_trials_and_their_disk_are_shown(
    workplace: Path, job: dict[str, Any], sentence: str
) -> None:
    driver = driver_of(workplace, study(**job), {})  # type: ignore[arg-type]
    spec = driver.file.spec_at({"learning_rate": 1e-5, "per_device_train_batch_size": 4})

    (shown,) = paused_trials(driver.file, [spec], driver.workplace)

    assert sentence in shown


def test_a_type_without_room_beside_one_that_has_it_is_a_warning(workplace: Path) -> None:
    driver = driver_of(workplace, study(instance_type="ml.g5.xlarge"), {})  # type: ignore[arg-type]
    spec = driver.file.spec_at({"learning_rate": 1e-5, "per_device_train_batch_size": 4})
    small = spec.replace(instance_type="ml.m5.xlarge", volume_gib=40)

    shown, warning = paused_trials(driver.file, [spec, small], driver.workplace)

    assert "on ml.g5.xlarge" in shown
    assert warning.startswith("warning: in_job=search keeps checkpoints of up to 6 trials")


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        ({"instance_type": "ml.m5.xlarge", "volume_gib": 40}, "need volume_gib=94 or more, got 40"),
        (
            {"instance_type": "ml.g4dn.xlarge", "model": "gpt2-xl"},
            "GiB of disk, and ml.g4dn.xlarge has 116: set a lower",
        ),
    ],
)
def test_more_state_than_the_disk_holds_is_refused_with_a_deadline_that_is_too_early(
    workplace: Path, job: dict[str, Any], fault: str
) -> None:
    with pytest.raises(BadInput) as refused:
        run_study(study(**job, finish_by="1m"), quiet=True)

    assert fault in " ".join(refused.value.faults)
    assert any("finish_by=1m: the quickest trial takes" in text for text in refused.value.faults)
    assert MlflowClient().search_runs(["0"]) == []
