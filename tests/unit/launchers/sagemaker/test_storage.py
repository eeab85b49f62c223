"""Uploads: by content, once, complete, encrypted; and names that only one job can hold."""

from pathlib import Path

import pytest

from paretune.core.errors import LaunchRefused
from paretune.launchers.sagemaker.storage import Storage
from tests.stand_ins.aws import BUCKET, Aws


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three files."""
    made = tmp_path / "data"
    (made / "deep").mkdir(parents=True)
    (made / "rows.arrow").write_bytes(b"x" * 1000)
    (made / "deep" / "more.arrow").write_bytes(b"y" * 100)
    (made / "dataset.json").write_text("{}")
    return made


def keys(aws: Aws) -> list[str]:
    return [call.parameters["Key"] for call in aws.of("PutObject")]


def test_a_folder_lies_under_its_content_with_a_slash_at_the_end(aws: Aws, storage: Storage, folder: Path) -> None:
    uri = storage.upload("datasets", folder)

    prefix = uri.removeprefix(f"s3://{BUCKET}/")
    assert prefix.startswith("paretune/datasets/")
    assert prefix.endswith("/")
    assert set(aws.s3.objects) == {prefix + name for name in ("rows.arrow", "deep/more.arrow", "dataset.json")}


def test_what_is_there_is_not_sent_again_by_nobody(aws: Aws, storage: Storage, folder: Path, tmp_path: Path) -> None:
    first = storage.upload("datasets", folder)
    sent = len(keys(aws))
    copy = tmp_path / "elsewhere"
    folder.rename(copy)

    again = Storage(aws.client("s3"), BUCKET).upload("datasets", copy)

    assert again == first
    assert len(keys(aws)) == sent == 3


def test_an_upload_that_was_cut_is_completed_and_a_damaged_object_replaced(
    aws: Aws, storage: Storage, folder: Path
) -> None:
    prefix = storage.upload("datasets", folder, "key").removeprefix(f"s3://{BUCKET}/")
    del aws.s3.objects[f"{prefix}dataset.json"]
    aws.s3.objects[f"{prefix}rows.arrow"] = b"x" * 10
    before = len(keys(aws))

    storage.upload("datasets", folder, "key")

    assert set(keys(aws)[before:]) == {f"{prefix}dataset.json", f"{prefix}rows.arrow"}
    assert aws.s3.objects[f"{prefix}rows.arrow"] == b"x" * 1000


@pytest.mark.parametrize("operation", ["ListObjectsV2", "PutObject"])
def test_a_bucket_that_refuses_is_a_refused_launch_with_its_name(
    aws: Aws, storage: Storage, folder: Path, operation: str
) -> None:
    aws.refuse(operation, "AccessDenied", "Access Denied", times=9)

    with pytest.raises(LaunchRefused, match=f"use the bucket {BUCKET}"):
        storage.upload("a", folder)
