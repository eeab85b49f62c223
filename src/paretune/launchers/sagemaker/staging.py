"""Uploads to S3 under the hash of their content, so that nothing is sent twice by any job or machine.

s3://BUCKET/paretune/code/HASH/            the code that travels, and the SDK's drivers
s3://BUCKET/paretune/datasets/KEY/         prepared data sets
s3://BUCKET/paretune/models/HASH/          pretrained models
s3://BUCKET/paretune/files/HASH/           files that a user's own script reads
s3://BUCKET/paretune/checkpoints/RUN/      checkpoints of a run's attempts
s3://BUCKET/paretune/jobs/NAME/            one job's document and results
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boto3.exceptions import S3UploadFailedError

from paretune.core.errors import LaunchRefused
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, refused_to


@dataclass
class Staging:
    """Uploads to one bucket."""

    s3: Any
    bucket: str
    kms_key: str | None = None  # encrypts the uploads; None leaves that to the bucket
    dry: bool = False  # whether only to return the URIs and send nothing
    check: Callable[[], None] = lambda: None  # called before and while files are sent; raises to cancel the upload
    uploaded: dict[str, int] = field(default_factory=dict)  # the S3 keys sent by this object, with their sizes in bytes

    def upload(self, kind: str, path: Path, digest: str | None = None) -> str:
        """Upload a file or folder; `digest` replaces the hash of its content.

        Returns:
            The S3 URI of the file, or that of the folder with a slash at the end.
        """
        is_folder = path.is_dir()
        parts = sorted(filter(Path.is_file, path.rglob("*"))) if is_folder else [path]
        files = {part.relative_to(path if is_folder else path.parent).as_posix(): part for part in parts}
        prefix = f"{PREFIX}/{kind}/{digest or _digest(files)}/"
        missing = files if self.dry else self._missing(prefix, files)
        # The smallest last: a data set is complete when its description exists.
        for name, part in sorted(missing.items(), key=lambda item: -item[1].stat().st_size):
            self._send(prefix + name, part)
        return self.uri(prefix if is_folder else prefix + path.name)

    def text(self, key: str, text: str) -> str:
        """Write a small text, each time again, and return its S3 URI."""
        if not self.dry:
            self.check()
            with refused_to(self._doing):
                self.s3.put_object(Bucket=self.bucket, Key=key, Body=text.encode(), **self._encryption())
        self.uploaded[key] = len(text)
        return self.uri(key)

    def open(self, key: str) -> Any:
        """A stream of an object's bytes; None if there is no such object. Raises boto's errors."""
        try:
            return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"]
        except AWS_ERRORS as error:
            if code(error) in {"NoSuchKey", "NoSuchBucket", "404"}:
                return None
            raise

    def remove(self, prefix: str) -> None:
        """Delete all objects whose keys start with `prefix`."""
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
            keys = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
            if keys:
                self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})

    def uri(self, key: str) -> str:
        """S3 URI of a key in this bucket."""
        return f"s3://{self.bucket}/{key}"

    def sizes(self, prefix: str) -> dict[str, int]:
        """Keys and bytes of the objects whose keys start with `prefix`. Raises boto's errors."""
        sizes: dict[str, int] = {}
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
            sizes |= {entry["Key"]: entry["Size"] for entry in page.get("Contents", [])}
        return sizes

    def _missing(self, prefix: str, files: dict[str, Path]) -> dict[str, Path]:
        with refused_to(self._doing):
            sizes = self.sizes(prefix)
        return {name: path for name, path in files.items() if sizes.get(prefix + name) != path.stat().st_size}

    def _send(self, key: str, path: Path) -> None:
        self.uploaded[key] = path.stat().st_size
        if self.dry:
            return
        try:
            self.check()
            self.s3.upload_file(
                str(path), self.bucket, key, ExtraArgs=self._encryption(), Callback=lambda _bytes: self.check()
            )
        except (S3UploadFailedError, *AWS_ERRORS) as error:
            raise LaunchRefused(explain(error, self._doing)) from error

    def _encryption(self) -> dict[str, str]:
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key} if self.kms_key else {}

    @property
    def _doing(self) -> str:
        return f"use the bucket {self.bucket}"


def _digest(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"\0{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)  # updates the digest chunk by chunk
    return digest.hexdigest()[:32]
