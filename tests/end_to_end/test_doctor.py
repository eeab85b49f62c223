"""`paretune doctor` against an emulated account: its checks, and the one job that it pays for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import copy_store, sentences, user_s_own, write_csv
from tests.end_to_end.cloud import Cloud, account
from tests.stand_ins.sagemaker.emulator import namespaces_are_missing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_job(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, object]:
    """Model and rows in place of the bundled ones, which take longer."""
    rows = write_csv(tmp_path_factory.mktemp("rows") / "reviews.csv", sentences(120))
    return {"model": tiny_model, "dataset": rows}


@pytest.fixture
def cloud(tmp_path: Path, empty_store: Path) -> Iterator[Cloud]:
    """A user of an emulated account, whose folder is called like nothing of the account."""
    missing = namespaces_are_missing()
    if missing:
        pytest.skip(missing)
    folder = tmp_path / "user"
    folder.mkdir()
    with account(tmp_path / "account") as emulator:
        yield Cloud(emulator, folder, {"MLFLOW_TRACKING_URI": copy_store(empty_store, folder)} | user_s_own(folder))


def document_of(text: str) -> dict[str, Any]:
    """The JSON document in what a command has printed on both streams."""
    found = json.JSONDecoder().raw_decode(text[re.search(r"^\{\n", text, re.MULTILINE).start() :])[0]  # type: ignore[union-attr]
    return dict(found)


def private(cloud: Cloud) -> list[str]:
    """What a report must not name."""
    return [cloud.emulator.account, cloud.emulator.role, cloud.emulator.bucket, "SageMakerRole", "arn:aws"]


def test_a_sound_account_passes_every_check_and_the_paid_job_is_as_expected(
    cloud: Cloud, own_job: dict[str, object]
) -> None:
    shown = cloud.run("doctor")
    assert shown.code == 0, shown.text
    assert cloud.emulator.jobs() == []
    assert cloud.runs() == []
    assert "at most 0.044 USD" in shown.text

    done = cloud.run("doctor", paid="true", json="true", **own_job)

    assert done.code == 0, done.text
    document = document_of(done.text)
    assert document["wrong"] == 0
    paid = document["paid"]
    assert paid["differences"] == []
    assert paid["compared"] > 50
    assert cloud.emulator.jobs() == [paid["job_name"]]
    (sent,) = cloud.created()
    assert sent["StoppingCondition"]["MaxRuntimeInSeconds"] == 1200
    assert paid["cost_usd"] < 0.1
    report = Path(paid["report"]).read_text()
    assert not [name for name in private(cloud) if name in report]
    for part in ("0 of ", "Starting", "BillableTimeInSeconds", "<arn>", "s3://<bucket>"):
        assert part in report
