"""Text and files that an untrusted person may have written."""

import json
import os
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.core.untrusted import parse_json, printable, printable_json, read_text, without_secrets


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


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("gnp\u202efdp", r"gnp\u202efdp"),
        ("a\rb", r"a\rb"),
        ("half \ud800", r"half \ud800"),
        ("two\n\tlines, é, 漢", "two\n\tlines, é, 漢"),
    ],
)
def test_what_would_command_a_terminal_is_shown_as_an_escape(text: str, output: str) -> None:
    assert printable(text) == output


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


def test_a_json_document_without_what_would_command_a_terminal_has_the_same_values() -> None:
    value = {"name": "\x9b2J\x7fgnp\u202efdp, half \ud800, é, 漢", "lines": "a\n\tb\x1b"}

    output = printable_json(value)

    assert json.loads(output) == value
    assert printable(output) == output != json.dumps(value, indent=2, ensure_ascii=False)
    assert "é, 漢" in output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("storage postgresql://ann:hunter2@db/s is wrong", "storage postgresql://db/s is wrong"),
        ("http://ann:hunter2/with@signs@host:5000/x", "http://host:5000/x"),
        ("s3:/ann:hunter2@host/x.csv does not exist", "s3:/host/x.csv does not exist"),  # an address as a path
        ("got 'hf_abcdefghijklmnopqrst'", "got '...'"),
        ("AKIA0123456789ABCDEF", "..."),
        (f"github_pat_{'a1' * 20} glpat-{'b2' * 10} xoxb-{'3' * 12}-x AIza{'c' * 35}", "... ... ... ..."),
        ("https://hooks.slack.com/services/T0/B0/abc", "https://hooks.slack.com/services/..."),
        ("Authorization: Bearer abc.def-012345678", "Authorization: Bearer ..."),
        (f"git+https://{'hunter2' * 3}@dev.azure.com/ann/_git/x", "git+https://...@dev.azure.com/ann/_git/x"),
        ("https://abc-team-university-2024@dev.azure.com/abc-team-university-2024/_git/x", None),  # an organization
        ("https://ann@dev.azure.com/ann/_git/x ssh://APKA0123456789ABCDEF@host/x", None),
        ("-----BEGIN KEY-----\nhunter2\n-----END KEY----- after", "... after"),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2", "..."),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----\nafter", "...\nafter"),
        ("-----BEGIN TRAINING-----\nkey: 3\n-----BEGIN EPOCH 2-----\nerror", None),
        ('{"a": "http://host:80", "b": "x@y"}', '{"a": "http://host:80", "b": "x@y"}'),
        ("git+https://host/name@v1 http://host:5000/#/runs task-classification-with-a-name", None),
    ],
)
def test_no_message_shows_a_secret(text: str, shown: str | None) -> None:
    assert without_secrets(text) == (text if shown is None else shown)
    assert printable(text).count("hunter2") == 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": "-----BEGIN RSA PRIVATE KEY-----\nhunter2", "b": 1}, {"a": "...", "b": 1}),
        ({"a": ["x", "-----BEGIN KEY-----", "hunter2", "-----END KEY-----", "y"]}, {"a": ["x", "...", "y"]}),
        (
            {"a": ["x", "-----BEGIN KEY-----", "hunter2"], "b": [1, "y"], "c": []},
            {"a": ["x", "..."], "b": [1, "y"], "c": []},
        ),
        ({"a": ["two\nlines", "s3://ann:hunter2", "y@z"]}, None),
        ({"a": ["-----BEGIN TRAINING-----", "error"]}, None),
        ({"a": {"s3://ann:hunter2@host": "one\nhf_abcdefghijklmnopqrst"}}, {"a": {"s3://host": "one\n..."}}),
    ],
)
def test_a_json_document_without_secrets_has_all_other_values(value: object, shown: object) -> None:
    assert json.loads(printable_json(value)) == (value if shown is None else shown)
