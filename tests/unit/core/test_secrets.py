"""Text that is printed: without secrets, and without characters that would command a terminal."""

import json
import time

import pytest

from paretune.core.secrets import (
    code_span,
    is_secret_name,
    printable,
    printable_json,
    without_named_secrets,
    without_secrets,
)


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
    ("text", "shown"),
    [
        ("AWS_SECRET_ACCESS_KEY=wJalr/K7MDENG+hunter2", "AWS_SECRET_ACCESS_KEY=..."),
        ("env: WANDB_API_KEY=hunter2 then", "env: WANDB_API_KEY=... then"),
        ("export DB_PASSWORD=a,b;hunter2", "export DB_PASSWORD=..."),
        ("password=hunter2hunter2, retry", "password=..., retry"),
        ("api_key=xyz/token/hunter2", "api_key=..."),
        ("api_key: hunter2", "api_key: ..."),
        ("{'HF_TOKEN': 'hunter2', 'step': 3}", "{'HF_TOKEN': '...', 'step': 3}"),
        ('{"db": {"password": "hunter2 and more"}}', '{"db": {"password": "..."}}'),
        (r"""{\"password\": \"hunter2\"}""", None),
        ("//registry.example.org/:_authToken=hunter2", "//registry.example.org/:_authToken=..."),
        ("https://host/x?step=1&access_token=hunter2", "https://host/x?step=1&access_token=..."),
        ("AWS_SESSION_TOKEN: hunter2", "AWS_SESSION_TOKEN: ..."),
        ("token=hunter2hunter2", "token=..."),
        ("client_secret := hunter2", "client_secret := ..."),
        (f"a {'.'.join(('eyJhbGciOiJIUzI1NiJ9', 'eyJzdWIiOiIxMjM0In0', 'abc-DEF_123'))} b", "a ... b"),
        (f"npm_{'a1B2' * 9}", "..."),
        ('{"Authorization": "Basic aHVudGVyMjpodW50ZXIy"}', '{"Authorization": "Basic ..."}'),
    ],
)
def test_a_value_that_a_text_gives_to_the_name_of_a_secret_is_masked(text: str, shown: str | None) -> None:
    masked = without_named_secrets(text)

    assert masked == (r"""{\"password\": \"...\"}""" if shown is None else shown)
    assert printable(text) == masked


@pytest.mark.parametrize("part", ["//a:", "eyJ-", "s3:/a:b", "password='", "//a:b@"])
def test_a_long_line_of_a_log_is_masked_in_a_time_proportional_to_its_length(part: str) -> None:
    began = time.process_time()

    without_named_secrets(part * 50_000)

    assert time.process_time() - began < 4  # CPU seconds: about 0.1, but 13 if every beginning reads the whole line


@pytest.mark.parametrize(
    "text",
    [
        "tokens=512 max_tokens: 5 pad_token_id=0 token_classification: 3 val_f1: 0.8",
        "password_length=8 password_strength: 0.8734521 token_loss=1.5e-05 token_accuracy=0.9312345 num_secrets=12345",
        "token: hello next_token: the first_token: 'Hello' eos_token: </s> mask_token = [MASK] image_token: <image>",
        "Setting `pad_token` to `eos_token`:2 for open-end generation.",
        "PWD=/home/ann/project OLDPWD=/home/ann AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/x secret_name: my-secret",
        "HF_TOKEN: secret:arn:aws:secretsmanager:us-east-1:123456789012:secret:hub HF_TOKEN=$HF_TOKEN",
        "password: required, credentials: /home/ann, Found credentials in shared credentials file: ~/.aws/credentials",
        "    login(token=token, password=self.password) if password == other else getpass.getpass()",
        """print("password: ", end="")""",
        "use_auth_token=True TOKENIZERS_PARALLELISM=false secretary: Annabella",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert without_named_secrets(text) == text
    assert without_named_secrets(text, in_code=True) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('password: str = "hunter2"', 'password: str = "..."'),
        ("api_key='hunter2'", "api_key='...'"),
        ("+api_key: hunter2hunter2", "+api_key: ..."),
        ("token = tokenizer.get() or password_of(user)", None),
        ("api_key = get_key1()", None),
        ("password: str = field(repr=False)", None),
    ],
)
def test_in_source_code_only_values_are_secrets_and_no_names(text: str, shown: str | None) -> None:
    assert without_named_secrets(text, in_code=True) == (text if shown is None else shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"api_key": "hunter2", "step": 3, "tokens": "512"}, {"api_key": "...", "step": 3, "tokens": "512"}),
        ({"env": ["x", "WANDB_API_KEY=hunter2"]}, {"env": ["x", "WANDB_API_KEY=..."]}),
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
        ("PWD", False),
        ("DB_PWD", True),
        ("tokenizer.json", False),
        ("report.txt", False),
    ],
)
def test_a_secret_is_known_by_its_name_and_source_code_is_none(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret


@pytest.mark.parametrize(
    "line",
    [
        "DB_PASS={}",
        "KAGGLE_KEY={}",
        "AccountName=ann;AccountKey={};EndpointSuffix=core",
        "mysql --password {} -u ann",
        "--api-key '{}'",
        "the password is {}",
        "Pa$$word: {}",
        "https://ann.blob.core.windows.net/c?sv=2020&sig={}&se=1",
        "https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature={}",
        "machine api.wandb.ai login user password {}",
        '"private_key_id": "{}",',
    ],
)
def test_no_form_in_which_a_secret_is_printed_stays_in_a_log(line: str) -> None:
    value = "aB3dE5gH7jK9mN1pQ3sT"

    assert without_named_secrets(line.format(value)) == line.format("...")


@pytest.mark.parametrize(
    "line",
    [
        "usage: train.py [--password PASSWORD] [--token TOKEN] [--token_count N]",
        "password is required",
        "the password is stored elsewhere",
        "signature: inputs",
        "significance=0.05 key=value primary_key=id",
        "--token_count 5120",
    ],
)
def test_words_about_secrets_stay(line: str) -> None:
    assert without_named_secrets(line) == line
