"""What the files in `studies` ask of SageMaker at full size passes the emulator's check and botocore's API model."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.container import JobDocument, JobInputs, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Range
from tests.stand_ins.sagemaker.operations import check_rules
from tests.stand_ins.sagemaker.validation import check
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE

ROOT = Path(__file__).parents[4]
FILES = [path for path in sorted((ROOT / "studies").glob("*.yaml")) if "launcher: local" not in path.read_text()]
TOKENS = 512 * 4
"""Bytes of a row at most, as it is prepared."""


def jobs_of(path: Path) -> list[JobSpec]:
    """Jobs that a file may ask of SageMaker, one for each cluster, compiler and number of rows."""
    study = StudyFile.read(str(path), {"launcher": "sagemaker"})
    result = [spec for _, spec in study.jobs_at(_corners(study))]
    alike = ("instance_type", "instance_count", "strategy", "max_train_samples")
    return list({(*(getattr(spec, name) for name in alike), spec.is_compiled): spec for spec in result}.values())


def _corners(study: StudyFile) -> Iterator[dict[str, Any]]:
    ends = [(entry.low, entry.high) if isinstance(entry, Range) else entry.corners for entry in study.search.values()]
    for values in itertools.product(*ends):
        yield dict(zip(study.search, values, strict=True))


def full_size(spec: JobSpec, folder: Path) -> JobInputs:
    """Prepared rows as large as a job's can be, and a model of the size of DistilBERT; both are sparse files."""
    data, model = folder / f"data-{spec.max_train_samples}", folder / "model"
    for workspace, name, size in (
        (data, "train.arrow", (spec.max_train_samples or 25_000) * TOKENS),
        (model, "model.safetensors", 268_000_000),
    ):
        workspace.mkdir(exist_ok=True)
        with (workspace / name).open("wb") as file:
            file.truncate(size)
    prepared = PreparedDataset(key="0" * 64, folder=data, labels=("0", "1"), facts={})
    return JobInputs(dataset=prepared, model=model)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_request_of_a_shipped_file_is_one_that_sagemaker_takes(
    path: Path, launcher: SageMakerLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    shape = (
        botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    )
    monkeypatch.setattr("paretune.launchers.sagemaker.storage._digest", lambda files: "0" * 64)
    seen: dict[str, Mapping[str, Any]] = {}
    for number, spec in enumerate(jobs_of(path)):
        launcher.check_offline(spec)
        spec = spec.replace(role=ROLE, sagemaker={"s3_bucket": BUCKET})
        document = JobDocument(job_name=f"paretune-run{number}-1", spec=spec, plan=spec.plan())
        request = dict(launcher.preview(document, full_size(spec, tmp_path)))
        check("CreateTrainingJob", request)
        check_rules(request)
        assert not ParamValidator().validate(request, shape).has_errors()
        resources, limit = request["ResourceConfig"], request["StoppingCondition"]["MaxRuntimeInSeconds"]
        assert (resources["InstanceType"], resources["InstanceCount"]) == (spec.instance_type, spec.instance_count)
        assert limit == spec.max_runtime_minutes * 60
        seen[document.job_name] = request
    assert seen
