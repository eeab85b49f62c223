"""`paretune.training` with the libraries of AWS's newest Hugging Face image, which are older than paretune's own.

The image only trains. Models and data sets are found and prepared on the launching machine, so these tests do not cover
the modules for that.
"""

import os
import subprocess
from pathlib import Path

import pytest

from paretune.specification.container import JobReport
from paretune.specification.job import JobSpec
from tests.support.instances import curves, instances_of, make_job, run

ROOT = Path(__file__).parents[2]
RUN_IN_THE_IMAGE = (
    *("rows/test_batches.py", "test_arguments.py", "test_checkpoints.py", "test_device.py", "test_evaluation.py"),
    *("test_joined_texts.py", "test_meter.py", "test_model.py", "test_optimizer.py", "test_output_layer.py"),
    *("test_processes.py", "test_strategies.py"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> str:
    """Return the Python of the image's environment."""
    folder = os.environ.get("PARETUNE_IMAGE_ENVIRONMENT")
    if folder is None:
        pytest.skip("run `.ci/image FOLDER` and set PARETUNE_IMAGE_ENVIRONMENT=FOLDER")
    return str(Path(folder) / "bin" / "python")


def test_the_training_wing_keeps_its_promises_with_the_image_s_libraries(python: str) -> None:
    files = [f"tests/unit/training/{name}" for name in RUN_IN_THE_IMAGE]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]


def test_a_training_in_the_image_has_the_curves_of_a_training_here(
    python: str, tiny_model: Path, reviews: Path, tmp_path: Path
) -> None:
    spec = JobSpec(
        model=str(tiny_model),
        dataset=str(reviews),
        max_seq_length=32,
        learning_rate=1e-3,
        precision="fp32",
        strategy="fsdp",
        instance_type="ml.m5.large",
        instance_count=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        training_arguments={"logging_steps": 1, "eval_steps": 3},
    )
    job = make_job(tmp_path / "job", spec)
    here = instances_of(job, 2)
    run(here)
    job.root.rename(tmp_path / "image")
    there = instances_of(type(job)(tmp_path / "image"), 2)
    run(there, python=python)

    assert curves(there[0]) == pytest.approx(curves(here[0]), rel=1e-4)
    assert JobReport.model_validate_json(there[0].report.read_text()).facts["transformers"] == "5.3.0"
