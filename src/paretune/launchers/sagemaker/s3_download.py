"""Downloads an object in S3, or all objects below a prefix, as a file or folder on this machine.

<folder>/<digest>/NAME            a complete download; it gets this name last

`digest` is made of the names and ETags, so that only changed objects are downloaded again. Buckets of other accounts
can be read if they allow it.
"""

import hashlib
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied
from paretune.specification.inputs import IN_S3

_TRIES = 5


def s3_client(region: str | None, environment: Mapping[str, str]) -> Any:
    """A client with this machine's credentials, in us-east-1, which finds all buckets by default; raises BadInput."""
    try:
        session = boto3.Session(region_name=region or environment.get("AWS_REGION"))
        config = Config(retries={"mode": "standard", "total_max_attempts": _TRIES}, connect_timeout=10, read_timeout=60)
        return session.client("s3", region_name=session.region_name or "us-east-1", config=config)
    except AWS_ERRORS as error:
        raise BadInput([explain(error, "read from S3")]) from error


def fetch(
    s3: Any,
    parameter: str,
    uri: str,
    folder: Path,
    *,
    suffixes: Collection[str] = (),
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Download `uri`, the value of a parameter, and return the file or folder below `folder`.

    An object becomes a file. A prefix becomes a folder of the objects below it whose names have one of the `suffixes`
    (all objects if there are no suffixes), or a file if there is only one. `check` is called from time to time; it
    raises to cancel the download.

    Raises:
        BadInput: there are no credentials, no such bucket or object, no permission, a key that is not a path below a
            folder, or too little disk space.
    """
    what, (bucket, _, key) = f"{parameter} {uri}", uri.removeprefix(IN_S3).partition("/")
    if not bucket:
        raise BadInput([f"{parameter} must be s3://BUCKET/KEY or s3://BUCKET/PREFIX/, got {uri}"])
    try:
        prefix, etags = _listed(s3, bucket, key, suffixes, what)
        made = folder / hashlib.sha256(repr(sorted(etags.items())).encode()).hexdigest()[:32]
        if not made.is_dir():
            _download(s3, bucket, prefix, etags, made, check)
    except AWS_ERRORS as error:
        raise BadInput([_fault(what, bucket, error)]) from error
    except OSError as error:
        room = "make room, or set PARETUNE_HOME to another disk"
        raise BadInput([f"{what} cannot be written to {folder} ({error}): {room}"]) from error
    return made / next(iter(etags)) if len(etags) == 1 else made


def leads_outside(name: str) -> bool:
    """Whether a name would be a file outside the folder that it is put in; S3 allows any text as a key."""
    return any(part in {"", ".", ".."} for part in name.split("/"))


def _listed(s3: Any, bucket: str, key: str, suffixes: Collection[str], what: str) -> tuple[str, dict[str, str]]:
    """A prefix, and name below it to ETag of the objects to download; raises BadInput if there are none."""
    if key and not key.endswith("/"):
        try:
            prefix, name = key[: key.rfind("/") + 1], key.rpartition("/")[2]
            return prefix, {name: s3.head_object(Bucket=bucket, Key=key)["ETag"]}
        except AWS_ERRORS as error:
            if code(error) not in {"404", "NoSuchKey", "NotFound"}:
                raise
    prefix = f"{key.rstrip('/')}/" if key else ""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    found = {entry["Key"].removeprefix(prefix): entry["ETag"] for page in pages for entry in page.get("Contents", [])}
    etags = {name: etag for name, etag in found.items() if _is_wanted(name, suffixes)}
    if not found:
        raise BadInput(
            [f"{what} is neither an object nor a prefix of objects: see `aws s3 ls {what.partition(' ')[2]}`"]
        )
    if not etags:
        ends = f"ends in {', '.join(sorted(suffixes))}" if suffixes else "is a file"
        raise BadInput([f"{what} has {len(found)} objects, none of which {ends}: name another prefix, or one object"])
    if outside := next(filter(leads_outside, etags), None):
        rule = "cannot be a file below a folder: a part of it is empty, `.` or `..`"
        raise BadInput([f"{what} holds the key {prefix + outside!a}, which {rule}: name another prefix"])
    return prefix, etags


def _is_wanted(name: str, suffixes: Collection[str]) -> bool:
    hidden = name.endswith("/") or any(part.startswith((".", "_")) for part in name.split("/"))
    return not hidden and (not suffixes or Path(name).suffix.lower() in suffixes)


def _download(s3: Any, bucket: str, prefix: str, names: Collection[str], made: Path, check: Callable[[], None]) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{made.name}-", dir=made.parent) as folder:
        draft = Path(folder) / made.name
        for name in names:
            check()
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, prefix + name, str(draft / name), Callback=lambda _bytes: check())
        try:
            draft.rename(made)
        except OSError:
            if not made.is_dir():  # else another process was faster
                raise


def _fault(what: str, bucket: str, error: BaseException) -> str:
    if code(error) == "NoSuchBucket":
        return f"{what}: there is no bucket {bucket}: check the spelling; `aws s3 ls` lists your own"
    if is_denied(error):
        rule = "AWS does not allow this identity to read it"
        needed = "s3:GetObject on it and s3:ListBucket on the bucket (without the latter a missing key is denied, too)"
        return f"{what}: {rule}: check the key and AWS_PROFILE, or ask for {needed}"
    return f"{what}: {explain(error, 'read it')}"
