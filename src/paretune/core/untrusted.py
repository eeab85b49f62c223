"""Input that a stranger may have written (paths, files, JSON, text), read and printed safely.

`pathlib` raises an error for a name that is too long, contains NUL or starts with `~` and an unknown user. Reading a
device or a pipe may never end. `json` raises errors other than its own for deep nesting and for numbers with
thousands of digits.
"""

import csv
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput

LARGEST_SETTINGS = 100_000
"""Limit in bytes of a file that people write: YAML, TOML, MLproject. The shipped studies have about 1,500."""
LARGEST_CONFIG = 5_000_000
"""Limit in bytes of a model's config.json. Usual ones have thousands; those that name 100,000 classes have millions."""
LARGEST_SCRIPT = 20_000_000  # limit in bytes of a script
LARGEST_TABLE = 50_000_000  # limit in bytes of a CSV of runs, jobs or prices: 100,000 rows of 500 bytes

_TERMINAL_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters except line feed and tab, characters that reorder or hide text (UAX 9), and lone surrogates."""

_SECRET_NAME = re.compile(
    r"secret|pass?w|pwd|passphrase|credential|(private|api|access).?key"
    # A token that gives access, but no word about tokenizers: tokenizer, tokens, token_classification, pad_token.
    r"|(?<!(?:pad|bos|eos|unk|sep|cls).)(?<!mask.)token(?!i[sz]|s|.?(class|id|type))"
    # Names of files.
    r"|^\.?_?(netrc|pypirc|npmrc|pgpass|boto|s3cfg|htpasswd|kubeconfig)$|^pip\.conf$|^(auth|vault)\.(json|ya?ml|toml)$"
    r"|^id_(rsa|dsa|ecdsa|ed25519)|service.?account.*\.json$|(^|[-_.])key\.(json|txt|ya?ml|toml)$|^\.env(rc$|\.|$)"
    r"|\.(env|pem|key|p12|pfx|ppk|keystore|keytab|jks|kdbx?|tfvars|tfstate)(\.|$)",
    re.IGNORECASE,
)
_SECRET_FILE = re.compile(
    r"(^|/)(((access|api|auth|bearer|refresh|hf|github)[-_.]?)?tokens?\.(json|csv|ya?ml|toml)"
    r"|((access|api|auth|bearer|refresh|hf|github)[-_.]?)tokens?(\.(txt|md|json|csv|ya?ml|toml))?"
    r"|token(\.(txt|md))?|bearer(\.(txt|json))?|pat\.(txt|json|csv)"
    r"|cookies?(\.(txt|json|sqlite|db))?|rclone\.conf|wallet\.(dat|json)|[\w.-]*\.(ovpn|wallet|keychain(-db)?)"
    r"|[\w.-]*dump[\w.-]*\.sql(\.\w+)?|[\w.-]*\.sql\.(gz|bz2|xz|zst))$",
    re.IGNORECASE,
)
"""Further names of files that hold tokens, cookies, keys, or whole databases. Not tokens.txt, the usual vocabulary of
speech models, and not added_tokens.json of a tokenizer."""
_SOURCE_CODE = re.compile(
    r"\.(pyi?|pyx|ipynb|c|cc|cpp|cu|cuh|h|hpp|java|jl|js|ts|r|rs|go|md|rst|html|css)$", re.IGNORECASE
)
_NO_SECRET = re.compile(r"|-|true|false|none|null|[\d.]{1,6}", re.IGNORECASE)  # harmless values of use_auth_token etc.
_PASSWORD = re.compile(r"(//|(?<=\w:)/)[^/@\s'\"]*:[^\s'\"]*@")
"""User and password in an address. The password may even contain /, : and @. If the address was handled as a path, it
has only one slash left."""
_KEY = re.compile(
    r"\bhf_\w{20,}|\b(AKIA|ASIA)[A-Z0-9]{16}|\bgh[pousr]_\w{30,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}|\bsk-[\w-]{20,}"
    r"|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{35}|(?<=hooks\.slack\.com/services/)[\w/-]+|(?<=[Bb]earer )[\w.~+/-]{16,}=*"
    r"|(?:(?<=https://)|(?<=https:/))(?!(?P<organization>[\w-]+)@dev\.azure\.com/(?P=organization)/)"
    r"(?=[A-Za-z_-]*\d)[\w-]{20,}(?=@)"
    r"|-----BEGIN [^-\n]{0,40}\b(?i:key)\b[^-\n]{0,40}-----.*?(-----END[^-]*-----|\Z)",
    re.DOTALL,
)
"""Tokens of the Hugging Face Hub, AWS, GitHub, GitLab, Slack, Google and others, bearer tokens, tokens in place of a
user and password (Azure DevOps, Gemfury), and keys in PEM. Azure DevOps itself puts an organization's name, no secret,
in that place. A key in PEM without its last line ends at the end of the text."""
_NEXT_STRING = "\0\n"  # joins the strings of a list: no password extends across it, and no line of a log contains it


def printable(text: str) -> str:
    r"""Return the text without secrets, and with escapes such as \x1b for control and reordering characters."""
    return _TERMINAL_CONTROLS.sub(lambda match: ascii(match.group())[1:-1], without_secrets(text))


def printable_json(value: object) -> str:
    r"""Return a JSON value as one document without secrets.

    Escapes such as \u202e replace control and reordering characters. Raises ValueError for NaN and infinity.
    """
    document = json.dumps(_without_secrets_in(value), indent=2, ensure_ascii=False, allow_nan=False)
    return _TERMINAL_CONTROLS.sub(lambda match: f"\\u{ord(match.group()):04x}", document)


def _without_secrets_in(value: object) -> object:
    """Return a JSON value without secrets. A key may extend over several strings of a list, such as a log's lines."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {_without_secrets_in(name): _without_secrets_in(item) for name, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if value and all(isinstance(item, str) for item in value):
        return without_secrets(_NEXT_STRING.join(value)).split(_NEXT_STRING)
    return [_without_secrets_in(item) for item in value]


