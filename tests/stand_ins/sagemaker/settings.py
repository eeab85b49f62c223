"""What an emulator is started with."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ACCOUNT = "123456789012"
ROLE_NAME = "SageMakerRole"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything the service has to know.

    Attributes:
        root: folder for logs and for the files of the jobs.
        images: pattern of an image URI to the virtual environment that plays the image; the first match counts.
        forward: ports of this machine that instances reach at the same address, `127.0.0.1:PORT`.
        hide: folders that are empty inside the instances.
        keep: folders below /tmp that an image needs besides its own; the rest of /tmp is not there.
        quotas: instance type, or the whole name of a quota, to a number of instances.
        default_quota: instances of every quota that is not named.
        prices: products as the price list has them.
        port: 0 takes any free one.
        start_delay_s: until instances are there.
        upload_s: seconds that Uploading is billed and does not take, for tests of long uploads.
        grace_s: between SIGTERM and SIGKILL of a job that is stopped; 120 at AWS.
        interrupt_grace_s: between SIGTERM and SIGKILL of a spot instance that is taken away; 120 at AWS.
        failure_grace_s: how long the other instances go on after one has failed.
        shown_after_s: how long DescribeTrainingJob, ListTrainingJobs and StopTrainingJob do not know a new job.
    """

    root: Path
    images: dict[str, Path]
    forward: tuple[int, ...] = ()
    hide: tuple[Path, ...] = ()
    keep: tuple[Path, ...] = ()
    region: str = "us-east-1"
    quotas: dict[str, float] = field(default_factory=dict)
    default_quota: float = 20
    prices: tuple[dict[str, Any], ...] = ()
    port: int = 0
    start_delay_s: float = 0.3
    upload_s: float = 0.0
    grace_s: float = 120.0
    interrupt_grace_s: float = 120.0
    failure_grace_s: float = 2.0
    shown_after_s: float = 0.0

    @property
    def bucket(self) -> str:
        """The bucket that exists from the start."""
        return f"sagemaker-{self.region}-{ACCOUNT}"

    @property
    def role(self) -> str:
        """The role that exists from the start."""
        return f"arn:aws:iam::{ACCOUNT}:role/{ROLE_NAME}"

    def environment(self, url: str) -> dict[str, str]:
        """What sends an AWS client to `url`."""
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def write(self, path: Path) -> None:
        """Keep them in a file for `read`."""
        path.write_text(json.dumps(asdict(self), default=str, indent=1))

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """What `write` wrote."""
        values = json.loads(path.read_text())
        values["root"] = Path(values["root"])
        values["images"] = {pattern: Path(venv) for pattern, venv in values["images"].items()}
        values |= {name: tuple(Path(folder) for folder in values[name]) for name in ("hide", "keep")}
        values["forward"] = tuple(values["forward"])
        values["prices"] = tuple(values["prices"])
        return cls(**values)
