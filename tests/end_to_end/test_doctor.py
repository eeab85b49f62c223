"""`paretune doctor` with an emulated account: its checks, and the job that it pays for."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud import WITHIN_S, Cloud

pytestmark = pytest.mark.slow


@pytest.fixture
def own_job(tiny_model: Path, reviews: Path) -> dict[str, object]:
    """Return a model and rows to use instead of the bundled ones, which take longer."""
    return {"model": tiny_model, "dataset": reviews}


def document_of(text: str) -> dict[str, Any]:
    """Return the JSON document in what a command has printed on both streams."""
    result = json.JSONDecoder().raw_decode(text[re.search(r"^\{\n", text, re.MULTILINE).start() :])[0]  # type: ignore[union-attr]
    return dict(result)


def test_a_sound_account_passes_every_check_and_the_paid_job_is_run(cloud: Cloud, own_job: dict[str, object]) -> None:
    result = cloud.run("doctor")
    assert result.code == 0, result.text
    assert cloud.emulator.jobs() == []
    assert cloud.runs() == []
    assert "at most 0.500 USD" in result.text

    with cloud.start("doctor", paid="true", json="true", **own_job) as running:
        assert running.wait(WITHIN_S) == 0, running.text
        document = document_of(running.text)
    (run,) = cloud.runs()
    assert run.info.status == "FINISHED"
    assert document["wrong"] == 0
    assert document["paid"]["run_id"] == run.info.run_id
    assert 0 < run.data.metrics["cost_usd"] < 0.1
    assert len(cloud.created()) == 1
