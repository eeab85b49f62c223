"""`paretune doctor` against an emulated account: its checks, and the job that it pays for."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.cloud import WITHIN_S, Cloud

pytestmark = pytest.mark.slow


@pytest.fixture
def own_job(tiny_model: Path, reviews: Path) -> dict[str, object]:
    """Model and rows in place of the bundled ones, which take longer."""
    return {"model": tiny_model, "dataset": reviews}


def document_of(text: str) -> dict[str, Any]:
    """The JSON document in what a command has printed on both streams."""
    result = json.JSONDecoder().raw_decode(text[re.search(r"^\{\n", text, re.MULTILINE).start() :])[0]  # type: ignore[union-attr]
    return dict(result)


def test_a_sound_account_passes_every_check_and_the_paid_checks_that_fit_are_settled(
    cloud: Cloud, own_job: dict[str, object]
) -> None:
    result = cloud.run("doctor")
    assert result.code == 0, result.text
    assert cloud.emulator.jobs() == []
    assert cloud.runs() == []
    assert "at most 0.50 USD" in result.text

    with cloud.start("doctor", paid="true", json="true", **own_job) as running:
        assert running.wait(3 * WITHIN_S) == 0, running.text
        document = document_of(running.text)
    paid = {check["name"]: check for check in document["paid"]}
    assert [check["is_settled"] for check in paid.values()] == [True, True, True, False], paid
    assert "not run, its worst case is 1" in paid["EFA"]["text"]
    assert "it was found, and 250 MB took: uploading_seconds" in paid["output"]["text"]
    pools = [cloud.described(job).get("WarmPoolStatus", {}).get("Status") for job in cloud.emulator.jobs()[2:]]
    assert pools == ["Reused", "Available", None]  # the emulator's pools need a volume of the same size
    assert paid["warm pool"]["text"].count("Reused") == 2  # the verdict's word and the first pool
    assert [len(check["run_ids"]) for check in paid.values()] == [1, 1, 3, 0]
    assert 0 < sum(check["cost_usd"] for check in paid.values()) < 0.1
    assert len(cloud.created()) == 5
    assert {run.info.status for run in cloud.runs()} == {"FINISHED"}


def test_a_paid_check_whose_job_has_no_capacity_says_why_and_is_open(cloud: Cloud, own_job: dict[str, object]) -> None:
    cloud.emulator.lack_capacity("ml.m5.large", times=9)

    done = cloud.run("doctor", paid="true", **own_job)

    assert done.code == 3
    assert "no capacity" in done.text
    assert "the paid checks have cost 0.0000 USD" in done.text
    assert {run.info.status for run in cloud.runs()} == {"FAILED"}
