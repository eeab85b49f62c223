"""Rows of a language model's data: plain texts, conversations, or prompts with completions.

    {"text": "..."}                                                     a text, of which every token is learned
    {"messages": [{"role": "user", "content": "..."}, ...]}             a `Chat`; the assistant's messages are learned
    {"prompt": "...", "completion": "..."}                              a `Completion`; the completion is learned
    {"prompt": [message, ...], "completion": [message]}                 a `Chat` whose last message is learned

The columns have the names that TRL's SFTTrainer reads.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

MESSAGES = "messages"  # column with conversations
PROMPT, COMPLETION = "prompt", "completion"  # columns with texts, or with lists of messages
_ASSISTANT, _SYSTEM = "assistant", "system"
_ROLES = (_SYSTEM, "developer", "user", _ASSISTANT)
_OTHER_NAMES = {"human": "user", "gpt": _ASSISTANT, "bot": _ASSISTANT, "model": _ASSISTANT, "ai": _ASSISTANT}
_NO_TOOLS = "paretune does not train calls of tools: leave such rows out, or give a script (entry_script)"
_EXAMPLES = 5  # a fault names at most this many rows


class Message(NamedTuple):
    """One message of a conversation."""

    role: str
    content: str


class Chat(NamedTuple):
    """A conversation. The model learns the assistant's messages that follow the first `prompt` messages."""

    messages: tuple[Message, ...]
    prompt: int = 0


class Completion(NamedTuple):
    """A prompt and the text that the model learns to continue it with."""

    prompt: str
    completion: str


Document = str | Chat | Completion
"""One row of a language model's data."""


def document_faults(source: str, split: str, columns: Mapping[str, Sequence[object]]) -> list[str]:
    """Return a fault if rows of a language model's data cannot be read, with the numbers of the first ones.

    `source` is the name of the file or data set; `columns` are those of
    `DataArguments.text_columns`. Rows that lack a cell are not examined: `column_faults` reports them.
    """
    wrong, total = list[str](), 0
    for total, cells in enumerate(zip(*columns.values(), strict=True), 1):
        if any(cell is None for cell in cells):
            continue
        try:
            read_document([*columns], cells)
        except ValueError as error:
            wrong.append(f"row {total}: {error}")
    if not wrong:
        return []
    kind = "a conversation" if len(columns) == 1 else "a prompt with its completion"
    rule = f"{source}: {len(wrong)} of {total} {split} rows {'is' if len(wrong) == 1 else 'are'} not {kind} to learn"
    return [f"{rule}: {first_of(wrong)}; correct these rows, or remove them"]


def first_of(wrong: Sequence[str]) -> str:
    """Return the sentences about the first wrong rows, and how many more there are."""
    more = f"; and {len(wrong) - _EXAMPLES} more" if len(wrong) > _EXAMPLES else ""
    return "; ".join(wrong[:_EXAMPLES]) + more


def read_document(names: Sequence[str], cells: Sequence[object]) -> Document:
    """Return the text, the conversation, or the prompt with its completion in the cells of a row.

    `names` are the columns of the cells: `DataArguments.text_columns`. Raises ValueError with the reason if the cells
    hold anything else.
    """
    if len(names) == 1:
        (cell,) = cells
        content = _parsed(cell) if names[0] == MESSAGES else cell
        if isinstance(content, str) and names[0] != MESSAGES:
            return content
        messages = _messages(content, names[0])
        if not any(message.role == _ASSISTANT for message in messages):
            raise ValueError("no message of the assistant, so there is nothing to learn")
        return Chat(messages)
    prompt, completion = cells
    if isinstance(prompt, str) and isinstance(completion, str):
        if not completion.strip():
            raise ValueError("its completion is empty, so there is nothing to learn")
        return Completion(prompt, completion)
    if isinstance(prompt, str) or isinstance(completion, str):
        raise ValueError("prompt and completion must both be texts, or both be lists of messages")
    asked, answer = _messages(prompt, PROMPT), _messages(completion, COMPLETION, follows=True)
    if asked[-1].role == _ASSISTANT:
        raise ValueError("the last message of its prompt is the assistant's: move it to completion")
    if [message.role for message in answer] != [_ASSISTANT]:
        roles = ", ".join(message.role for message in answer)
        raise ValueError(
            f"its completion must be one message of the assistant, got {roles}: give longer conversations as {MESSAGES}"
        )
    return Chat((*asked, *answer), len(asked))


def _parsed(cell: object) -> object:
    """Return the value of a cell that was written as JSON, as in a CSV file, or the cell itself."""
    if isinstance(cell, str):
        with suppress(ValueError):
            return json.loads(cell)
    return cell


def _messages(value: object, name: str, *, follows: bool = False) -> tuple[Message, ...]:
    """Return the messages in a list. `follows` says whether other messages come before them.

    Raises ValueError with the reason if `value` is no list of messages.
    """
    if not isinstance(value, list):
        or_text = "" if name == MESSAGES else "a text, or "
        raise ValueError(f"{name} must be {or_text}a list of messages, each with role and content, got {_short(value)}")
    if not value:
        raise ValueError(f"{name} has no message")
    return tuple(_message(item, number, follows=follows) for number, item in enumerate(value, 1))


def _message(item: Any, number: int, *, follows: bool) -> Message:
    if not isinstance(item, Mapping):
        raise ValueError(f"message {number} must have role and content, got {_short(item)}")
    role, content = item.get("role"), item.get("content")
    if role is None:
        instead = "; from and value must be named role and content" if {"from", "value"} <= {*item} else ""
        raise ValueError(f"message {number} has no role{instead}")
    if item.get("tool_calls") or item.get("function_call") or role in ("tool", "function"):
        raise ValueError(f"message {number} ({role}) calls a tool or answers it; {_NO_TOOLS}")
    if role not in _ROLES:
        meant = _OTHER_NAMES.get(str(role).lower())
        remedy = f"write {meant}" if meant else f"use {', '.join(_ROLES)}"
        raise ValueError(f"message {number} has the unknown role {_short(role)}: {remedy}")
    if role == _SYSTEM and (number > 1 or follows):
        raise ValueError(f"message {number} is a system message, which must come first")
    if content is None:
        raise ValueError(f"message {number} ({role}) has no content")
    if not isinstance(content, str):
        raise ValueError(f"message {number} ({role}) must have a text as content, got {_short(content)}")
    return Message(role, content)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
