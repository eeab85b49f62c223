"""The AWS account of a job: region, role, storage, image, network, and who owns the job."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paretune.core.tags import tag_faults
from paretune.core.untrusted import is_secret_name, without_secrets
from paretune.specification.parameters import STEP, parameter, split_list
from paretune.specification.regions import region_faults

LONGEST_KEEP_ALIVE_MINUTES = 360  # of a warm pool; CreateTrainingJob, KeepAlivePeriodInSeconds (botocore 1.44.5)
_LONGEST_USER = 128  # characters
_TAGS_EXAMPLE = '{"team": "search"}'


@dataclass(frozen=True, kw_only=True)
class AccountSettings:
    """Section of a job: SageMaker account, image, storage, network and owner."""

    region: str | None = parameter(
        None,
        "AWS region; by default the region of the AWS configuration",
        affects={"ownership", "dollars"},
        not_searched="it changes prices and no result; `paretune report` with a region prices the runs again",
        group="SageMaker: account, image, storage and network",
    )
    role: str | None = parameter(None, "execution role of the job: name or ARN", affects={"ownership"})
    bucket: str | None = parameter(
        None, "S3 bucket for data, models and results; by default sagemaker-REGION-ACCOUNT", affects={"ownership"}
    )
    image_uri: str | None = parameter(
        None, "training image; by default the newest AWS image that supports the GPU", affects=STEP
    )
    volume_gib: int | None = parameter(
        None,
        "storage volume of each instance in GiB; by default derived from model and data",
        minimum=1,
        maximum=16_384,
        affects={"ownership"},
    )
    keep_alive_minutes: float = parameter(
        0.0,
        "keep the instances as a warm pool for this many minutes after the job; they are billed",
        minimum=0,
        maximum=LONGEST_KEEP_ALIVE_MINUTES,
        affects={"ownership"},
    )
    subnets: str | None = parameter(None, "comma-separated VPC subnets", affects={"ownership"})
    security_group_ids: str | None = parameter(None, "comma-separated VPC security groups", affects={"ownership"})
    package_index: str | None = parameter(
        None,
        "package index for pip in subnets without internet: address, or ARN of a CodeArtifact repository",
        affects={"ownership"},
    )
    kms_key: str | None = parameter(None, "KMS key that encrypts volumes, uploads and results", affects={"ownership"})
    tags: Mapping[str, str] = parameter(
        {}, "JSON object with tags of the job, for AWS and for budgets", affects={"ownership"}, example=_TAGS_EXAMPLE
    )
    user: str | None = parameter(
        None, "owner of the job, for tags and budgets; by default the login name", affects={"ownership"}
    )
    on_interrupt: str = parameter(
        "stop",
        "SageMaker job after Ctrl-C or SIGTERM: stop it, or detach and leave it running",
        choices=("stop", "detach"),
        affects={"ownership"},
    )


def looks_secret(name: str, value: str) -> bool:
    """Whether a value has the form of a well-known key, or is long and has a name such as password."""
    return without_secrets(value) != value or (is_secret_name(name) and re.fullmatch(r"\S{12,}", value) is not None)


def owner_faults(section: AccountSettings) -> list[str]:
    """Tags that AWS does not accept, that paretune sets itself or that hold a secret, and too long user names."""
    texts = {name: value for name, value in section.tags.items() if isinstance(value, str)}
    faults = [
        f"tags must hold no secret, and {name!r} looks like one: everybody who sees the job can read them"
        for name, value in texts.items()
        if looks_secret(name, value)
    ]
    if others := {name: value for name, value in section.tags.items() if name not in texts}:
        faults.append(f"tags must map names to texts, such as {_TAGS_EXAMPLE}, got {others}")
    faults += tag_faults(texts)
    if section.user is not None and len(section.user) > _LONGEST_USER:
        faults.append(f"user must be at most {_LONGEST_USER} characters, got {len(section.user)}: shorten it")
    return faults


def network_faults(section: AccountSettings) -> list[str]:
    """Regions without SageMaker, subnets without security groups or the reverse, and invalid package indexes."""
    faults = region_faults(section.region)
    if bool(split_list(section.subnets)) != bool(split_list(section.security_group_ids)):
        faults.append("subnets and security_group_ids go together: give both, or neither")
    index = section.package_index
    if index is None:
        return faults
    if looks_secret("package_index", index) or re.search("//[^/]*@", index):
        faults.append("package_index must hold no user and password: everybody who sees the job can read it")
    elif not re.match(r"https?://\S+$|arn:[^:]+:codeartifact:[^:]+:\d+:repository/[^/]+/\S+$", index):
        rule = "package_index must be an address (https://...) or the ARN of a CodeArtifact repository"
        faults.append(f"{rule} (arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/NAME), got {index!r}")
    return faults
