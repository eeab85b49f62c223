"""What a stranger may have written."""

import json
from pathlib import Path

import pytest

from paretune.core.untrusted import exists, is_file, is_folder, parse_json, printable, printable_json


@pytest.mark.parametrize("text", ["a" * 5_000, "\x00", "~nobody-of-that-name/x", "\ud800", ""])
def test_what_cannot_be_a_path_is_not_there(text: str) -> None:
    assert not exists(text)
    assert not is_file(text)
    assert not is_folder(text)


def test_a_tilde_is_the_user_s_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows.csv").touch()

    assert is_file("~/rows.csv")
    assert exists("~/rows.csv")
    assert is_folder("~")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 5_000 + "}", "", "{'a': 1}"])
def test_json_that_is_none_or_goes_on_for_ever_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("gnp\u202efdp", r"gnp\u202efdp"),
        ("a\rb", r"a\rb"),
        ("half \ud800", r"half \ud800"),
        ("two\n\tlines, é, 漢", "two\n\tlines, é, 漢"),
    ],
)
def test_what_would_command_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_json_document_without_what_would_command_a_terminal_has_the_same_values() -> None:
    value = {"name": "\x9b2J\x7fgnp\u202efdp, half \ud800, é, 漢", "lines": "a\n\tb\x1b"}
    document = json.dumps(value, indent=2, ensure_ascii=False)

    shown = printable_json(document)

    assert json.loads(shown) == value
    assert printable(shown) == shown != document
    assert "é, 漢" in shown
