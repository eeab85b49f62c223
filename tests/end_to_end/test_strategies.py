"""Ways of spreading one job across processes: they train the same model, stop together and fail together."""

import json
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import AutoModelForSequenceClassification

from paretune.specification.container import JobFolder, JobReport
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec
from tests.support.instances import (
    SOURCE,
    check_it_is_the_same_training,
    copy_checkpoints_to_all,
    curves,
    instances_of,
    make_job,
    messages,
    model_without_dropout,
    run,
    running,
    wait_for_step,
    weights_of,
)
from tests.support.processes import wait_until
from tests.support.sentences import sentences, write_csv

pytestmark = pytest.mark.slow

ENDS_WITHIN_S = 60.0
EVERY_STEP = {"logging_steps": 1, "eval_steps": 7}


@pytest.fixture(scope="module")
def one_process(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    """Return a job of fourteen steps in one process."""
    folder = tmp_path_factory.mktemp("inputs")
    return JobSpec(
        model=str(model_without_dropout(tiny_model, folder / "sober")),
        dataset=str(write_csv(folder / "reviews.csv", sentences(120))),
        max_seq_length=32,
        num_train_epochs=2.0,
        learning_rate=1e-3,
        global_batch_size=16,
        precision="fp32",
        training_arguments=EVERY_STEP,
    )


def on_two_processes(spec: JobSpec, **changes: Any) -> JobSpec:
    """Return the same job in two processes, with two micro-batches per step."""
    return spec.replace(instance_count=2, per_device_train_batch_size=4, **changes)


def on_two_instances(spec: JobSpec, **changes: Any) -> JobSpec:
    """Return the same job on two instances, with four micro-batches per step."""
    return spec.replace(instance_count=2, instance_type="ml.m5.large", per_device_train_batch_size=2, **changes)


@pytest.fixture(scope="module")
def alone(one_process: JobSpec, tmp_path_factory: pytest.TempPathFactory) -> JobFolder:
    """Return the finished job of one process."""
    job = make_job(tmp_path_factory.mktemp("alone") / "job", one_process)
    run([job])
    report = JobReport.model_validate_json(job.report.read_text())
    assert report.metrics["f1"] > 0
    return job


@pytest.fixture(scope="module")
def in_two_processes(
    one_process: JobSpec, alone: JobFolder, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], JobFolder]:
    """Return a function from a strategy to the finished job of two processes.

    With fsdp, `held-RANK.json` next to the job says what each process held.
    """

    @cache
    def finished(strategy: str) -> JobFolder:
        folder = tmp_path_factory.mktemp(strategy)
        job = make_job(folder / "job", on_two_processes(one_process, strategy=strategy), inputs=alone)
        environment = {"GLOO_SOCKET_IFNAME": "lo"}
        if strategy == "fsdp":
            (folder / "sitecustomize.py").write_text(WEIGH)
            environment["PYTHONPATH"] = f"{folder}:{SOURCE}"
        run([job], environment=environment)
        return job

    return finished


@pytest.mark.essential
def test_two_processes_train_the_model_of_one(alone: JobFolder, in_two_processes: Callable[[str], JobFolder]) -> None:
    check_it_is_the_same_training(in_two_processes("ddp"), alone)


def test_two_sharded_processes_and_two_instances_train_the_model_of_one_process(
    one_process: JobSpec, alone: JobFolder, in_two_processes: Callable[[str], JobFolder], tmp_path: Path
) -> None:
    check_it_is_the_same_training(in_two_processes("fsdp"), alone)
    first, second = instances_of(make_job(tmp_path / "far", on_two_instances(one_process, strategy="fsdp")), 2)
    run([first, second])
    check_it_is_the_same_training(first, alone)

    loaded = AutoModelForSequenceClassification.from_pretrained(first.model)
    assert type(loaded).__name__ == "BertForSequenceClassification"
    assert loaded.config.architectures == ["BertForSequenceClassification"]
    assert not second.report.exists()
    assert list(second.checkpoints.iterdir()) == []


@pytest.mark.parametrize(("strategy", "is_stopped"), [("ddp", False), ("fsdp", True)])
def test_two_instances_return_the_best_model_although_each_has_files_of_its_own(
    one_process: JobSpec, tmp_path: Path, strategy: str, is_stopped: bool
) -> None:
    # The loss falls, so its highest value is the one after the first epoch.
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    spec = one_process.replace(num_train_epochs=6.0, training_arguments={"eval_strategy": "epoch", **best})
    folders = instances_of(make_job(tmp_path / "job", on_two_instances(spec, strategy=strategy)), 2)
    if is_stopped:
        with running(folders) as processes:
            wait_for_step(folders[0], 15)
            for process in processes:
                process.send_signal(signal.SIGTERM)
            assert [process.wait(ENDS_WITHIN_S) for process in processes] == [0, 0], folders[0].log.read_text()[-3000:]
        copy_checkpoints_to_all(folders)

    run(folders)

    first, *later, returned = [value for (_, name), value in curves(folders[0]).items() if name == "eval/loss"]
    report = JobReport.model_validate_json(folders[0].report.read_text())
    assert report.metrics["eval_loss"] == returned == pytest.approx(first, abs=1e-6)
    assert max(later) < first


