"""Downloads an object in S3, or all objects below a prefix, as a file or folder on this machine.

<folder>/<digest>/NAME            a complete download; it gets this name last
<folder>/<digest>.part/NAME       complete files of an unfinished download, which are not downloaded again

`digest` is made of the names, ETags and sizes, so that only changed objects are downloaded again. Buckets of other
accounts can be read if they allow it.
"""

import fcntl
import hashlib
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from paretune.core.errors import BadInput, collecting, refuse
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied
from paretune.specification.inputs import IN_S3, ROW_FILES

_SPARE = 2**30  # free bytes that the disk must have in addition to the download: rows are written once more, as tokens
_TRIES = 5
_LONGEST_NAME = 255 - 9  # bytes of a file name on Linux and macOS, less the suffix that boto3 gives an unfinished file
_MOST_NAMED = 5  # keys in one message
_NO_CHARACTER_OF_A_PATH = re.compile("[\0\ud800-\udfff]")


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
    made, draft = folder / whole, folder / f"{whole}.part"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{whole}.lock").open("a") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        if not made.is_dir():
            _check_disk_space(parameter, uri, objects, draft)
            for item in objects:
                try:
                    _fetch_object(s3, bucket, item, draft / item.name, check)
                except AWS_ERRORS as error:
                    raise BadInput([_fault(parameter, uri, bucket, error)]) from error
            draft.rename(made)
    return made / objects[0].name if len(objects) == 1 else made


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
    if not bucket or _NO_CHARACTER_OF_A_PATH.search(uri):
        raise BadInput([f"{parameter} must be s3://BUCKET/KEY or s3://BUCKET/PREFIX/ in UTF-8, got {uri!a}"])
    try:
        objects = _listed(s3, parameter, uri, bucket, key, suffixes)
    except AWS_ERRORS as error:
        raise BadInput([_fault(parameter, uri, bucket, error)]) from error
    _check_names(parameter, uri, objects)
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


def _check_names(parameter: str, uri: str, objects: Collection[_Object]) -> None:
    """Raise BadInput if a name cannot be a file of its own below a folder; S3 allows any text as a key."""
    # `a` and `a/b` are the folders of `a/b/c.csv`.
    folders = {item.name[:end] for item in objects for end, character in enumerate(item.name) if character == "/"}
    faults = [
        f"{parameter} {uri} holds the key {item.key!a}, which cannot be a file below a folder: {reason}: rename the "
        "object, or name another prefix"
        for item in objects
        if (reason := fault_of_name(item.name, folders))
    ]
    refuse([*faults[:_MOST_NAMED], *([f"{len(faults)} keys in all cannot be files"] * (len(faults) > _MOST_NAMED))])


def fault_of_name(name: str, folders: Collection[str]) -> str:
    """The reason why a name cannot be a file below a folder; "" if it can. `folders` are the folders of all names."""
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or Path(name).is_absolute():
        return "a part of it is empty, `.` or `..`"
    if _NO_CHARACTER_OF_A_PATH.search(name):
        return "it holds a NUL or half a character"
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        return f"a part of it has more than {_LONGEST_NAME} bytes"
    return "another key is below it, as if it were a folder" if name in folders else ""


def _check_disk_space(parameter: str, uri: str, objects: list[_Object], draft: Path) -> None:
    present = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
    needed = sum(item.size for item in objects) - present + _SPARE
    free = shutil.disk_usage(draft.parent).free
    if needed > free:
        sizes = f"{needed / 2**30:.1f} GiB are needed for {parameter} {uri}, and {free / 2**30:.1f} GiB are free"
        raise BadInput([f"{sizes} on the disk that holds {draft.parent}: make room, or set PARETUNE_HOME to another"])


def _fetch_object(s3: Any, bucket: str, item: _Object, path: Path, check: Callable[[], None]) -> None:
    """Download an object, unless an earlier fetch has; boto3 gives the file its name when it is complete."""
    if path.is_file() and path.stat().st_size == item.size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    check()
    s3.download_file(bucket, item.key, str(path), Callback=lambda _bytes: check())
    if s3.head_object(Bucket=bucket, Key=item.key)["ETag"] != item.etag:
        path.unlink()
        raise BadInput([f"s3://{bucket}/{item.key} has changed while it was being read: repeat the command"])


def _fault(parameter: str, uri: str, bucket: str, error: BaseException) -> str:
    if code(error) == "NoSuchBucket":
        return f"{parameter} {uri}: there is no bucket {bucket}: check the spelling; `aws s3 ls` lists your own"
    if is_denied(error):
        rule = "AWS does not allow this identity to read it"
        needed = "s3:GetObject on it and s3:ListBucket on the bucket (without the latter a missing key is denied, too)"
        return f"{parameter} {uri}: {rule}: check the key and AWS_PROFILE, or ask for {needed}"
    return f"{parameter} {uri}: {explain(error, 'read it')}"
