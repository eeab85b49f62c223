"""Training jobs that go through their life by themselves in virtual time, with a bill that nobody else keeps."""

import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import Any

from paretune.launchers.base import parse_job_name
from paretune.specification.container import JobReport
from tests.histories.world import World
from tests.unit.launchers.sagemaker.aws import S3, Logs, Paginator, SageMaker, Sts, error

FAILURES = {
    "memory": 'AlgorithmError: ErrorMessage "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"',
    "capacity": "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different type",
    "broken": 'AlgorithmError: ErrorMessage "ValueError: a bug of the script"',
}
_LATE_STOP_S = 100.0  # a job that is stopped at its limit ends within so many seconds


@dataclass
class Life:
    """What happened to one job, whoever has looked.

    Attributes:
        ending: complete, a key of FAILURES, or endless.
        steps: steps of the training whose events it has written.
        billed_s, pool_s: seconds billed for the job and for its warm pool.
    """

    name: str
    request: dict[str, Any]
    ending: str
    created_at: float
    shown_at: float
    steps: list[str] = field(default_factory=list)
    began_at: float | None = None
    ended_at: float | None = None
    billed_s: float = 0.0
    pool_s: float = 0.0
    keeps_until: float | None = None
    is_stopping: bool = False

    @property
    def run_id(self) -> str:
        """The run whose job it is."""
        return (parse_job_name(self.name) or ("", 0))[0]

    @property
    def instance_type(self) -> str:
        """Type of its instances."""
        return str(self.request["ResourceConfig"]["InstanceType"])


