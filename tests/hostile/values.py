"""Texts that do harm where they are taken for more than texts, and documents that were broken on the way."""

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

LONGEST = 100_000_000
"""Characters of a document: twice what is read of the largest kind of file."""
MARK = "hostile-was-here"
"""Name of the file that a text would make if something ran it."""

HARMFUL = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"; touch {MARK} #",
    f"' && touch {MARK} && '",
    f"| touch {MARK}",
    f"ext::sh -c touch% {MARK}",
    f"--upload-pack=touch {MARK}",
    f"__import__('os').system('touch {MARK}')",
    f"I(__import__('os').system('touch {MARK}'))",
    f"{{__import__('os').system('touch {MARK}')}}",
    f"{{{{ cycler.__init__.__globals__.os.system('touch {MARK}') }}}}",
    f"!!python/object/apply:os.system ['touch {MARK}']",
    f"!!python/object/new:type {{args: [z, [], {{}}]}} # {MARK}",
    f'=HYPERLINK("http://127.0.0.1/{MARK}")',
    f"@SUM(1+1)*cmd|' /C touch {MARK}'!A0",
    f"<script>document.title='{MARK}'</script>",
    '"><img src=x onerror="document.title=\'hostile\'">',
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    f"../../../{MARK}",
    f"/../../{MARK}",
    f"~/../{MARK}",
    "..",
    "/",
    "~nobody_x/f",
    "/dev/zero",
    "/dev/stdin",
    "/proc/self/mem",
    "/proc/self/pagemap",
    "/proc/self/environ",
    "/etc/passwd",
    f"file:///etc/passwd#{MARK}",
    "file://",
    "s3://",
    "s3:///key",
    f"s3://bucket/../../{MARK}",
    "http://169.254.169.254/latest/meta-data/",
    "sqlite:////dev/full",
    "postgresql://user:secret@127.0.0.1:1/none",
    "models:/../x@candidate",
    "runs:/../../..",
    "-rf",
    "--help",
    "-",
    "%s%s%s%n",
    "%(name)s",
    "{0.__class__}",
    "' OR '1'='1",
    "'; DROP TABLE runs; --",
    "\x00",
    "a\x00b",
    "\x1b[2J\x1b]0;title\x07",
    "\r\nSet-Cookie: a=b",
    "line\nline",
    "\u202egnp.exe\u202c",
    "\u2066hidden\u2069",
    "\u200b",
    "\ufeff",
    "\ud800",
    "İıſK",
    "a" * 5_000,
    "a" * 300 + "/" + "b" * 300,
    "é" * 200,
    ",".join("a" for _ in range(3_000)),
    "(" * 2_000,
    "[" * 100_000,
    '{"a":' * 50_000,
    "nan",
    "inf",
    "-inf",
    "-1",
    "-0.0",
    "0",
    "1e309",
    "1e-320",
    "9" * 30,
    "9" * 5_000,
    "1" + "0" * 400,
    "0x10",
    "1_000",
    "١٢",
    "1e5",
    "2147483648",
    "9223372036854775808",
    "true",
    "None",
    "null",
    "[]",
    "{}",
    '{"__proto__": 1, "": {}}',
    '{"a": NaN, "b": 1e999}',
    '{"a": ' + "9" * 5_000 + "}",
    '{"output_dir": "/etc", "push_to_hub": true}',
    '["a", null, 1]',
    "*anchor",
    "&a [*a, *a]",
    "? x\n: y",
    "---\n...\n---\n",
    "\t- a",
    "",
    " ",
)
"""What harms where a text reaches a shell, YAML's objects, a spreadsheet, a page, a path, a terminal or a number."""

ODD_PATHS = ("~nobody_x/f", "/dev/zero", "/proc/self/mem", "a_pipe", "a_folder", "a_dangling_link", "a_loop_of_links")
"""Paths that lead to no file that can be read; `make_odd` makes those that begin with a_."""