def without_secrets(text: str) -> str:
    """Return the text without passwords in addresses, and with `...` in place of well-known kinds of keys.

    The user of an address is removed together with the password. One without a password stays, unless it looks like a
    token.

    >>> without_secrets("postgresql://ann:pass/wo@rd@host/studies")
    'postgresql://host/studies'
    """
    return _KEY.sub("...", _PASSWORD.sub(r"\1", text))


def is_secret_name(name: str) -> bool:
    """Return whether a parameter or file of this name probably holds a password or key; False for source code.

    >>> is_secret_name("hub_token"), is_secret_name("gcp-key.json"), is_secret_name("run_token_labels.py")
    (True, True, False)
    """
    return bool(_SECRET_NAME.search(name)) and not _SOURCE_CODE.search(name)


def is_secret_file(path: str) -> bool:
    """Return whether a file of this name, or at this relative path, probably holds a password, a key or private data.

    >>> is_secret_file("tokens.json"), is_secret_file("conf/rclone.conf"), is_secret_file("added_tokens.json")
    (True, True, False)
    """
    return is_secret_name(path) or bool(_SECRET_FILE.search(path))


def masked(name: str, text: str) -> str:
    """Return the text of a parameter or tag without secrets, or `...` if the name is that of a secret.

    Harmless values, such as true, false and short numbers, are shown under any name.

    >>> masked("db.password", "hunter2"), masked("use_auth_token", "True")
    ('...', 'True')
    """
    is_secret = is_secret_name(name) and not _NO_SECRET.fullmatch(text)
    return "..." if is_secret else without_secrets(text)


def markdown(text: str) -> str:
    r"""Escape text for a Markdown page: HTML is shown literally, and so are `[text](address)` and `![text](address)`.

    >>> markdown("<b> ![x](http://host/x.png)")
    '&lt;b> ![x]\\(http://host/x.png)'
    """
    return printable(text).replace("<", "&lt;").replace("](", "]\\(")


