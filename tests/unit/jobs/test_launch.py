"""What a job that is launched says before it begins, and that a dry run, an estimate and a simulation agree with it."""

from pathlib import Path
from typing import Any

import pytest

from paretune.cli.main import main
from paretune.core.errors import BadInput
from paretune.jobs.launch import _preview
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.cluster import Cluster
from paretune.specification.job import TRAINING_COMPILER, JobSpec
from tests.unit.jobs.test_adoption import User
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, FakeClock
from tests.workplaces import make_workplace

SMP = {"strategy": "smp", "instance_type": "ml.p4d.24xlarge", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (
            {"compiler": TRAINING_COMPILER, "instance_type": "ml.g4dn.xlarge"},
            [TRAINING_COMPILER, "AWS has ended its releases", "compiler=inductor"],
        ),
        (
            {"legacy_smp": {"partitions": 8}, "instance_type": "ml.p4d.24xlarge"},
            ["legacy_smp", "AWS has archived version 1", "strategy=fsdp"],
        ),
    ],
)
def test_what_aws_has_ended_is_said_before_its_job_begins(
    asked: dict[str, Any], parts: list[str], workplace: Path
) -> None:
    user = User(workplace)
    user.type(**asked)
    (said,) = [sentence for sentence in user.told if parts[0] in sentence]

    assert all(part in said for part in parts)
    preview = _preview(user.spec(**asked), make_workplace(launcher=user.launcher))
    assert preview.shown["warnings"][0] == said


@pytest.mark.parametrize("degree", ["tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree"])
def test_what_cannot_be_trained_with_smp_is_refused_wherever_it_is_asked(
    degree: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {**SMP, degree: "2", "max_train_samples": "4000"}
    words = [word for name, text in job.items() for word in (f"--{name}", text)]
    for command in (
        ["main", *words, "--launcher", "simulated"],
        ["main", *words, "--launcher", "simulated", "--dry_run", "true"],
        ["estimate", *words],
    ):
        assert main(command) == 2
        assert f"{degree} above 1 with strategy=smp needs a training script" in capsys.readouterr().err
    launcher = SageMakerLauncher(Cluster(role=ROLE, bucket=BUCKET, region="us-east-1"), FakeClock(), {})
    for dry_run in ("true", "false"):
        with pytest.raises(BadInput, match=f"{degree} above 1 with strategy=smp needs a training script"):
            launcher.check_offline(JobSpec.from_text({**job, "dry_run": dry_run}))


def test_a_script_of_one_s_own_may_divide_layers_with_smp(workplace: Path) -> None:
    (workplace / "train.py").write_text("pass\n")
    job = {**SMP, "tensor_parallel_degree": "2", "entry_script": str(workplace / "train.py")}
    words = [word for name, text in job.items() for word in (f"--{name}", text)]

    SageMakerLauncher(Cluster(role=ROLE, bucket=BUCKET, region="us-east-1"), FakeClock(), {}).check_offline(
        JobSpec.from_text(job)
    )
    assert main(["main", *words, "--launcher", "simulated", "--dry_run", "true"]) == 0