@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        ("fsdp", {"fine_tuning": "head"}),
        ("fsdp", {"fine_tuning": "lora", "task": "causal-lm"}),
        ("ddp", {"fine_tuning": "qlora", "lora": {"r": 4}}),
        ("fsdp", {"fine_tuning": "qlora", "lora": {"r": 4}}),
        ("fsdp", {"fine_tuning": "qlora", "task": "causal-lm"}),
    ],
    ids=str,
)
def test_adapters_frozen_encoders_language_models_and_four_bit_weights_are_trained_together(
    one_process: JobSpec, tiny_causal_model: Path, tmp_path: Path, strategy: str, changes: dict[str, Any]
) -> None:
    if "task" in changes:
        changes = changes | {"model": str(model_without_dropout(tiny_causal_model, tmp_path / "sober-causal"))}
    together = {"strategy": "device_map"} if changes["fine_tuning"] == "qlora" else {}
    alone = make_job(tmp_path / "alone", one_process.replace(**changes, **together))
    sharded = make_job(tmp_path / "sharded", on_two_processes(one_process, strategy=strategy, **changes))

    run([alone])
    run([sharded], environment={"GLOO_SOCKET_IFNAME": "lo"})

    check_it_is_the_same_training(sharded, alone)
    assert not [*sharded.model.glob("adapter*"), *alone.model.glob("adapter*")]  # they are merged
    parameters = JobReport.model_validate_json(alone.report.read_text()).metrics
    assert 0 < parameters["trainable_parameters"] < parameters["total_parameters"] / 3


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_train_the_language_model_of_one_without_its_logits(
    one_process: JobSpec, tiny_causal_model: Path, tmp_path: Path, strategy: str
) -> None:
    sober = str(model_without_dropout(tiny_causal_model, tmp_path / "sober-causal"))
    spec = one_process.replace(task="causal-lm", model=sober)
    alone = make_job(tmp_path / "alone", spec)
    together = make_job(tmp_path / "together", on_two_processes(spec, strategy=strategy))
    (tmp_path / "sitecustomize.py").write_text(NO_LOGITS)
    environment = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": f"{tmp_path}:{SOURCE}"}

    run([alone], environment=environment)
    run([together], environment=environment)

    check_it_is_the_same_training(together, alone)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_whose_gradients_are_not_finite_changes_nothing_in_any_process(
    one_process: JobSpec, tmp_path: Path, precision: str
) -> None:
    job = make_job(tmp_path / "job", on_two_processes(one_process, precision=precision))
    (tmp_path / "sitecustomize.py").write_text(INFINITE_GRADIENT)

    run([job], environment={"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": f"{tmp_path}:{SOURCE}"})

    assert JobReport.model_validate_json(job.report.read_text()).metrics["skipped_steps"] == 1
    assert all(bool((abs(item) < 1e3).all()) for item in weights_of(job).values())


INFINITE_GRADIENT = '''
"""Makes the loss of one micro-batch in one process infinite, and so all gradients of the fourth step."""
import math, os, sys

if os.environ.get("RANK") == "1" and "paretune.training" in " ".join(sys.orig_argv):
    import paretune.training.tasks as tasks

    of_logits, calls = tasks.SummedLoss.of_logits, []

    def broken(loss, logits, labels):
        calls.append(1)
        return of_logits(loss, logits, labels) * (math.inf if len(calls) == 7 else 1.0)

    tasks.SummedLoss.of_logits = broken
'''
NO_LOGITS = '''
"""Lets a job fail if it computes the loss of a language model from logits."""
import sys

if "paretune.training" in " ".join(sys.orig_argv):
    import paretune.training.tasks as tasks

    del tasks.SummedLoss.of_logits
'''


def test_one_process_loads_the_model_and_each_holds_its_share_of_weights_and_optimizer_state(
    in_two_processes: Callable[[str], JobFolder],
) -> None:
    folder = in_two_processes("fsdp").root.parent
    held = [json.loads((folder / f"held-{rank}.json").read_text()) for rank in range(2)]
    whole = held[0]["whole"]
    assert held[0]["kinds"] == held[1]["kinds"] == ["DTensor"]
    assert [each["loaded"] for each in held] == [whole, 0]
    for name, size in (("weights", whole), ("moments", 2 * whole)):  # Adam has two
        shares = [each[name] for each in held]
        assert sum(shares) == size
        assert max(shares) < 0.6 * size


