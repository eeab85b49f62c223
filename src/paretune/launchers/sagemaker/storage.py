"""S3: uploads under the hash of their content, so that nothing is sent twice, and what a job leaves there.

s3://BUCKET/paretune/code/HASH/            the code that travels
s3://BUCKET/paretune/datasets/KEY/         prepared data sets
s3://BUCKET/paretune/models/HASH/          pretrained models
s3://BUCKET/paretune/files/HASH/           files that a user's own script reads
s3://BUCKET/paretune/checkpoints/RUN/      checkpoints of a run's attempts
s3://BUCKET/paretune/jobs/NAME/            one job's document and results
"""

import hashlib
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.aws_errors import refused_to
from paretune.launchers.sagemaker.s3_download import leads_outside
from paretune.storage.archives import Entry, entries, translated_damage

_PACKED = "output.tar.gz"
_OUTPUT_FOLDERS = ("output", "data")
"""Prefixes of an uncompressed output's files. AWS documents that they are loose files, and not where below output/."""


@dataclass
class Storage:
    """One bucket."""

    s3: Any
    bucket: str
    kms_key: str | None = None  # encrypts the uploads; None leaves that to the bucket
    dry: bool = False  # whether only to return the URIs and send nothing
    check: Callable[[], None] = lambda: None  # called before and while files are sent; raises to cancel the upload

    def upload(self, kind: str, path: Path, digest: str | None = None) -> str:
        """Upload a file or folder; `digest` replaces the hash of its content.

        Returns:
            The S3 URI of the file, or that of the folder with a slash at the end.
        """
        is_folder = path.is_dir()
        parts = sorted(filter(Path.is_file, path.rglob("*"))) if is_folder else [path]
        files = {part.relative_to(path if is_folder else path.parent).as_posix(): part for part in parts}
        prefix = f"{PREFIX}/{kind}/{digest or _digest(files)}/"
        if not self.dry:
            with refused_to(self._doing):
                there = self.sizes(prefix)
                sizes = {name: part.stat().st_size for name, part in files.items()}
                # The smallest last: a data set is complete when its description exists.
                for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
                    if there.get(prefix + name) != sizes[name]:
                        self.check()
                        options = {"ExtraArgs": self._encryption(), "Callback": lambda _bytes: self.check()}
                        self.s3.upload_file(str(files[name]), self.bucket, prefix + name, **options)
        return self.uri(prefix if is_folder else prefix + path.name)

    def text(self, key: str, text: str) -> str:
        """Write a small text, each time again, and return its S3 URI."""
        if not self.dry:
            self.check()
            with refused_to(self._doing):
                self.s3.put_object(Bucket=self.bucket, Key=key, Body=text.encode(), **self._encryption())
        return self.uri(key)

    def remove(self, prefix: str) -> None:
        """Delete all objects whose keys start with `prefix`."""
        keys = list(self.sizes(prefix))
        for start in range(0, len(keys), 1000):  # as many as one DeleteObjects takes
            objects = [{"Key": key} for key in keys[start : start + 1000]]
            self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": objects, "Quiet": True})

    def uri(self, key: str) -> str:
        """S3 URI of a key in this bucket."""
        return f"s3://{self.bucket}/{key}"

    def sizes(self, prefix: str) -> dict[str, int]:
        """Keys and bytes of the objects whose keys start with `prefix`. Raises boto's errors."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}

    def _encryption(self) -> dict[str, str]:
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key} if self.kms_key else {}

    @property
    def _doing(self) -> str:
        return f"use the bucket {self.bucket}"


def read_output(storage: Storage, prefix: str, is_needed: Callable[[str], object]) -> dict[str, bytes]:
    """The needed files of /opt/ml/output/data, by name; none of a damaged archive. Raises boto's errors."""
    files: dict[str, bytes] = {}
    for path, key in _outputs(storage, prefix).items():
        name = path.removeprefix("output/")
        if path == _PACKED or is_needed(name):
            body = storage.s3.get_object(Bucket=storage.bucket, Key=key)["Body"]
            files |= _unpack(body, is_needed) if path == _PACKED else {name: body.read()}
    return files


def download_output(storage: Storage, prefix: str, folder: Path) -> Path | None:
    """Download the archive or the files of /opt/ml/output/data; None if there are none. Raises boto's errors."""
    files = _outputs(storage, prefix)
    for path, key in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        storage.s3.download_file(storage.bucket, key, str(folder / path))
    return folder / (_PACKED if _PACKED in files else "output") if files else None


def _outputs(storage: Storage, prefix: str) -> dict[str, str]:
    """Paths on this machine to keys of what a job has left in /opt/ml/output/data.

    SageMaker uploads it at the end below `prefix`: as output.tar.gz, or file by file (CompressionType NONE).
    """
    keys = storage.sizes(prefix)
    if prefix + _PACKED in keys:
        return {_PACKED: prefix + _PACKED}
    folders = tuple(f"{prefix}{folder}/" for folder in _OUTPUT_FOLDERS)
    names = {key.removeprefix(prefix).partition("/")[2]: key for key in keys if key.startswith(folders)}
    return {f"output/{name}": key for name, key in names.items() if not leads_outside(name)}


def _unpack(packed: BinaryIO, is_needed: Callable[[str], object]) -> dict[str, bytes]:
    """The needed files; none of a damaged archive."""
    files: dict[str, bytes] = {}
    try:
        with translated_damage(), tarfile.open(fileobj=packed, mode="r|gz", tarinfo=Entry) as archive:
            for entry in entries(archive):
                name = entry.name.removeprefix("./")
                file: Any = archive.extractfile(entry) if entry.isfile() and is_needed(name) else None
                if file is not None:
                    files[name] = file.read()
    except tarfile.TarError:
        return {}
    return files


def _digest(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"\0{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)  # updates the digest chunk by chunk
    return digest.hexdigest()[:32]
