"""What only a GPU can show. One GPU is enough: two instances share it, and NCCL takes them for two hosts.

`.ci/gpu` runs the most important tests. With PARETUNE_REHEARSE they run on a CPU, which shows that they work.
"""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from paretune.specification.container import JobFolder, JobReport
from paretune.specification.job import JobSpec
from tests.support.instances import (
    check_it_is_the_same_training,
    copy_checkpoints_to_all,
    instances_of,
    make_job,
    messages,
    model_without_dropout,
    run,
    running,
    wait_for_step,
)
from tests.support.sentences import sentences, write_csv

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.cuda.is_available() or os.environ.get("PARETUNE_REHEARSE")),
        reason="on a machine with a GPU: pytest -m slow -k test_gpu",
    ),
]

STOPS = 1 if os.environ.get("PARETUNE_REHEARSE") else 2
ENDS_WITHIN_S = 110.0


@pytest.fixture
def spec(tiny_model: Path, tmp_path: Path) -> JobSpec:
    """Return a job of 46 steps on one GPU."""
    return JobSpec(
        model=str(model_without_dropout(tiny_model, tmp_path / "sober")),
        dataset=str(write_csv(tmp_path / "reviews.csv", sentences(400))),
        max_seq_length=32,
        num_train_epochs=2.0,
        learning_rate=3e-3,
        global_batch_size=16,
        precision="fp32",
        training_arguments={"logging_steps": 1, "eval_steps": 9},
    )


def on_two_instances(spec: JobSpec, **changes: Any) -> JobSpec:
    return spec.replace(instance_count=2, instance_type="ml.m5.large", per_device_train_batch_size=4, **changes)


def report_of(job: JobFolder) -> JobReport:
    return JobReport.model_validate_json(job.report.read_text())


@pytest.mark.parametrize(
    ("changes", "precision"),
    [
        ({"precision": "auto"}, "bf16"),
        ({"precision": "fp16"}, "fp16"),
        ({"precision": "fp32"}, "fp32"),
        ({"precision": "bf16", "fine_tuning": "lora"}, "bf16"),
        ({"precision": "bf16", "fine_tuning": "qlora"}, "bf16"),
        ({"precision": "bf16", "training_arguments": {"gradient_checkpointing": True}}, "bf16"),
        ({"precision": "bf16", "training_arguments": {"torch_compile": True}}, "bf16"),
        ({"precision": "bf16", "profile_steps": 5}, "bf16"),
        ({"precision": "bf16", "strategy": "fsdp", "cpu_offload": True}, "bf16"),
    ],
    ids=str,
)
def test_each_way_of_training_runs_on_the_gpu(
    spec: JobSpec, tmp_path: Path, changes: dict[str, Any], precision: str
) -> None:
    job = make_job(tmp_path / "job", spec.replace(**changes))

    run([job])

    report = report_of(job)
    assert report.facts["device"] == torch.cuda.get_device_name()
    assert report.facts["precision"] == precision
    assert report.metrics["f1"] > (0.3 if "fine_tuning" in changes else 0.8)  # adapters learn little on random weights
    assert 0 < report.metrics["peak_memory_gib"] < 2


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_instances_train_the_model_of_one(spec: JobSpec, tmp_path: Path, strategy: str) -> None:
    alone = make_job(tmp_path / "alone", spec)
    both = instances_of(make_job(tmp_path / "both", on_two_instances(spec, strategy=strategy)), 2)

    run([alone])
    run(both)

    check_it_is_the_same_training(both[0], alone)


def test_two_instances_with_adapters_return_the_best_model_of_one(spec: JobSpec, tmp_path: Path) -> None:
    best = {"eval_strategy": "epoch", "load_best_model_at_end": True}
    adapting = spec.replace(fine_tuning="lora", training_arguments={"logging_steps": 1, **best})
    alone = make_job(tmp_path / "alone", adapting)
    both = instances_of(make_job(tmp_path / "both", on_two_instances(adapting)), 2)

    run([alone])
    run(both)

    check_it_is_the_same_training(both[0], alone)


def test_shards_of_four_bit_weights_train_what_a_device_map_trains(spec: JobSpec, tmp_path: Path) -> None:
    adapting = spec.replace(fine_tuning="qlora")
    alone = make_job(tmp_path / "alone", adapting.replace(strategy="device_map"))
    both = instances_of(make_job(tmp_path / "both", on_two_instances(adapting, strategy="fsdp")), 2)

    run([alone])
    run(both)

    check_it_is_the_same_training(both[0], alone)
    assert not [*both[0].model.glob("adapter*")]  # they are merged


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_stopped_instances_have_done_the_same_step_and_go_on_from_it(
    spec: JobSpec, tmp_path: Path, strategy: str
) -> None:
    """Send the signals up to half a second apart, in either order, while NCCL's work is queued."""
    chance = random.Random(strategy)
    endless = spec.replace(num_train_epochs=2000.0, training_arguments={"logging_steps": 1, "eval_strategy": "no"})
    folders = instances_of(make_job(tmp_path / "job", on_two_instances(endless, strategy=strategy)), 2)
    last = 0
    for _ in range(STOPS):
        with running(folders) as processes:
            wait_for_step(folders[0], last + chance.randint(2, 60))
            for process in chance.sample(processes, k=2):
                process.send_signal(signal.SIGTERM)
                time.sleep(chance.uniform(0, 0.5))
            codes = [process.wait(ENDS_WITHIN_S) for process in processes]
        assert codes == [0, 0], "\n".join(folder.log.read_text()[-3000:] for folder in folders)
        assert all(folder.stopped.exists() and not folder.failure.exists() for folder in folders)
        printed = messages(folders[0])
        stopped_at = int(printed[-1].split()[3].rstrip(","))
        assert stopped_at > last
        if last:
            assert printed[-2] == f"continuing from checkpoint-{last}"
        copy_checkpoints_to_all(folders)
        for folder in folders:
            folder.stopped.unlink()
        last = stopped_at