WEIGH = '''
"""Weighs what a process holds when its training is over."""
import json, os, sys
from pathlib import Path

if "LOCAL_RANK" in os.environ and "paretune.training" in " ".join(sys.orig_argv):
    import paretune.training.job as job

    run, build, loaded = job.Loop.run, job.build_model, []

    def weigh_and_build(*arguments, **options):
        model, drawn = build(*arguments, **options)
        loaded.extend(item.numel() for item in model.parameters() if not item.is_meta)
        return model, drawn

    def run_and_weigh(loop, *arguments, **options):
        has_finished = run(loop, *arguments, **options)
        items = list(loop.strategy.model.parameters())
        states = [entry[name] for entry in loop.optimizer.inner.state.values() for name in ("exp_avg", "exp_avg_sq")]
        held = {
            "kinds": sorted({type(item.data).__name__ for item in items}),
            "loaded": sum(loaded),
            "whole": sum(item.numel() for item in items),
            "weights": sum(item.to_local().numel() for item in items),
            "moments": sum(item.to_local().numel() for item in states),
        }
        Path(__file__).with_name(f"held-{os.environ['RANK']}.json").write_text(json.dumps(held))
        return has_finished

    job.Loop.run, job.build_model = run_and_weigh, weigh_and_build
'''


@pytest.fixture
def long_job(one_process: JobSpec, tiny_model: Path) -> JobSpec:
    """Return a training job of 84 steps on two instances, with dropout, so its random numbers must continue too."""
    long = one_process.replace(model=str(tiny_model), num_train_epochs=12.0)
    return on_two_instances(long, training_arguments={"logging_steps": 1, "eval_strategy": "no"})


def test_instances_stop_after_the_same_step_and_go_on_as_if_never_stopped(long_job: JobSpec, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", long_job.replace(strategy="fsdp"))
    undisturbed = instances_of(job, 2)
    run(undisturbed)
    expected = curves(undisturbed[0])
    job.root.rename(tmp_path / "stopped")
    stopped = instances_of(JobFolder(tmp_path / "stopped"), 2)

    with running(stopped) as (first, second):
        wait_for_step(stopped[0], 30)
        second.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # the signals of an interruption do not arrive together
        first.send_signal(signal.SIGTERM)
        assert [first.wait(ENDS_WITHIN_S), second.wait(ENDS_WITHIN_S)] == [0, 0], stopped[0].log.read_text()[-3000:]

    assert all(folder.stopped.exists() and not folder.failure.exists() for folder in stopped)
    (message,) = messages(stopped[0])
    copy_checkpoints_to_all(stopped)
    run(stopped)
    assert messages(stopped[0])[1] == f"continuing from checkpoint-{message.split()[3].rstrip(',')}"
    assert curves(stopped[0]) == expected


STOP_AT_THE_END = '''
"""Stops the job while its first process is writing the model."""
import os, signal, sys
from pathlib import Path

if os.environ.get("RANK") == "0" and "paretune.training" in " ".join(sys.orig_argv):
    import paretune.training.job as job

    write_model = job.write_model

    def stop_and_write(*arguments):
        os.kill(os.getppid(), signal.SIGTERM)  # torchrun
        Path(__file__).with_name("sent").touch()
        write_model(*arguments)

    job.write_model = stop_and_write
'''


def test_processes_that_are_stopped_after_their_last_step_finish_the_job(one_process: JobSpec, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", on_two_processes(one_process.replace(num_train_epochs=1.0)))
    (tmp_path / "sitecustomize.py").write_text(STOP_AT_THE_END)

    run([job], environment={"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": f"{tmp_path}:{SOURCE}"})

    assert (tmp_path / "sent").exists()
    assert JobReport.model_validate_json(job.report.read_text()).metrics["f1"] > 0
    assert [*job.model.glob("*.safetensors")]
    assert not job.failure.exists()
    assert not job.stopped.exists()


def test_an_instance_that_is_gone_ends_the_others_and_is_not_called_the_cause(
    long_job: JobSpec, tmp_path: Path
) -> None:
    folders = instances_of(make_job(tmp_path / "job", long_job), 2)
    with running(folders) as (first, second):
        wait_for_step(folders[0], 5)
        for process in [psutil.Process(second.pid), *psutil.Process(second.pid).children(recursive=True)]:
            process.kill()  # switching an instance off ends all its processes

        assert first.wait(ENDS_WITHIN_S) == 1
    failure = folders[0].read_failure()
    assert failure is not None
    assert failure.cause is Cause.ERROR
    assert "another process of the job ended first" in failure.sentence
    assert not folders[0].report.exists()


def test_an_instance_that_waits_for_ever_is_ended_with_the_reason(long_job: JobSpec, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("from paretune.core import watchdog\nwatchdog.SILENCE_S = 5.0\n")
    folders = instances_of(make_job(tmp_path / "job", long_job), 2)
    with running(folders, environment={"PYTHONPATH": f"{SOURCE}:{tmp_path}"}) as (first, second):
        wait_for_step(folders[0], 5)
        others = [psutil.Process(second.pid), *psutil.Process(second.pid).children(recursive=True)]
        waiting = psutil.Process(first.pid).children(recursive=True)
        for process in others:
            process.suspend()  # a network that disappears silently

        assert first.wait(ENDS_WITHIN_S) == 1
        for process in others:
            process.kill()
    failure = folders[0].read_failure()
    assert failure is not None
    assert failure.sentence.startswith("it hangs: no new event, almost no CPU time and no GPU in use for 0.08")

    def are_gone() -> bool:  # a killed process takes a moment to end
        return not [process for process in waiting if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    wait_until(are_gone, within_s=30, what="the processes of the instance are gone")
