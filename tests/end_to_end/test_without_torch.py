"""`pip install paretune` without the extra `train`: everything but training on this machine works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.core.packages import install
from tests.support.study_tables import TWO_TRIALS

BLOCK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "datasets", "accelerate", "peft"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
COMMANDS = """
import sys
from paretune.cli import main

SIMULATED = ["--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "2000"]
for words, code in [
    (["train", *SIMULATED, "--dry_run"], 0),
    (["train", *SIMULATED], 0),
    (["study", "--study", "study.yaml"], 0),
    (["estimate", *SIMULATED[2:]], 0),
    (["report"], 0),
    (["prices", "--instance_type", "ml.g5.xlarge"], 0),
    (["sync"], 0),
    (["train", "--seed", "1"], 2),
]:
    found = main(words)
    assert found == code, (words, found)
assert not {"torch", "transformers", "datasets", "accelerate", "peft"} & set(sys.modules)
"""


@pytest.mark.slow
def test_what_launches_runs_without_torch_and_a_local_job_says_what_to_install(workplace: Path) -> None:
    (workplace / "sitecustomize.py").write_text(BLOCK)
    (workplace / "study.yaml").write_text(TWO_TRIALS)
    paths = os.pathsep.join([str(workplace), os.environ.get("PYTHONPATH", "")])

    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (fit,) = [line for line in done.stderr.splitlines() if line.startswith("paretune: ")]
    assert fit.startswith("paretune: accelerate, datasets, peft, torch, transformers must be installed")
    assert install("train") in fit
    assert "Traceback" not in done.stderr
    assert {run.info.status for run in MlflowClient().search_runs(["0"])} == {"FINISHED"}
