"""Files of jobs in S3: channels down, results up, checkpoints both ways."""

import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

QUIET = "stand-in"  # in the user agent of the emulator's own calls: they are not noted and never fail on request


def client(service: str, environment: dict[str, str]) -> Any:
    """A boto3 client of the service's own half."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        service,
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_REGION"],
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106
        config=Config(user_agent_extra=QUIET),
    )


def split(uri: str) -> tuple[str, str]:
    """Bucket and key of an S3 address."""
    address = urlsplit(uri)
    return address.netloc, address.path.lstrip("/")


class Store:
    """S3, as the service itself uses it."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    def keys(self, uri: str) -> list[str]:
        """Keys that begin with the address; those of folder marks left out."""
        bucket, prefix = split(uri)
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        result = (entry["Key"] for page in pages for entry in page.get("Contents", []))
        return [key for key in result if not key.endswith("/")]

    def download(self, uri: str, keys: Iterable[str], folder: Path) -> None:
        """Put objects into a folder, under what their keys have more than the address."""
        bucket, prefix = split(uri)
        for key in keys:
            workspace = folder / relative(key, prefix)
            workspace.parent.mkdir(parents=True, exist_ok=True)
            body = self._s3.get_object(Bucket=bucket, Key=key)["Body"]
            with workspace.open("wb") as file:
                for piece in body.iter_chunks(1 << 20):
                    file.write(piece)

    def upload(self, path: Path, uri: str) -> None:
        """Put one file to an address."""
        from boto3.s3.transfer import TransferConfig

        bucket, key = split(uri)
        self._s3.upload_file(str(path), bucket, key, Config=TransferConfig(use_threads=False))

    def upload_merged(self, folders: list[Path], uri: str, *, compressed: bool) -> None:
        """Put the files of several folders to an address, as one archive or one by one; the first folder wins."""
        files: dict[str, Path] = {}
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    files.setdefault(path.relative_to(folder).as_posix(), path)
        if not files:
            return
        if not compressed:
            for name, path in files.items():
                self.upload(path, f"{uri}/{name}")
            return
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            for name, path in files.items():
                tar.add(path, arcname=name)
        bucket, key = split(f"{uri}.tar.gz")
        self._s3.put_object(Bucket=bucket, Key=key, Body=archive.getvalue())


def relative(key: str, prefix: str) -> str:
    """Where an object lands in the folder of its channel."""
    rest = key[len(prefix) :]
    if prefix.endswith("/") or not prefix:
        return rest
    if rest.startswith("/"):
        return rest.lstrip("/")
    return key[len(prefix.rpartition("/")[0]) :].lstrip("/")  # one object, or a folder that only begins like the prefix


class CheckpointMirror(threading.Thread):
    """Copies what appears or changes in folders to S3, about once a second; nothing is ever deleted there.

    Args:
        report: gets a sentence when a copy did not work.
    """

    def __init__(self, store: Store, folders: list[Path], uri: str, report: Callable[[str], None]) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._store = store
        self._folders = folders
        self._uri = uri.rstrip("/")
        self._report = report
        self._over = threading.Event()
        self._known: dict[Path, tuple[int, int]] = dict(self._look())

    def run(self) -> None:
        while not self._over.wait(1.0):
            self._copy()

    def finish(self) -> None:
        """Copy what is left, and end."""
        self._over.set()
        self.join()
        self._copy()

    def _look(self) -> Iterable[tuple[Path, tuple[int, int]]]:
        for folder in self._folders:
            for root, _, names in os.walk(folder):
                for name in names:
                    try:
                        state = os.stat(Path(root, name))
                    except FileNotFoundError:
                        continue
                    yield Path(root, name), (state.st_size, state.st_mtime_ns)

    def _copy(self) -> None:
        for path, state in self._look():
            if self._known.get(path) == state:
                continue
            folder = next(folder for folder in self._folders if path.is_relative_to(folder))
            try:
                self._store.upload(path, f"{self._uri}/{path.relative_to(folder).as_posix()}")
            except FileNotFoundError:
                continue
            except Exception as error:
                self._report(f"checkpoint {path.name}: {error}")
                continue
            self._known[path] = state
