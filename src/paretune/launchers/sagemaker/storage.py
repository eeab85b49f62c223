"""Storage in S3: uploads keyed by the hash of their content, results of jobs, and objects that a user names.

s3://BUCKET/paretune/code/HASH/            code of jobs
s3://BUCKET/paretune/datasets/KEY/         prepared data sets
s3://BUCKET/paretune/models/HASH/          pretrained models
s3://BUCKET/paretune/files/HASH/           files that a user's own script or project reads
s3://BUCKET/paretune/checkpoints/RUN/      checkpoints of a run's attempts
s3://BUCKET/paretune/jobs/NAME/            one job's document and results

`fetch` downloads an object or prefix of any readable bucket to FOLDER/DIGEST/NAME on this machine. The digest is
computed from names and ETags, so nothing is downloaded again until an object changes.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.parsers import ResponseParserError

from paretune.core.errors import BadInput, LaunchRefused, NoAccount
from paretune.core.reading import is_readable
from paretune.launchers.sagemaker.account import PREFIX, Account, client_of
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, refused_to
from paretune.specification.inputs import IN_S3

if TYPE_CHECKING:  # boto3-stubs, for mypy only
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef, ObjectTypeDef

LARGEST_READ = 2**28  # bytes, enough for the events of a million steps; a confusion matrix takes 2**24 at most
_LARGE = 2**24  # bytes; hashing this many takes milliseconds, longer than a step of the file system's clock
_OUTPUT_FOLDER = re.compile("(output/)?(data/)?")
"""Possible prefix of output files. AWS documents that the files are uploaded individually, but not to which folder."""


@dataclass
class Storage:
    """Reads and writes objects in one bucket."""

    s3: "S3Client"
    bucket: str
    kms_key: str | None = None  # KMS key of the uploads; None for the bucket's own setting
    dry: bool = False  # whether to return the URIs without sending anything
    check: Callable[[], None] = lambda: None  # called before and during uploads; raises an error to cancel them

    def upload(self, kind: str, path: Path, digest: str | None = None) -> str:
        """Upload a file or folder, and return its S3 URI. Files that are already there with the same size are skipped.

        The URI of a folder ends with a slash. The key contains `digest`, or by default a hash of names and contents.
        """
        is_folder = path.is_dir()
        files = _files(path)
        prefix = f"{PREFIX}/{kind}/{digest or _digest(files)}/"
        if not self.dry:
            with refused_to(f"use the bucket {self.bucket}"):
                there = self.sizes(prefix)
                sizes = {name: part.stat().st_size for name, part in files.items()}
                # Upload the smallest file last: a data set is complete once its small description exists.
                for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
                    if there.get(prefix + name) != sizes[name]:
                        self.check()
                        self.s3.upload_file(
                            str(files[name]),
                            self.bucket,
                            prefix + name,
                            ExtraArgs=self._encryption(),
                            Callback=lambda _bytes: self.check(),
                        )
        return self.uri(prefix if is_folder else prefix + path.name)

    def text(self, key: str, text: str) -> str:
        """Write `text` as an object, replacing an earlier one with this key, and return its S3 URI."""
        if not self.dry:
            self.check()
            with refused_to(f"use the bucket {self.bucket}"):
                self.s3.put_object(Bucket=self.bucket, Key=key, Body=text.encode(), **self._encryption())
        return self.uri(key)

    def read(self, key: str) -> bytes:
        """Return an object's content, up to LARGEST_READ bytes. Raises boto's errors."""
        content: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read(LARGEST_READ)
        return content

    def entries(self, prefix: str) -> dict[str, tuple[int, float]]:
        """Return the keys that start with `prefix`, with sizes in bytes and modification times in epoch seconds.

        Raises LaunchRefused if they cannot be listed.
        """
        with refused_to(f"list the bucket {self.bucket}"):
            listed = _objects(self.s3, self.bucket, prefix)
        return {entry["Key"]: (entry["Size"], entry["LastModified"].timestamp()) for entry in listed}

    @property
    def keeps_versions(self) -> bool:
        """Whether removed objects stay as earlier versions, which are billed; False if unknown."""
        with suppress(*AWS_ERRORS):
            return bool(self.s3.get_bucket_versioning(Bucket=self.bucket).get("Status") == "Enabled")
        return False

    def remove(self, prefix: str) -> None:
        """Delete all objects whose keys start with `prefix`. Raises LaunchRefused if S3 does not delete one."""
        with refused_to(f"remove objects from the bucket {self.bucket}"):
            keys = list(self.sizes(prefix))
            for start in range(0, len(keys), 1000):  # the limit of one DeleteObjects request
                objects: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys[start : start + 1000]]
                answer = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": objects, "Quiet": True})
                for error in answer.get("Errors", [])[:1]:
                    raise LaunchRefused(f"S3 did not remove {error.get('Key')}: {error.get('Message')}")

    def uri(self, key: str) -> str:
        """Return the S3 URI of a key in this bucket."""
        return f"s3://{self.bucket}/{key}"

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the keys that start with `prefix`, with sizes in bytes. Raises boto's errors."""
        return {entry["Key"]: entry["Size"] for entry in _objects(self.s3, self.bucket, prefix)}

    def _encryption(self) -> dict[str, Any]:
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key} if self.kms_key else {}


