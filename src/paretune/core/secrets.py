"""Text that is printed and recorded: without secrets, and without characters that would command a terminal."""

import json
import re
from collections.abc import Mapping

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
