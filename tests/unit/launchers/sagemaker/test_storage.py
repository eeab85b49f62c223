"""Uploads by content, once and completely; and objects of S3 as files, fetched once and never in part."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.storage import Storage, fetch, s3_client
from tests.support.stand_ins.aws import BUCKET, Aws, error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of three files."""
    made = tmp_path / "data"
    (made / "deep").mkdir(parents=True)
    (made / "rows.arrow").write_bytes(b"x" * 1000)
    (made / "deep" / "more.arrow").write_bytes(b"y" * 100)
    (made / "dataset.json").write_text("{}")
    return made


def keys(aws: Aws) -> list[str]:
    return [call.parameters["Key"] for call in aws.of("PutObject")]


def test_an_upload_that_was_cut_is_completed_and_a_damaged_object_replaced(
    aws: Aws, storage: Storage, folder: Path
) -> None:
    prefix = storage.upload("datasets", folder, "key").removeprefix(f"s3://{BUCKET}/")
    aws.s3.buckets[BUCKET].keys.pop(f"{prefix}dataset.json")
    aws.put(f"{prefix}rows.arrow", b"x" * 10)
    before = len(keys(aws))

    storage.upload("datasets", folder, "key")

    assert set(keys(aws)[before:]) == {f"{prefix}dataset.json", f"{prefix}rows.arrow"}
    assert aws.objects[f"{prefix}rows.arrow"] == b"x" * 1000


def test_the_weights_of_a_model_are_read_once_for_all_trials_of_a_study_and_again_when_they_change(
    storage: Storage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, digest = list[str](), hashlib.file_digest

    def reading(file: Any, name: str) -> Any:
        read.append(Path(file.name).name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", reading)
    weights, storage.dry = folder / "weights", True
    weights.touch()
    os.truncate(weights, 2**24)
    first, second = storage.upload("models", folder), storage.upload("models", folder)
    with weights.open("r+b") as file:
        file.write(b"other")
    changed = storage.upload("models", folder)

    assert first == second != changed
    assert read.count("weights") == 2
    assert read.count("rows.arrow") == 3  # a small file may change within a tick of the file system's clock


def put(aws: Aws, *keys: str) -> None:
    """Put objects into the bucket."""
    for key in keys:
        aws.put(key, key.encode())


def fetched(uri: str, folder: Path) -> Path:
    return fetch(s3_client(None, {}), "dataset", uri, folder, suffixes=(".csv", ".jsonl"))


def test_an_object_is_a_file_with_its_name_and_is_fetched_once(aws: Aws, tmp_path: Path) -> None:
    put(aws, "data/rows.csv")

    first = fetched(f"s3://{BUCKET}/data/rows.csv", tmp_path)

    assert fetched(f"s3://{BUCKET}/data/rows.csv", tmp_path) == first
    assert (first.name, first.read_text(), aws.count("GetObject")) == ("rows.csv", "data/rows.csv", 1)


def test_of_two_processes_that_fetch_together_the_slower_one_takes_what_the_other_has(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(aws, "data/rows.csv")

    def lose(draft: Path, made: Path) -> None:
        shutil.copytree(draft, made)  # the other process did it a moment before
        os.rename(draft, made)

    monkeypatch.setattr(Path, "rename", lose)

    assert fetched(f"s3://{BUCKET}/data/rows.csv", tmp_path).read_text() == "data/rows.csv"


def test_a_prefix_is_a_folder_of_the_files_with_rows(aws: Aws, tmp_path: Path) -> None:
    put(aws, "d/train.csv", "d/sub/test.csv", "d/README.md", "d/_SUCCESS", "other.csv")

    for uri in (f"s3://{BUCKET}/d/", f"s3://{BUCKET}/d"):
        folder = fetched(uri, tmp_path)
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert names == {"train.csv", "sub/test.csv"}

    put(aws, "d//rows.csv")
    with pytest.raises(BadInput, match=r"has the key 'd//rows\.csv', which is not a file path"):
        fetched(f"s3://{BUCKET}/d/", tmp_path)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3://no-such-bucket-here/rows.csv", "no-such-bucket-here/rows.csv: .*: check the spelling"),
        (f"s3://{BUCKET}/missing.csv", "is neither an object nor a prefix of objects: see `aws s3 ls"),
        (f"s3://{BUCKET}/d/", "has 1 objects, none of which ends in .csv, .jsonl"),
        ("s3:///rows.csv", "must be s3://BUCKET/KEY"),
        (f"s3://{BUCKET}/denied.csv", "does not allow .* s3:GetObject on it is needed, and s3:ListBucket"),
    ],
)
def test_what_is_not_there_or_denied_is_said_with_the_next_step(aws: Aws, tmp_path: Path, uri: str, words: str) -> None:
    put(aws, "d/notes.md")
    if "denied" in uri:
        aws.refuse("HeadObject", error("403", "Forbidden", 403))

    with pytest.raises(BadInput, match=words):
        fetched(uri, tmp_path)