def upload_faults(parameter: str, path: Path) -> list[str]:
    """Return the reason why a parameter's file or folder cannot be uploaded as it is, if there is one."""
    for part in [path, *path.rglob("*")]:
        if not is_readable(part):
            return [f"{parameter} must be readable to be uploaded, and you may not read {part}: change its permissions"]
        if part != path and part.is_symlink() and part.is_dir():
            rule = f"{parameter} must not contain links to folders, because what is there would not be uploaded"
            return [f"{rule}: replace {part} with a copy"]
    names = list(_files(path))
    if not names:
        return [f"{parameter} must contain files, because SageMaker drops empty folders: {path} has none"]
    if wrong := [name for name in names if name.encode(errors="ignore").decode() != name]:
        return [f"{parameter} has a file whose name is not UTF-8, and S3 accepts no other names: rename {wrong[0]!a}"]
    return []


def _files(path: Path) -> dict[str, Path]:
    """Return a file, or the files in a folder, by their names in the upload."""
    parts = sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]
    return {part.relative_to(path if path.is_dir() else path.parent).as_posix(): part for part in parts}


def output_of(storage: Storage, prefix: str) -> tuple[dict[str, str], str]:
    """Return the S3 keys of the files in a job's /opt/ml/output/data, by name, and the URI of its model ("" if none).

    SageMaker uploads both below `prefix` when the job ends, file by file. If the bucket has been deleted since, there
    are none. Raises boto's other errors.
    """
    try:
        keys, model = list(storage.sizes(prefix)), f"{prefix}model/"
    except AWS_ERRORS as error:
        if code(error) != "NoSuchBucket":
            raise
        return {}, ""
    output = [key for key in keys if not key.startswith(model)]
    names = {_OUTPUT_FOLDER.sub("", key.removeprefix(prefix), count=1): key for key in output}
    # S3 allows any text as a key, so keys that would be written outside their folder are left out.
    files = {name: key for name, key in names.items() if not {"", ".", ".."} & set(name.split("/"))}
    return files, storage.uri(model) if len(output) < len(keys) else ""


def _objects(s3: "S3Client", bucket: str, prefix: str) -> "list[ObjectTypeDef]":
    """Return all objects whose keys start with `prefix`. Raises boto's errors, even for an answer without content."""
    pages = [*s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)]
    if not all("KeyCount" in page for page in pages):
        raise ResponseParserError("S3 has not answered")
    return [entry for page in pages for entry in page.get("Contents", [])]


def _digest(files: dict[str, Path]) -> str:
    """Return a hash of the names and contents of files."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        status = path.stat()
        digest.update(f"\0{name}\0{status.st_size}\0".encode())
        # A small file may change twice within one step of the file system's clock, so it is read each time.
        read = _content_digest if status.st_size >= _LARGE else _content_digest.__wrapped__
        digest.update(read(path.absolute(), status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns))
    return digest.hexdigest()[:32]


@lru_cache(maxsize=1024)
def _content_digest(path: Path, *_state: int) -> bytes:
    """Return a hash of a file. It is cached until the file's state changes, so that the trials of a study share it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def absent(account: Account, parameter: str, address: str) -> str:
    """Return a fault if there is no object at an address in S3; "" if there is one, or if it cannot be checked."""
    bucket, _, key = address.removeprefix(IN_S3).partition("/")
    if not bucket:
        return f"{parameter} must be s3://BUCKET/KEY or s3://BUCKET/PREFIX/, got {address}"
    with suppress(*AWS_ERRORS):  # e.g. for a bucket of another account, which the job's role may be able to read
        if account.client("s3").list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("KeyCount") == 0:
            return f"{parameter} {address} is neither an object nor a prefix of objects: see `aws s3 ls {address}`"
    return ""


