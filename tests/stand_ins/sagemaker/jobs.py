"""What the service knows of one training job."""

import threading
import time
from typing import Any

from tests.stand_ins.sagemaker.settings import ACCOUNT

MESSAGES = {
    "Starting": "Starting the training job",
    "Pending": "Training job waiting for capacity",
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Interrupted": "Spot instances were interrupted",
    "Restarting": "Restarting the training job",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "MaxWaitTimeExceeded": "Training job wait time exceeded MaxWaitTimeInSeconds provided",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
}
TERMINAL = ("Completed", "Failed", "Stopped")
SPOT_SHARE = 0.4  # billable time as a share of training time on spot
LONGEST_REASON = 1024  # characters of FailureReason


class Job:
    """A training job: its request, and what became of it so far.

    Attributes:
        orders: what was asked for from outside and not yet carried out: `stop`, `interrupt`, `kill <host>`.
        warm: it starts on instances of a warm pool.
    """

    def __init__(self, request: dict[str, Any], region: str) -> None:
        self.request = request
        self.name: str = request["TrainingJobName"]
        self.arn = f"arn:aws:sagemaker:{region}:{ACCOUNT}:training-job/{self.name}"
        self.status = "InProgress"
        self.secondary = ""
        self.failure: str | None = None
        self.created = self.modified = time.time()
        self.started: float | None = None
        self.ended: float | None = None
        self.training_s = 0.0
        self.transitions: list[dict[str, Any]] = []
        self.orders: list[str] = []
        self.pool: dict[str, Any] | None = None
        self.warm = False
        self._lock = threading.RLock()
        self.enter("Starting")

    @property
    def resources(self) -> dict[str, Any]:
        """Its ResourceConfig."""
        return self.request.get("ResourceConfig", {})

    @property
    def is_spot(self) -> bool:
        """Whether its instances may be taken away."""
        return bool(self.request.get("EnableManagedSpotTraining"))

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in TERMINAL

    @property
    def kind(self) -> str:
        """Type of its instances."""
        return str(self.resources["InstanceType"])

    @property
    def count(self) -> int:
        """Number of its instances."""
        return int(self.resources["InstanceCount"])

    def enter(self, secondary: str, message: str | None = None) -> None:
        """Begin the next secondary status."""
        with self._lock:
            now = self.modified = time.time()
            if self.transitions:
                self.transitions[-1]["EndTime"] = now
            self.secondary = secondary
            self.transitions.append(
                {"Status": secondary, "StartTime": now, "StatusMessage": message or MESSAGES[secondary]}
            )
            if secondary == "Downloading" and self.started is None:
                self.started = now
            if secondary == "Stopping":
                self.status = "Stopping"

    def end(self, status: str, secondary: str, failure: str | None = None) -> None:
        """Enter a final status."""
        with self._lock:
            if failure is not None:
                self.failure = failure[:LONGEST_REASON]
            self.enter(secondary)
            self.ended = self.transitions[-1]["EndTime"] = self.modified
            self.status = status

    def order(self, what: str) -> None:
        """Ask the thread of this job for something."""
        with self._lock:
            self.orders.append(what)

    def stop(self) -> None:
        """Ask for its end; that it is stopping shows at once."""
        with self._lock:
            if self.status == "InProgress":
                self.orders.append("stop")
                self.status = "Stopping"
                self.modified = time.time()

    def take(self, what: str) -> str | None:
        """The oldest order that begins so; it is carried out only once."""
        with self._lock:
            result = next((order for order in self.orders if order.startswith(what)), None)
            if result is not None:
                self.orders.remove(result)
            return result

    def seconds(self) -> tuple[int, int]:
        """Training time and billable time, both at least 1."""
        training = max(1, round(self.training_s))
        return training, max(1, round(training * SPOT_SHARE)) if self.is_spot else training

    def summary(self) -> dict[str, Any]:
        """As ListTrainingJobs shows it."""
        with self._lock:
            output: dict[str, Any] = {
                "TrainingJobName": self.name,
                "TrainingJobArn": self.arn,
                "CreationTime": self.created,
                "TrainingEndTime": self.ended,
                "LastModifiedTime": self.modified,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary,
                "WarmPoolStatus": self.pool,
            }
        return {name: value for name, value in output.items() if value is not None}

    def describe(self) -> dict[str, Any]:
        """As DescribeTrainingJob shows it."""
        with self._lock:
            view = {name: value for name, value in self.request.items() if name != "Tags"} | self.summary()
            view["SecondaryStatusTransitions"] = [dict(transition) for transition in self.transitions]
            view["FailureReason"] = self.failure
            view["TrainingStartTime"] = self.started
            if self.started is not None and self.is_over:
                view["TrainingTimeInSeconds"], view["BillableTimeInSeconds"] = self.seconds()
            if self.status in ("Completed", "Stopped") and self.started is not None:
                view["ModelArtifacts"] = {"S3ModelArtifacts": f"{self.output}/{self.model_name}"}
        return {name: value for name, value in view.items() if value is not None}

    @property
    def model_name(self) -> str:
        """The archive of its model, or the prefix of its files."""
        return "model/" if self.request["OutputDataConfig"].get("CompressionType") == "NONE" else "model.tar.gz"

    @property
    def output(self) -> str:
        """S3 address below which its results go."""
        return f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