class Training(SageMaker):
    """SageMaker, whose jobs live by themselves."""

    def __init__(self, aws: "Cloud") -> None:
        super().__init__(aws)  # type: ignore[arg-type]  # it has what is used of it
        self._world, self._cloud = aws.world, aws
        self.lives: dict[str, Life] = {}
        self.on_create: Any = lambda life: None

    def create_training_job(self, **request: Any) -> dict[str, Any]:
        answer = super().create_training_job(**request)
        draw, name = self._world.random, request["TrainingJobName"]
        late_s = draw.choice((0.0, 0.0, 0.0, 3.0))
        weights = {"complete": 10, "memory": 3, "capacity": 2, "broken": 2, "endless": 1}
        if json.loads(request["HyperParameters"]["plan"])["batch"] == 1:
            del weights["memory"]
        ending = draw.choices(list(weights), list(weights.values()))[0]
        life = Life(name, request, ending, self._world.time, self._world.time + late_s)
        self.lives[name] = life
        self.on_create(life)
        self._take_pool(life)
        if ending == "capacity":
            self._world.at(draw.uniform(20, 300), lambda: self._end(life, "Failed", FAILURES["capacity"]))
        else:
            self._world.at(draw.uniform(20, 200), lambda: self._download(life))
        return answer

    def describe_training_job(self, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        self._require_shown(TrainingJobName)
        return super().describe_training_job(TrainingJobName)

    def stop_training_job(self, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        self._require_shown(TrainingJobName)
        super().stop_training_job(TrainingJobName)
        self._stop(self.lives[TrainingJobName], "Stopped")
        return {}

    def update_training_job(self, TrainingJobName: str, ResourceConfig: dict[str, int]) -> dict[str, Any]:  # noqa: N803
        answer = super().update_training_job(TrainingJobName, ResourceConfig)
        self._give_back(self.lives[TrainingJobName], "Terminated")
        return answer

    def _require_shown(self, name: str) -> None:
        if name in self.lives and self._world.time < self.lives[name].shown_at:
            raise error("ValidationException", "Requested resource not found.")

    def _download(self, life: Life) -> None:
        if life.is_stopping:
            return
        life.began_at = self._world.time
        self.enter(life.name, "Downloading", TrainingStartTime=self._now())
        self._world.at(self._world.random.uniform(5, 60), lambda: self._train(life))
        limit_s = life.request["StoppingCondition"]["MaxRuntimeInSeconds"]
        self._world.at(limit_s, lambda: self._stop(life, "MaxRuntimeExceeded"))

    def _train(self, life: Life) -> None:
        if life.is_stopping:
            return
        self.enter(life.name, "Training")
        draw = self._world.random
        every_s, count = draw.uniform(10, 120), draw.randint(2, 5)
        most = 10**9 if life.ending == "endless" else count if life.ending == "complete" else draw.randint(0, count)
        self._world.at(every_s, lambda: self._write_step(life, every_s, most))

    def _write_step(self, life: Life, every_s: float, most: int) -> None:
        if life.is_stopping or life.ended_at is not None:
            return
        if len(life.steps) < min(most, 6):
            step = len(life.steps) + 1
            event = {"time": self._world.time, "step": step, "total_steps": 6, "metrics": {"train/loss": 1 / step}}
            life.steps.append(json.dumps(event))
            self._cloud.logs.say(f"{life.name}/algo-1-1", life.steps[-1])
        if len(life.steps) < most:
            self._world.at(every_s, lambda: self._write_step(life, every_s, most))
        elif life.ending == "complete":
            self.enter(life.name, "Uploading")
            self._world.at(self._world.random.uniform(2, 30), lambda: self._end(life, "Completed"))
        else:
            self._end(life, "Failed", FAILURES[life.ending])

    def _stop(self, life: Life, secondary: str) -> None:
        if life.is_stopping or life.ended_at is not None:
            return
        life.is_stopping = True
        if secondary != "Stopped":
            self.enter(life.name, "Stopping", "Stopping")
        delay_s = self._world.random.uniform(1, _LATE_STOP_S)
        self._world.at(delay_s, lambda: self._end(life, "Stopped", secondary=secondary))

    def _end(self, life: Life, status: str, reason: str = "", secondary: str = "") -> None:
        if life.ended_at is not None or (life.is_stopping and status != "Stopped"):
            return
        life.ended_at = self._world.time
        life.billed_s = float(int(life.ended_at - life.began_at)) if life.began_at is not None else 0.0
        more: dict[str, Any] = {"FailureReason": reason} if reason else {}
        if life.began_at is not None:
            more["BillableTimeInSeconds"] = int(life.billed_s)
            self._upload(life, has_report=status == "Completed")
        keep_s = life.request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
        if keep_s and life.began_at is not None:  # a pool is kept after a failed or stopped job, too
            life.keeps_until = self._world.time + keep_s
            more["WarmPoolStatus"] = {"Status": "Available"}
            self._world.at(keep_s, lambda: self._give_back(life, "Terminated"))
        self.end(life.name, status, secondary, **more)

    def _take_pool(self, life: Life) -> None:
        """Start on the instances that an earlier job has left, as AWS does."""
        for other in self.lives.values():
            if other.keeps_until is not None and other.instance_type == life.instance_type:
                self._give_back(other, "Reused", ReusedByJob=life.name)
                return

    def _give_back(self, life: Life, status: str, **more: str) -> None:
        if life.keeps_until is None or life.ended_at is None:
            return
        life.keeps_until, life.pool_s = None, float(int(self._world.time - life.ended_at))
        seconds = {"ResourceRetainedBillableTimeInSeconds": int(life.pool_s)}
        self.jobs[life.name] |= {"WarmPoolStatus": {"Status": status, **seconds, **more}}

    def _upload(self, life: Life, *, has_report: bool) -> None:
        files = {"events.jsonl": "\n".join(life.steps) + "\n"}
        if has_report:
            files["report.json"] = JobReport(metrics={"f1": 0.5}).to_json()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=0) as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        self._cloud.s3.put_object(Key=f"paretune/jobs/{life.name}/output/output.tar.gz", Body=packed.getvalue())


class Cloud:
    """An AWS account of one history; each request to it goes through the world."""

    region = "us-east-1"

    def __init__(self, world: World) -> None:
        self.world = self.clock = world
        self.s3 = S3(self)  # type: ignore[arg-type]
        self.logs = Logs()
        self.training = Training(self)
        services = {"sagemaker": self.training, "s3": self.s3, "logs": self.logs, "sts": Sts()}
        self._clients = {name: _Wire(world, service) for name, service in services.items()}

    def client(self, service: str) -> Any:
        """The boto client of a service."""
        return self._clients[service]


class _Wire:
    """Stands for a boto client."""

    def __init__(self, world: World, service: Any) -> None:
        self._world, self._service = world, service

    def __getattr__(self, method: str) -> Any:
        carry_out = getattr(self._service, method)
        return lambda **request: self._world.call("aws", method, carry_out, **request)

    def get_paginator(self, method: str) -> Paginator:
        return Paginator(self, method)  # type: ignore[arg-type]
