"""Reads the commands in the pages of this project."""

import itertools
import re
import shlex
from pathlib import Path

from paretune.cli import COMMANDS, read_words

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "AGENTS.md",
    ROOT / "studies" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def commands_of(text: str) -> list[list[str]]:
    """Return the words of every `mlflow run` and `paretune` command in fenced shell blocks.

    Variables that are set before a command are left out.
    """
    blocks = re.findall(r"^```(?:bash|sh|shell|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    result = []
    for line in lines:
        words: list[str] = []
        for word in [*shlex.split(line.removeprefix("$ "), comments=True), ";"]:
            if word in {"&&", "||", ";", "|"}:
                custom = "--backend" not in words  # with --backend, the project need not be paretune
                if (words[:2] == ["mlflow", "run"] and custom) or words[:1] == ["paretune"]:
                    result.append(words)
                words = []
            elif words or not re.match(r"[A-Za-z_]\w*=", word):
                words.append(word)
    return result


def job_of(words: list[str]) -> tuple[str, dict[str, str]]:
    """Return the command and the parameters of a command line."""
    if words[0] == "mlflow":
        options = list(itertools.pairwise(words))
        command = next((value for option, value in options if option in {"-e", "--entry-point"}), "train")
        rest = [f"--{value}" for option, value in options if option in {"-P", "--param-list"}]
    else:
        command, *rest = words[1:]
        if rest and not rest[0].startswith("-") and command in COMMANDS:
            rest[0] = f"--{COMMANDS[command].first_word}={rest[0]}"
    parameters, _ = read_words(rest, ())  # a parameter without a value gets an empty string
    parameters.pop("json", None)  # every command accepts it, with or without a value
    return command, {name: text or "true" for name, text in parameters.items()}


def fields_of(command: str) -> set[str]:
    """Return the fields of the JSON document that a command prints, according to docs/api.md."""
    (cell,) = re.findall(rf"^\| {re.escape(command)} \| (.*) \|$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", cell.partition(";")[0].partition(":")[0]))
