"""Text and files that an untrusted person may have written."""

import os
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.core.reading import parse_json, read_text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"lr": NaN}', "NaN is not a number"),
        ("[1, -Infinity]", "-Infinity is not a number"),
        ('{"a": {"lr": 1, "b": 2, "lr": 2}}', "lr is given twice: remove one"),
    ],
)
def test_json_is_as_strict_as_yaml(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)
    assert parse_json(text, lax=True) is not None  # the config.json of a model may have it


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5_000 + "}", "", "{'a': 1}"])
def test_json_that_is_none_or_goes_on_for_ever_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_a_file_is_read_as_text_without_its_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfone\r\ntwo")

    assert read_text("~/a.csv", 11) == "one\r\ntwo"


def test_a_path_that_is_no_file_to_read_is_one_fault_that_names_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 101)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for path, message in {
        "~nobody-of-that-name/x": "does not exist",
        "a\0b": "does not exist",
        "~a\0b": "does not exist",
        "~\ud800": "does not exist",
        str(tmp_path): "is a folder",
        str(tmp_path / "pipe"): "is not a file",
        str(tmp_path / "large"): "has more than 100 bytes",
        str(tmp_path / "latin"): "is not UTF-8 .byte 3",
    }.items():
        with pytest.raises(BadInput, match=message) as caught:
            read_text(path, 100)

        (fault,) = caught.value.faults
        assert path in fault
