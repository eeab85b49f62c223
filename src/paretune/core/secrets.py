"""Text that is printed and recorded: without secrets, and without characters that would command a terminal."""

import json
import re
from collections.abc import Mapping

_TERMINAL_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters except line feed and tab, characters that reorder or hide text (UAX 9), and lone surrogates."""

_SENSITIVE = (
    r"secret|pass?w|(?<!^)(?<!^old)pwd|^pwd.|passphrase|credential|(private|api|access).?key"
    # A token that gives access, but no word about tokenizers: tokenizer, tokens, token_classification, pad_token.
    r"|(?<!(?:pad|bos|eos|unk|sep|cls).)(?<!mask.)token(?!i[sz]|s|.?(class|id|type))"
)
"""Not PWD and OLDPWD, the current folder and the one before."""
_SECRET_NAME = re.compile(
    _SENSITIVE
    # Names of files.
    + r"|^\.?_?(netrc|pypirc|npmrc|pgpass|boto|s3cfg|htpasswd|kubeconfig)$|^pip\.conf$"
    r"|^(auth|vault)\.(json|ya?ml|toml)$"
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
_WITH_AT = re.compile(r"(?<![^\s'\"])[^\s'\"@]*@[^\s'\"]*")  # a whole word with an @: each is read once
_BEFORE_USER = re.compile(r"(//|(?<=\w:)/)[^/@:]*:")
"""The beginning of a user and password in an address. The password ends at the last @ of the word, because it may even
contain /, : and @. If the address was handled as a path, it has only one slash left."""
_SIGNED = re.compile(r"([?&](?:sig|x-amz-(?:signature|credential|security-token))=)[^&\s\"']+", re.IGNORECASE)
"""What gives access to an address of Azure's or Amazon's storage."""
_BASIC = re.compile(r"(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?basic\s{1,3})[\w+/-]{6,}=*", re.IGNORECASE)
_KEY = re.compile(
    r"\bhf_\w{20,}|\b(AKIA|ASIA)[A-Z0-9]{16}|\bgh[pousr]_\w{30,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}|\bsk-[\w-]{20,}"
    r"|\bnpm_\w{30,}|\beyJ[\w-]{8,1000}\.eyJ[\w-]{8,}\.[\w-]*"
    r"|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{35}|(?<=hooks\.slack\.com/services/)[\w/-]+|(?<=[Bb]earer )[\w.~+/-]{16,}=*"
    r"|(?:(?<=https://)|(?<=https:/))(?!(?P<organization>[\w-]+)@dev\.azure\.com/(?P=organization)/)"
    r"(?=[A-Za-z_-]*\d)[\w-]{20,}(?=@)"
    r"|-----BEGIN [^-\n]{0,40}\b(?i:key)\b[^-\n]{0,40}-----.*?(-----END[^-]*-----|\Z)",
    re.DOTALL,
)
"""Tokens of the Hugging Face Hub, AWS, GitHub, GitLab, npm, Slack, Google and others, JSON Web Tokens,
bearer tokens, tokens in place of a
user and password (Azure DevOps, Gemfury), and keys in PEM. Azure DevOps itself puts an organization's name, no secret,
in that place. A key in PEM without its last line ends at the end of the text."""
_NAMED = re.compile(r"(?<![\w.-])(?P<name>[\w.-]{2,80})(?P<quote>\\?[\"']?)(?P<sign>[ \t]*(=>|:=|[=:](?!=))[ \t]*)")
"""`NAME=` or `NAME: `, with which text gives a value a name; the name may be quoted."""
_ANNOTATION = re.compile(r"[A-Za-z][\w.|\[\] ]{0,40}=[ \t]*(?=[\"'])")  # of a variable in Python, up to its value
_OF_ENVIRONMENT = re.compile(r"(?P<bare>[^\s\"']\S*)")  # the value in `NAME=value` of a shell, with any characters
_VALUE = re.compile(
    r"""\\?"(?P<double>(?:[^"\\\n]|\\[^"\n])*)\\?"|\\?'(?P<single>(?:[^'\\\n]|\\[^'\n])*)\\?'|(?P<bare>[^\s"',;)\]}]+)"""
)
_SECRET_HINT = re.compile(r"secret|pas|pa\$|pwd|credential|key|token", re.IGNORECASE)  # in all that is found below
_SENSITIVE_NAME = re.compile(
    _SENSITIVE.replace("secret|", "secret(?!ar)|", 1)
    + r"|(?-i:^[A-Z0-9_]+_(PASS|KEY)$)|account.?key",  # variables of a shell, and keys of Azure
    re.IGNORECASE,
)
_SAID = re.compile(
    r"(?P<lead>(?<![\w-])--?[\w-]*(?:pass(?:w|phrase)|secret|api[-_]?key|token)[\w-]*[ \t]+"
    r"|\bpass(?:word|phrase)[ \t]+is[ \t]+|\bpa\$\$w(?:or)?d[ \t]*[:=][ \t]*"
    r"|\bmachine[ \t]+\S+[ \t]+login[ \t]+\S+[ \t]+password[ \t]+)(?P<quote>[\"']?)(?P<value>[^\s\"']{4,})",
    re.IGNORECASE,
)
"""A secret without a sign after its name: `--password hunter2`, `the password is hunter2`, a line of a .netrc."""
_PLAIN_WORD = re.compile(r"[a-z]+|[A-Z_]+|-.*|.*[\[\]<>{}].*")  # `is stored`, `--token TOKEN`, the next option
_ABOUT_A_SECRET = re.compile(  # `password_length` and `token_file` are about a secret and hold none
    r"[-_.](len(gth)?|counts?|size|num|files?|path|dir|folder|name|types?|field|loss|acc(uracy)?|f1|scores?|rates?|prompt"
    r"|policy|ttl|age|expir\w*|enabled|required|ids?|mode|index|prob\w*|embed\w*|class\w*)$",
    re.IGNORECASE,
)
_ACCESS_TOKEN = re.compile(
    r"^(?-i:[A-Z0-9_]*TOKEN)$|(^|[-_.])(hub|auth|access|api|session|bearer|refresh|hf|face|github|gitlab|slack|bot"
    r"|wandb|security|user|private|oauth|personal|deploy|npm|pypi|tracking)[-_.]?token$",
    re.IGNORECASE,
)
"""Tokens that give access. Any other token, such as `next_token`, may be a word that a model has read."""
_MAY_BE_A_WORD = re.compile("token|credential", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[^\W\d_]*\d)(?=.*[A-Za-z])[\w+/=.~-]{12,}")  # not a word
_NO_VALUE = re.compile(
    r"[-+]?(\d{1,6}|\d*\.\d+(e[-+]?\d+)?|\d+(\.\d*)?e[-+]?\d+)[%a-z]{0,2}|nan|inf|true|false|none|null|\W*"
    r"|([$<%{(\[]|secret:arn:|os\.|self\.|args\.).*"  # a variable, a place to fill in, or an address of a secret
    # Words of messages and annotations.
    r"|is|the|an?|of|to|in|for|not?|yes|ok|set|unset|str|int|bool|bytes|string|Optional.*|missing|required|invalid|wrong|expired"
    r"|found|empty|hidden|redacted|masked|valid|must|should|unknown|default|denied|incorrect|needed|given|absent|present",
    re.IGNORECASE,
)
_LONGEST_STRING = 500  # characters before a name in which the beginning of a string is looked for
_SHORTEST = 4  # shorter values are not masked (characters)
_NEXT_STRING = "\0\n"  # joins the strings of a list: no password extends across it, and no line of a log contains it


def printable(text: str) -> str:
    r"""Return the text without secrets, and with escapes such as \x1b for control and reordering characters."""
    return _TERMINAL_CONTROLS.sub(lambda match: ascii(match.group())[1:-1], without_named_secrets(text))


def printable_json(value: object) -> str:
    r"""Return a JSON value as one document without secrets.

    Escapes such as \u202e replace control and reordering characters. Raises ValueError for NaN and infinity.
    """
    document = json.dumps(_without_secrets_in(value), indent=2, ensure_ascii=False, allow_nan=False)
    return _TERMINAL_CONTROLS.sub(lambda match: f"\\u{ord(match.group()):04x}", document)


def _without_secrets_in(value: object, name: str = "") -> object:
    """Return a JSON value without secrets. A key may extend over several strings of a list, such as a log's lines."""
    if isinstance(value, str):
        return "..." if _is_secret(name, value) else without_named_secrets(value)
    if isinstance(value, Mapping):
        return {_without_secrets_in(key): _without_secrets_in(item, str(key)) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if value and all(isinstance(item, str) for item in value):
        return without_named_secrets(_NEXT_STRING.join(value)).split(_NEXT_STRING)
    return [_without_secrets_in(item) for item in value]


def without_named_secrets(text: str, *, in_code: bool = False) -> str:
    """Return the text `without_secrets`, and with `...` in place of values that it gives to names of secrets.

    Numbers stay, and words that a sentence has after a name. In source code, values without quotes are names of
    variables, unless they look random.

    >>> without_named_secrets("WANDB_API_KEY=abc123 password: 'hunter2' max_tokens=512 password_length=8")
    "WANDB_API_KEY=... password: '...' max_tokens=512 password_length=8"
    """
    lines = without_secrets(text).split("\n")
    return "\n".join(_without_values(line, in_code) if _SECRET_HINT.search(line) else line for line in lines)


def _hidden(match: re.Match[str]) -> str:
    value = match["value"]
    is_about = _ABOUT_A_SECRET.search(match["lead"].strip())
    is_harmless = is_about or _PLAIN_WORD.fullmatch(value) or _NO_VALUE.fullmatch(value)
    return match[0] if is_harmless else f"{match['lead']}{match['quote']}..."


def _without_values(line: str, in_code: bool) -> str:
    line = line if in_code else _SAID.sub(_hidden, line)
    parts, end, seen = list[str](), 0, 0
    for match in _NAMED.finditer(line):
        name = match["name"]
        if match.start() < seen or not _SENSITIVE_NAME.search(name):
            continue
        begin = found.end() if in_code and (found := _ANNOTATION.match(line, match.end())) else match.end()
        is_of_shell = name.isupper() and match["sign"] == "=" and not match["quote"]
        value = (is_of_shell and _OF_ENVIRONMENT.match(line, begin)) or _VALUE.match(line, begin)
        if not value or not (group := value.lastgroup) or _is_end_of_string(line, match, value):
            continue
        seen = value.end(group)
        if _is_secret(name, value[group]) and not (in_code and group == "bare" and _is_word(value[group])):
            parts += [line[end : value.start(group)], "..."]
            end = seen
    return "".join([*parts, line[end:]])


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value with this name, somewhere in a text, is a secret."""
    is_about = _ABOUT_A_SECRET.search(name) and name.lower() != "private_key_id"
    if not _SENSITIVE_NAME.search(name) or is_about or _NO_VALUE.fullmatch(value) or value == "...":
        return False
    if _is_word(value) and _SENSITIVE_NAME.search(value):  # `password=self.password`, as tracebacks show it
        return False
    may_be_a_word = all(_MAY_BE_A_WORD.search(match[0]) for match in _SENSITIVE_NAME.finditer(name))
    is_word = may_be_a_word and not _ACCESS_TOKEN.search(name) and not _RANDOM.fullmatch(value)
    return len(value) >= _SHORTEST and not is_word


def _is_word(value: str) -> bool:
    return re.fullmatch(r"[A-Za-z_.]+(\w*[(\[].*)?", value) is not None


def _is_end_of_string(line: str, name: re.Match[str], value: re.Match[str]) -> bool:
    """Return whether the quote after a name ends a string that began before it, as in `print("password: ", end="")`."""
    quote = value[0].lstrip("\\")[:1]
    before = line[max(0, name.start() - _LONGEST_STRING) : name.start()]
    return quote in "\"'" and not name["quote"].endswith(quote) and before.count(quote) % 2 == 1


def without_secrets(text: str) -> str:
    """Return the text without passwords in addresses, and with `...` in place of well-known kinds of keys.

    Text that a job has printed, or that is for people, also needs `without_named_secrets`.

    The user of an address is removed together with the password. One without a password stays, unless it looks like a
    token.

    >>> without_secrets("postgresql://ann:pass/wo@rd@host/studies")
    'postgresql://host/studies'
    """
    return _KEY.sub("...", _BASIC.sub(r"\1...", _SIGNED.sub(r"\1...", _WITH_AT.sub(_without_password, text))))


def _without_password(match: re.Match[str]) -> str:
    word = match.group()
    end = word.rindex("@")
    user = _BEFORE_USER.search(word, 0, end)
    return word if user is None else word[: user.end(1)] + word[end + 1 :]


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
