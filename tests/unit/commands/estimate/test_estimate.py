"""What is refused before a table of estimates is made."""

from pathlib import Path

import pytest

from paretune import estimate
from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec


@pytest.mark.parametrize(("precision", "instance_type"), [("bf16", "ml.g4dn.xlarge"), ("fp16", "ml.m5.large")])
def test_a_precision_that_the_launch_would_refuse_has_no_estimate(
    precision: str, instance_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = JobSpec(instance_type=instance_type, precision=precision, region="us-east-1")

    with pytest.raises(BadInput, match=f"precision {precision} needs a GPU.*{instance_type} has"):
        estimate(job)
