"""Downloads an object in S3, or all objects below a prefix, as a file or folder on this machine.

<folder>/<digest>/NAME            a complete download; it gets this name last

`digest` is made of the names, ETags and sizes, so that only changed objects are downloaded again. Buckets of other
accounts can be read if they allow it.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from paretune.core.errors import BadInput, collecting
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied
from paretune.specification.inputs import IN_S3, ROW_FILES

_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class _Object:
    key: str
    name: str
    etag: str
    size: int


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
    bucket, objects = _found(s3, parameter, uri, suffixes)
    whole = hashlib.sha256(repr([(item.name, item.etag, item.size) for item in objects]).encode()).hexdigest()[:32]
    made = folder / whole
    folder.mkdir(parents=True, exist_ok=True)
    if not made.is_dir():
        draft = Path(tempfile.mkdtemp(prefix=f".{whole}-", dir=folder))
        try:
            for item in objects:
                check()
                (draft / item.name).parent.mkdir(parents=True, exist_ok=True)
                s3.download_file(bucket, item.key, str(draft / item.name), Callback=lambda _bytes: check())
            draft.rename(made)
        except AWS_ERRORS as error:
            raise BadInput([_fault(parameter, uri, bucket, error)]) from error
        except OSError as error:
            if not made.is_dir():  # else another process was faster
                place = "make room, or set PARETUNE_HOME to another disk"
                raise BadInput([f"{parameter} {uri} cannot be written to {folder} ({error}): {place}"]) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return made / objects[0].name if len(objects) == 1 else made


def leads_outside(name: str) -> bool:
    """Whether a name would be a file outside the folder that it is put in; S3 allows any text as a key."""
    return any(part in {"", ".", ".."} for part in name.split("/"))


def unreadable(addresses: Mapping[str, str], region: str | None, environment: Mapping[str, str]) -> list[str]:
    """Faults of parameters, each with its address, that name nothing in S3 that can be read; downloads nothing."""
    s3, faults = s3_client(region, environment), list[str]()
    for parameter, uri in addresses.items():
        with collecting(faults):
            _found(s3, parameter, uri, suffixes_of(parameter))
    return faults


def suffixes_of(parameter: str) -> tuple[str, ...]:
    """Suffixes of the files that count below the prefix that a parameter names; empty if all do."""
    return () if parameter == "model" else tuple(ROW_FILES)


def _found(s3: Any, parameter: str, uri: str, suffixes: Collection[str]) -> tuple[str, list[_Object]]:
    """The bucket and the objects that `uri` names; raises BadInput as `fetch`."""
    bucket, _, key = uri.removeprefix(IN_S3).partition("/")
    if not bucket:
        raise BadInput([f"{parameter} must be s3://BUCKET/KEY or s3://BUCKET/PREFIX/, got {uri}"])
    try:
        objects = _listed(s3, parameter, uri, bucket, key, suffixes)
    except AWS_ERRORS as error:
        raise BadInput([_fault(parameter, uri, bucket, error)]) from error
    outside = [item.key for item in objects if leads_outside(item.name)]
    if outside:
        rule = "cannot be a file below a folder: a part of it is empty, `.` or `..`"
        raise BadInput([f"{parameter} {uri} holds the key {outside[0]!a}, which {rule}: name another prefix"])
    return bucket, objects


def _listed(s3: Any, parameter: str, uri: str, bucket: str, key: str, suffixes: Collection[str]) -> list[_Object]:
    if key and not key.endswith("/"):
        try:
            answer = s3.head_object(Bucket=bucket, Key=key)
            name = key.rpartition("/")[2]
            return [_Object(key=key, name=name, etag=answer["ETag"], size=answer["ContentLength"])]
        except AWS_ERRORS as error:
            if code(error) not in {"404", "NoSuchKey", "NotFound"}:
                raise
    prefix = f"{key.rstrip('/')}/" if key else ""
    objects, others = [], 0
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            name = entry["Key"].removeprefix(prefix)
            parts = name.split("/")
            is_file = bool(parts[-1]) and not any(part.startswith((".", "_")) for part in parts)
            if is_file and (not suffixes or Path(name).suffix.lower() in suffixes):
                objects.append(_Object(key=entry["Key"], name=name, etag=entry["ETag"], size=entry["Size"]))
            else:
                others += 1
    if objects:
        return sorted(objects, key=lambda item: item.name)
    if others:
        ends = f", none of which ends in {', '.join(sorted(suffixes))}" if suffixes else ", none of which is a file"
        raise BadInput([f"{parameter} {uri} has {others} objects{ends}: name another prefix, or one object"])
    raise BadInput([f"{parameter} {uri} is neither an object nor a prefix of objects: see `aws s3 ls {uri}`"])


def _fault(parameter: str, uri: str, bucket: str, error: BaseException) -> str:
    if code(error) == "NoSuchBucket":
        return f"{parameter} {uri}: there is no bucket {bucket}: check the spelling; `aws s3 ls` lists your own"
    if is_denied(error):
        rule = "AWS does not allow this identity to read it"
        needed = "s3:GetObject on it and s3:ListBucket on the bucket (without the latter a missing key is denied, too)"
        return f"{parameter} {uri}: {rule}: check the key and AWS_PROFILE, or ask for {needed}"
    return f"{parameter} {uri}: {explain(error, 'read it')}"