NUMBERS = ("1" + "0" * 400, "9" * 5_000, "0x" + "f" * 5_000, "2026-01-01", "10:00:00", "2026-13-45", "1e999", "-1", "0")
"""What stands where a document has a number: too large ones, and dates, which YAML and TOML have as values."""

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""YAML of 500 characters that becomes 9^9 values where aliases are followed."""


def harmful(source: random.Random) -> str:
    """One of them, or two that follow each other."""
    text = source.choice(HARMFUL)
    return text if source.random() < 0.8 else text + source.choice(HARMFUL)[:1_000]


def make_odd(name: str, place: Path) -> None:
    """Make at `place`, which does not exist, what this one of ODD_PATHS is called by."""
    if name == "a_pipe":
        os.mkfifo(place)
    elif name == "a_folder":
        place.mkdir()
    else:
        place.symlink_to({"a_dangling_link": "nothing", "a_loop_of_links": place.name}.get(name, name))


def broken(text: str, source: random.Random) -> bytes:
    """The document with one to three things done to it that a document should not suffer."""
    content = text
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        content = source.choice(_DAMAGES)(content, source)
    raw = content.encode("utf-8", errors="surrogatepass")
    if source.random() < 0.1 and raw:
        workspace = source.randrange(len(raw))
        raw = raw[:workspace] + bytes([source.randrange(256)]) + raw[workspace + 1 :]
    return raw


def _of_a_value(content: str, source: random.Random) -> str:
    """What stands after a colon, an equals sign or a comma becomes a harmful text."""
    places = [workspace for workspace, letter in enumerate(content) if letter in ":=,"]
    if not places:
        return content + harmful(source)
    begin = source.choice(places) + 1
    ends = [folder for folder in range(begin, len(content)) if content[folder] in ",\n}]"] or [len(content)]
    return f"{content[:begin]} {harmful(source)}{content[ends[0] :]}"


def _of_a_number(content: str, source: random.Random) -> str:
    """A number becomes one that is none, or too large."""
    result = list(re.finditer(r"\d+", content))
    if not result:
        return content + source.choice(NUMBERS)
    workspace = source.choice(result)
    return content[: workspace.start()] + source.choice(NUMBERS) + content[workspace.end() :]


def _of_a_word(content: str, source: random.Random) -> str:
    """A word becomes another word of the document."""
    words = content.split()
    return content if len(words) < 2 else content.replace(source.choice(words), source.choice(words), 1)


def _of_a_line(content: str, source: random.Random) -> str:
    """A line is lost, doubled, moved or indented."""
    lines = content.splitlines(keepends=True) or [content]
    workspace = source.randrange(len(lines))
    line = lines.pop(workspace)
    kind = source.randrange(4)
    if kind == 1:
        lines[workspace:workspace] = [line, line]
    elif kind == 2:
        lines.insert(source.randrange(len(lines) + 1), line)
    elif kind == 3:
        lines.insert(workspace, source.choice(("  ", "\t", "- ")) + line)
    return "".join(lines)


def _cut(content: str, source: random.Random) -> str:
    return content[: source.randrange(len(content) + 1)]


def _added(content: str, source: random.Random) -> str:
    workspace = source.randrange(len(content) + 1)
    return content[:workspace] + harmful(source) + content[workspace:]


def _swelled(content: str, source: random.Random) -> str:
    """A line a thousand times, or as often as makes LONGEST characters: it may have been swelled before."""
    lines = content.splitlines(keepends=True) or [content]
    workspace = source.randrange(len(lines))
    times = max(1, min(1_000, LONGEST // max(1, len(lines[workspace]))))
    return "".join(lines[:workspace] + lines[workspace : workspace + 1] * times + lines[workspace + 1 :])


def _another(content: str, source: random.Random) -> str:
    """Something else altogether."""
    del content
    return source.choice((BOMB, harmful(source), "", "\n" * 1_000, "PK\x03\x04", "\x1f\x8b\x08", "PAR1", "%PDF-1.7"))


_DAMAGES: tuple[Callable[[str, random.Random], str], ...] = (
    *(_of_a_value,) * 5,
    *(_of_a_number,) * 2,
    *(_of_a_word, _of_a_line) * 2,
    *(_cut, _added, _swelled, _another),
)
