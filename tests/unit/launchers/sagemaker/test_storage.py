"""Uploads by content, once and complete; and objects of S3 as files, fetched once and never half."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.storage import Storage, fetch, s3_client
from tests.stand_ins.aws import BUCKET, Aws, error


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


FILMS = "reviews-of-films"


@pytest.fixture
def s3() -> Iterator[Any]:
    """An S3 with one bucket; `downloads` are the keys that were asked for."""
    with mock_aws():
        client = s3_client(None, {})
        client.create_bucket(Bucket=FILMS)
        client.downloads = []
        download = client.download_file
        client.download_file = lambda bucket, key, *path, **more: (
            client.downloads.append(key),
            download(bucket, key, *path, **more),
        )
        yield client


def put(s3: Any, files: dict[str, bytes]) -> None:
    for key, content in files.items():
        s3.put_object(Bucket=FILMS, Key=key, Body=content)


def fetched(s3: Any, uri: str, folder: Path) -> Path:
    return fetch(s3, "dataset", uri, folder, suffixes=(".csv", ".jsonl"))


def test_an_object_is_a_file_with_its_name_and_is_fetched_once(s3: Any, tmp_path: Path) -> None:
    put(s3, {"data/rows.csv": b"text,label"})

    first = fetched(s3, f"s3://{FILMS}/data/rows.csv", tmp_path)

    assert fetched(s3, f"s3://{FILMS}/data/rows.csv", tmp_path) == first
    assert (first.name, first.read_bytes(), s3.downloads) == ("rows.csv", b"text,label", ["data/rows.csv"])


def test_a_prefix_is_a_folder_of_the_files_with_rows(s3: Any, tmp_path: Path) -> None:
    others = dict.fromkeys(["d/README.md", "d/_SUCCESS", "other.csv"], b"3")
    put(s3, {"d/train.csv": b"1", "d/sub/test.csv": b"2", **others})

    for uri in (f"s3://{FILMS}/d/", f"s3://{FILMS}/d"):
        folder = fetched(s3, uri, tmp_path)
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert names == {"train.csv", "sub/test.csv"}

    put(s3, {"d//rows.csv": b"4"})
    with pytest.raises(BadInput, match=r"holds the key 'd//rows\.csv', which is no path of a file"):
        fetched(s3, f"s3://{FILMS}/d/", tmp_path)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3://no-such-bucket-here/rows.csv", "no-such-bucket-here/rows.csv: .*: check the spelling"),
        (f"s3://{FILMS}/missing.csv", "is neither an object nor a prefix of objects: see `aws s3 ls"),
        (f"s3://{FILMS}/d/", "has 1 objects, none of which ends in .csv, .jsonl"),
        ("s3:///rows.csv", "must be s3://BUCKET/KEY"),
    ],
)
def test_what_is_not_there_is_said_with_the_next_step(s3: Any, tmp_path: Path, uri: str, words: str) -> None:
    put(s3, {"d/notes.md": b"1"})

    with pytest.raises(BadInput, match=words):
        fetched(s3, uri, tmp_path)


def test_a_denied_object_names_the_permissions(s3: Any, tmp_path: Path) -> None:
    def deny(**_: Any) -> None:
        raise error("403", "Forbidden", 403)

    s3.head_object = deny
    with pytest.raises(BadInput, match=r"does not allow .* s3:GetObject on it is needed, and s3:ListBucket"):
        fetched(s3, f"s3://{FILMS}/rows.csv", tmp_path)
