"""Objects in S3 as files: fetched once, never half; everything else is bad input."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.storage import fetch, s3_client

BUCKET = "reviews-of-films"
ROWS = (".csv", ".jsonl")
CONTENT = b"text,label\n" + b"a film,good\n" * 200_000  # 2.4 MB: three chunks


@pytest.fixture(scope="module")
def service() -> Iterator[Any]:
    """An S3 with one bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        with mock_aws():
            client = s3_client(None, {})
            client.create_bucket(Bucket=BUCKET)
            yield client


@pytest.fixture
def s3(service: Any) -> Any:
    """The same, with an empty bucket."""
    for entry in service.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        service.delete_object(Bucket=BUCKET, Key=entry["Key"])
    return service


class Calls:
    """Notes the requests of a client by their name."""

    def __init__(self, client: Any) -> None:
        self.made: list[tuple[str, Any]] = []
        client.meta.events.register("provide-client-params.s3", self.note)

    def note(self, params: Any, model: Any, **_: Any) -> None:
        """Keep one."""
        self.made.append((model.name, dict(params)))

    def gets(self) -> list[str]:
        """Key of each GetObject."""
        return [params["Key"] for name, params in self.made if name == "GetObject"]


def put(s3: Any, **files: bytes) -> None:
    for name, content in files.items():
        s3.put_object(Bucket=BUCKET, Key=name.replace("__", "/").replace("_dot_", "."), Body=content)


def fetched(s3: Any, uri: str, folder: Path, **options: Any) -> Path:
    return fetch(s3, "dataset", uri, folder, suffixes=ROWS, **options)


def test_an_object_is_a_file_with_its_name_and_is_fetched_once(s3: Any, tmp_path: Path) -> None:
    put(s3, data__rows_dot_csv=CONTENT)
    calls = Calls(s3)

    first = fetched(s3, f"s3://{BUCKET}/data/rows.csv", tmp_path)
    again = fetched(s3, f"s3://{BUCKET}/data/rows.csv", tmp_path)

    assert first == again
    assert first.name == "rows.csv"
    assert first.read_bytes() == CONTENT
    assert calls.gets() == ["data/rows.csv"]


def test_a_prefix_is_a_folder_of_the_files_with_rows(s3: Any, tmp_path: Path) -> None:
    put(
        s3,
        d____escaped_dot_csv=b"1",
        d__train_dot_csv=b"1",
        d__sub__test_dot_csv=b"2",
        d__README_dot_md=b"3",
        d___SUCCESS=b"",
        other_dot_csv=b"4",
    )

    for uri in (f"s3://{BUCKET}/d/", f"s3://{BUCKET}/d"):
        folder = fetched(s3, uri, tmp_path)
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert names == {"train.csv", "sub/test.csv"}


def test_what_is_not_there_is_said_with_the_next_step(s3: Any, tmp_path: Path) -> None:
    put(s3, d__notes_dot_md=b"1")
    faults = {
        "s3://no-such-bucket-here/rows.csv": "there is no bucket no-such-bucket-here",
        f"s3://{BUCKET}/missing.csv": "is neither an object nor a prefix of objects: see `aws s3 ls",
        f"s3://{BUCKET}/d/": "has 1 objects, none of which ends in .csv, .jsonl",
        "s3:///rows.csv": "must be s3://BUCKET/KEY",
    }
    for uri, words in faults.items():
        with pytest.raises(BadInput) as caught:
            fetched(s3, uri, tmp_path)
        assert words in str(caught.value)


def test_a_denied_object_names_the_permissions(s3: Any, tmp_path: Path) -> None:
    class Denied:
        def head_object(self, **_: Any) -> Any:
            error = {"Error": {"Code": "403", "Message": "Forbidden"}}
            raise boto3.client("s3", region_name="us-east-1").exceptions.ClientError(error, "HeadObject")

    with pytest.raises(BadInput, match=r"does not allow .* s3:GetObject on it and s3:ListBucket"):
        fetched(Denied(), f"s3://{BUCKET}/rows.csv", tmp_path)