def s3_client(region: str | None, environment: Mapping[str, str]) -> "S3Client":
    """Return an S3 client for this machine's AWS profile. Raises BadInput if profile or endpoint cannot be used."""
    try:
        return client_of(boto3.Session(region_name=region or environment.get("AWS_REGION")), "s3")
    except NoAccount as error:
        raise BadInput([str(error)]) from error
    except AWS_ERRORS as error:
        raise BadInput([explain(error, "read from S3")]) from error


def fetch(
    s3: "S3Client",
    parameter: str,
    uri: str,
    folder: Path,
    *,
    suffixes: Collection[str] = (),
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Download `uri`, the value of a parameter, and return the file or folder below `folder`.

    An object becomes a file. A prefix becomes a folder with the objects below it whose names have one of the
    `suffixes`, or with all of them if there are no `suffixes`. Objects are left out if a part of their name, between
    slashes, starts with a dot or underscore. If a single object is left, its file is returned. `check` is called during
    the download and raises an error to cancel it.

    Raises BadInput if there is no such bucket or object, no permission, or too little disk space.
    """
    what, (bucket, _, key) = f"{parameter} {uri}", uri.removeprefix(IN_S3).partition("/")
    if not bucket:
        raise BadInput([f"{parameter} must be s3://BUCKET/KEY or s3://BUCKET/PREFIX/, got {uri}"])
    try:
        prefix, etags = _listed(s3, bucket, key, suffixes, what)
        made = folder / hashlib.sha256(repr(sorted(etags.items())).encode()).hexdigest()[:32]
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{made.name}-", dir=made.parent) as scratch:
            draft = Path(scratch) / made.name
            for name in () if made.is_dir() else etags:
                check()
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                s3.download_file(bucket, prefix + name, str(draft / name), Callback=lambda _bytes: check())
            try:
                draft.rename(made)
            except OSError:
                if not made.is_dir():  # otherwise it was there before, or another process was faster
                    raise
    except AWS_ERRORS as error:
        needed = "s3:GetObject on it is needed, and s3:ListBucket on the bucket for a prefix"
        raise BadInput([f"{explain(error, f'read {what}')}: check the spelling and AWS_PROFILE; {needed}"]) from error
    except OSError as error:
        room = "make room, or set PARETUNE_HOME to another disk"
        raise BadInput([f"{what} cannot be written to {folder} ({error}): {room}"]) from error
    return made / next(iter(etags)) if len(etags) == 1 else made


def _listed(s3: "S3Client", bucket: str, key: str, suffixes: Collection[str], what: str) -> tuple[str, dict[str, str]]:
    """Return a prefix, and the objects to download below it as names and ETags. Raises BadInput if there is none."""
    if key and not key.endswith("/"):
        try:
            folder, slash, name = key.rpartition("/")
            return folder + slash, {name: s3.head_object(Bucket=bucket, Key=key)["ETag"]}
        except AWS_ERRORS as error:
            if code(error) not in {"404", "NoSuchKey", "NotFound"}:
                raise
    prefix = f"{key.rstrip('/')}/" if key else ""
    below = {entry["Key"].removeprefix(prefix): entry["ETag"] for entry in _objects(s3, bucket, prefix)}
    etags = {
        name: etag
        for name, etag in below.items()
        if not name.endswith("/")
        and not any(part.startswith((".", "_")) for part in name.split("/"))
        and (not suffixes or Path(name).suffix.lower() in suffixes)
    }
    if not below:
        see = f"see `aws s3 ls {what.partition(' ')[2]}`"
        raise BadInput([f"{what} is neither an object nor a prefix of objects: {see}"])
    if not etags:
        ends = f"ends in {', '.join(sorted(suffixes))}" if suffixes else "is a file"
        advice = "name another prefix, or one object (names with a part that starts with . or _ are left out)"
        raise BadInput([f"{what} has {len(below)} objects, none of which {ends}: {advice}"])
    if wrong := next((name for name in etags if "" in name.split("/")), None):
        raise BadInput([f"{what} has the key {prefix + wrong!a}, which is not a file path: name another prefix"])
    return prefix, etags
