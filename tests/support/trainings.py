"""Runs a small training job in this process, from its document to its report."""

import gc
from pathlib import Path

import pytest

from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder, JobReport, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.training.job import train

SPEC = JobSpec(
    precision="fp32",
    max_seq_length=16,
    per_device_train_batch_size=4,
    training_arguments={"warmup_steps": 2, "weight_decay": 0.01},
)
"""A small training job; with the data set of the fixture `folder`, it has six steps per epoch."""


def give(folder: JobFolder, prepared: PreparedDataset, model: Path) -> None:
    """Replace the data set and the model in a job's folder."""
    for link, source in ((folder.dataset, prepared.folder), (folder.model_source, model)):
        link.unlink(missing_ok=True)
        link.symlink_to(source)


def report_of(spec: JobSpec, folder: JobFolder) -> JobReport:
    """Return the report of a job that runs in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)  # otherwise the last evaluation examines all objects of torch
        assert train(order_of(spec, job_name="job"), folder, lambda: False)
    content = JobReport.model_validate_json(folder.report.read_text())
    assert content is not None
    return content
