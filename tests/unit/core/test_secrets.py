"""Text that is printed: without secrets, and without characters that would command a terminal."""

import json

import pytest

from paretune.core.secrets import code_span, is_secret_name, printable, printable_json, without_secrets


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


@pytest.mark.parametrize(
    ("text", "span"), [("ls", "`ls`"), ("a`b", "``a`b``"), ("a``b`", "``` a``b` ```"), ("`", "`` ` ``"), ("", "``")]
)
def test_code_in_a_page_stands_between_one_backtick_more_than_it_has_in_a_row(text: str, span: str) -> None:
    assert code_span(text) == span


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("hub_token", True),
        ("gcp-key.json", True),
        (".env", True),
        ("aws_credentials", True),
        ("run_token_labels.py", False),  # source code
        ("pad_token", False),
        ("tokenizer.json", False),
        ("report.txt", False),
    ],
)
def test_a_secret_is_known_by_its_name_and_source_code_is_none(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret
