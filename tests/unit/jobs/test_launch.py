"""What a job that is launched says before it begins."""

from pathlib import Path

from paretune.spec.job import TRAINING_COMPILER
from tests.unit.jobs.test_adoption import User


def test_that_a_compiler_has_no_releases_any_more_is_said_before_its_job_begins(workplace: Path) -> None:
    user = User(workplace)
    user.type(compiler=TRAINING_COMPILER, instance_type="ml.g4dn.xlarge")
    (said,) = [sentence for sentence in user.told if TRAINING_COMPILER in sentence]

    assert "AWS has ended its releases" in said
    assert "compiler=inductor" in said
