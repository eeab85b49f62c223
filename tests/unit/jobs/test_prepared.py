"""What was prepared is remembered as long as nothing it came from has changed."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paretune.jobs.preparation import cache_inputs, load_cached_inputs
from paretune.spec.container import JobInputs, PreparedDataset
from paretune.spec.job import JobSpec


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    """A job on files of its own."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "rows.csv").write_text("text,label\n")
    return JobSpec(model=str(tmp_path / "model"), dataset=str(tmp_path / "rows.csv"))


@pytest.fixture
def inputs(tmp_path: Path) -> JobInputs:
    """A prepared data set."""
    (tmp_path / "prepared").mkdir()
    dataset = PreparedDataset(key="k", folder=tmp_path / "prepared", labels=("a", "b"), facts={"train_rows": 2.0})
    dataset.write()
    return JobInputs(dataset=dataset, model=tmp_path / "model")


def test_what_was_prepared_is_known_again(spec: JobSpec, inputs: JobInputs, tmp_path: Path) -> None:
    assert load_cached_inputs(spec, tmp_path) is None

    cache_inputs(spec, tmp_path, inputs)

    assert load_cached_inputs(spec, tmp_path) == inputs


@pytest.mark.parametrize(
    "changes",
    [{"seed": 7}, {"learning_rate": 1e-3, "global_batch_size": 64}, {"num_train_epochs": 3.0, "max_cost_usd": 1.0}],
)
def test_jobs_that_only_train_differently_share_it(
    spec: JobSpec, inputs: JobInputs, tmp_path: Path, changes: dict[str, Any]
) -> None:
    cache_inputs(spec, tmp_path, inputs)

    assert load_cached_inputs(replace(spec, **changes), tmp_path) == inputs


@pytest.mark.parametrize(
    "changes",
    [
        {"max_seq_length": 64},
        {"max_train_samples": 10},
        {"task": "causal-lm"},
        {"precision": "bf16"},
        {"training_arguments": {"weight_decay": 0.1}},
        {"instance_count": 2},
    ],
)
def test_what_is_checked_or_made_differently_is_made_again(
    spec: JobSpec, inputs: JobInputs, tmp_path: Path, changes: dict[str, Any]
) -> None:
    cache_inputs(spec, tmp_path, inputs)

    assert load_cached_inputs(replace(spec, **changes), tmp_path) is None


def test_a_file_that_was_written_again_is_read_again(spec: JobSpec, inputs: JobInputs, tmp_path: Path) -> None:
    cache_inputs(spec, tmp_path, inputs)

    os.utime(tmp_path / "rows.csv", ns=(1, 1))

    assert load_cached_inputs(spec, tmp_path) is None


def test_a_prepared_data_set_that_is_gone_is_made_again(spec: JobSpec, inputs: JobInputs, tmp_path: Path) -> None:
    cache_inputs(spec, tmp_path, inputs)

    (tmp_path / "prepared" / "dataset.json").unlink()

    assert load_cached_inputs(spec, tmp_path) is None


def test_what_lies_on_a_hub_is_asked_again_each_time(spec: JobSpec, inputs: JobInputs, tmp_path: Path) -> None:
    hub = replace(spec, dataset="nyu-mll/glue")

    cache_inputs(hub, tmp_path, inputs)

    assert load_cached_inputs(hub, tmp_path) is None
