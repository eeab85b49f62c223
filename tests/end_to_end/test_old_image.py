"""A script in an image that is too old for paretune, on emulated SageMaker: the image's own toolkit runs it.

A stand-in takes the place of the toolkit (sagemaker-training): it reads hyperparameters, code and settings as that
does, and starts the script once, without MPI.
"""

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import copy_store
from tests.end_to_end.cloud import Cloud, account
from tests.stand_ins.sagemaker.emulator import namespaces_are_missing

pytestmark = pytest.mark.slow

TOOLKIT = """
import json, os, subprocess, sys, tarfile
from pathlib import Path
import boto3

texts = json.loads(Path("/opt/ml/input/config/hyperparameters.json").read_text())
told = {name: json.loads(text) for name, text in texts.items()}
bucket, _, key = told["sagemaker_submit_directory"].removeprefix("s3://").partition("/")
boto3.client("s3").download_file(bucket, key, "/tmp/code.tar.gz")
with tarfile.open("/tmp/code.tar.gz") as archive:
    archive.extractall("/opt/ml/code", filter="data")
own = {name: value for name, value in told.items() if not name.startswith("sagemaker_")}
framework = {name: told[name] for name in told if name.startswith(("sagemaker_mpi_", "sagemaker_distributed_"))}
environment = {f"SM_HP_{name.upper()}": json.dumps(value) for name, value in own.items() if isinstance(value, dict)}
words = [word for name, value in own.items() if not isinstance(value, dict) for word in (f"--{name}", str(value))]
program = [sys.executable, told["sagemaker_program"], *words]
environment |= {"SM_FRAMEWORK_PARAMS": json.dumps(framework)}
sys.exit(subprocess.run(program, cwd="/opt/ml/code", env=os.environ | environment).returncode)
"""
SCRIPT = """
import argparse, json, os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", type=Path)
parser.add_argument("--per_device_train_batch_size", type=int)
told, _ = parser.parse_known_args()
settings = json.loads(os.environ["SM_HP_MP_PARAMETERS"])
launcher = json.loads(os.environ["SM_FRAMEWORK_PARAMS"])
told.output_dir.mkdir(exist_ok=True)
found = {
    "eval_f1": 0.5,
    "stages": settings["partitions"],
    "processes": launcher["sagemaker_mpi_num_of_processes_per_host"] * launcher["sagemaker_mpi_enabled"],
    "rows": told.per_device_train_batch_size,
}
(told.output_dir / "all_results.json").write_text(json.dumps(found))
"""


@pytest.fixture
def old_image(tmp_path: Path) -> Path:
    """An image with Python, boto3 and a `train` of its own."""
    image = tmp_path / "image"
    packages = image / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (image / "bin").mkdir(parents=True)
    packages.mkdir(parents=True)
    (image / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    (image / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    (packages / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    train = image / "bin" / "train"
    train.write_text(f"#!{image}/bin/python3\n{TOOLKIT}")
    train.chmod(0o755)
    return image


@pytest.fixture
def cloud(tmp_path: Path, old_image: Path, empty_store: Path) -> Iterator[Cloud]:
    """Somebody whose account knows only the old image."""
    missing = namespaces_are_missing()
    if missing:
        pytest.skip(missing)
    with account(tmp_path / "account", images={"*": old_image}, keep=[Path(sys.prefix)]) as emulator:
        store = copy_store(empty_store, tmp_path)
        yield Cloud(emulator, tmp_path, {"MLFLOW_TRACKING_URI": store})


def test_a_script_gets_the_settings_of_the_old_library_and_leaves_its_results(cloud: Cloud) -> None:
    (cloud.folder / "scripts").mkdir()
    (cloud.folder / "scripts" / "train.py").write_text(SCRIPT)
    job: dict[str, object] = {
        "entry_script": "scripts/train.py",
        "instance_type": "ml.p4d.24xlarge",
        "legacy_smp": {"partitions": 2, "microbatches": 4, "ddp": True},
        "per_device_train_batch_size": 8,
    }

    shown = cloud.run(**job, dry_run="true")
    assert shown.code == 0, shown.text
    assert "AWS has archived version 1" in shown.text
    assert not cloud.created()
    done = cloud.run(**job)
    assert done.code == 0, done.text
    assert "AWS has archived version 1" in done.text

    (request,) = cloud.created()
    assert json.loads(request["HyperParameters"]["mp_parameters"]) == job["legacy_smp"]
    metrics = cloud.the_run().data.metrics
    assert {name: metrics[name] for name in ("f1", "stages", "processes", "rows")} == {
        "f1": 0.5,
        "stages": 2,
        "processes": 8,
        "rows": 8,
    }
    assert metrics["cost_usd"] > 0
