"""What works without the packages of jobs on SageMaker, or beside version 2 of its SDK."""

import subprocess
import sys

import pytest

_ANSWER = """
import paretune.core.packages as packages

packages.missing = lambda extra: "no SageMaker here"
import {module}
"""


@pytest.mark.parametrize("module", ["paretune.jobs.launch", "paretune.studies.run", "paretune.cli"])
@pytest.mark.slow
def test_the_modules_of_jobs_and_studies_are_imported_without_the_packages_of_sagemaker(module: str) -> None:
    script = _ANSWER.format(module=module)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