def code_span(text: str) -> str:
    """Return text as inline code in Markdown, between more backticks than it contains in a row.

    >>> code_span("a`b")
    '``a`b``'
    """
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    padding = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{padding}{printable(text)}{padding}{fence}"


def _expanded(path: str | Path) -> str:
    try:
        return os.path.expanduser(path)
    except ValueError:  # NUL or a lone surrogate in the name of a user
        return str(path)


def at_home(path: str | Path) -> Path:
    """Return the path with the home folder in place of a leading `~` or `~USER`; unchanged if that user is unknown."""
    return Path(_expanded(path))


def exists(path: str | Path) -> bool:
    """Return whether the file or folder exists; False for an invalid path. `~` is the user's home."""
    return os.path.exists(_expanded(path))


def absolute(path: str) -> str:
    """Return the absolute path, without resolving links. `~` is the user's home."""
    return os.path.abspath(_expanded(path))


def is_folder(path: str | Path) -> bool:
    """Return whether the path is a folder; False for an invalid path. `~` is the user's home."""
    return os.path.isdir(_expanded(path))


def is_file(path: str | Path) -> bool:
    """Return whether the path is a regular file; False for an invalid path. `~` is the user's home."""
    return os.path.isfile(_expanded(path))


def is_readable(path: Path) -> bool:
    """Return whether this user may read a file, or list a folder and open what is in it; True if there is neither."""
    if os.path.isdir(path):
        return os.access(path, os.R_OK | os.X_OK)
    return os.access(path, os.R_OK) or not os.path.isfile(path)


def read_bytes(path: str | Path, largest: int, *, must: str = "", hint: str = "name another file") -> bytes:
    """Read a regular file of at most `largest` bytes; `~` is the user's home. Devices and pipes are not opened.

    Raises BadInput if the file is larger or cannot be read. If it cannot be read, the message starts with `must` and
    ends with `hint`, the next step.
    """
    if not is_file(path):
        kind = "is a folder" if is_folder(path) else "is not a file"
        reason = kind if exists(path) else f"does not exist (looked in {Path.cwd()})"
        raise BadInput([f"{must}{path} {reason}: {hint}"])
    try:
        with at_home(path).open("rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise BadInput([f"{must}{path} cannot be read ({error.strerror}): {hint}"]) from error
    if len(content) > largest:
        raise BadInput([f"{path} has more than {largest:,} bytes, the limit: is it the right file?"])
    return content


def read_text(path: str | Path, largest: int, *, must: str = "", hint: str = "name another file") -> str:
    """Read a text file without its byte order mark. Raises BadInput like `read_bytes`, or if the file is not UTF-8."""
    content = read_bytes(path, largest, must=must, hint=hint)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput([f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8"]) from error


def files_below(folder: Path, most: int) -> list[Path] | None:
    """Return the files under `folder`, sorted; None if there are more than `most`. Linked folders are not searched."""
    paths: list[str] = []
    for parent, _, names in os.walk(folder):
        paths += [os.path.join(parent, name) for name in names]
        if len(paths) > most:
            return None
    return sorted(map(Path, filter(os.path.isfile, paths)))


def parse_json(text: str | bytes, *, lax: bool = False) -> Any:
    """Parse a JSON text.

    Raises ValueError with the reason if the text is not JSON or its values are nested too deeply. Unless `lax` is true,
    NaN, Infinity and a key that is given twice are errors, too, although Python's parser accepts them.
    """
    try:
        return json.loads(text) if lax else json.loads(text, parse_constant=_no_number, object_pairs_hook=_mapping)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number: write a number, or put text in quotes")


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict[str, Any]()
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{name} is given twice: remove one")
        values[name] = value
    return values


def read_table(path: str | Path, *, must: str = "") -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the column names of a CSV, and the line number and stripped cells of each row that is not empty.

    Raises BadInput if the file cannot be read.
    """
    text = read_text(path, LARGEST_TABLE, must=must)
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise BadInput([f"{must}{path} cannot be read as CSV ({error}): name another file"]) from error
    return header, [line for line in lines if any(line[1])]
