"""Tokenizes conversations and prompts with completions, and marks the tokens that a language model learns.

Conversations are written with the chat template of the model's tokenizer. The tokens are those of TRL's SFTTrainer with
its defaults; for a column `messages`, with `assistant_only_loss`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jinja2 import TemplateError

from paretune.core.errors import BadInput, first_line
from paretune.specification.chats import Chat, Completion

_MARKED = re.compile(r"{%-?\s*generation\s*-?%}")  # what transformers looks for
_REMEDY = (
    "give the model's tokenizer a chat template with {% generation %} and {% endgeneration %} around the assistant's "
    "text, such as one of TRL's training templates"
)


class LearnedTokens(NamedTuple):
    """The T token ids of a row, and for each of them whether it is learned."""

    ids: list[int]
    is_learned: list[bool]


class UnlearnableChat(ValueError):
    """A conversation that the chat template refuses, or whose assistant messages cannot be found in its text."""


def check_tokenizer(model: str, tokenizer: Any) -> None:
    """Raise BadInput if the tokenizer of `model` cannot write conversations."""
    if not tokenizer.chat_template:
        rule = f"model {model} has no chat template, with which conversations are written"
        other = "choose a version of the model for chats (often named Instruct or Chat)"
        raise BadInput([f"{rule}: {other}, or save a tokenizer with a chat_template in its folder"])
    if not tokenizer.is_fast:  # a slow one does not return the position of a token in the text
        name = type(tokenizer).__name__
        raise BadInput([f"conversations need a fast tokenizer, got {name} of {model}: choose another model"])


def encode(tokenizer: Any, row: Chat | Completion) -> LearnedTokens:
    """Return all tokens of a row, uncut. Raises UnlearnableChat with the reason if a conversation cannot be learned."""
    if isinstance(row, Completion):
        return _encode_completion(tokenizer, row)
    messages = [message._asdict() for message in row.messages]
    try:
        if row.prompt:
            spans = [_span_of_completion(tokenizer, messages, row.prompt)]
        elif _MARKED.search(tokenizer.get_chat_template()):
            marked = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
            return LearnedTokens(marked["input_ids"], [bool(mark) for mark in marked["assistant_masks"]])
        else:
            spans = [*_spans_of_assistant(tokenizer, messages)]
        encoded = tokenizer.apply_chat_template(
            messages, return_dict=True, tokenizer_kwargs={"return_offsets_mapping": True}
        )
    except TemplateError as error:
        raise UnlearnableChat(f"the model's chat template refuses it ({first_line(error)})") from error
    offsets = encoded["offset_mapping"]
    is_learned = [any(start < last and first < end for first, last in spans) for start, end in offsets]
    return LearnedTokens(encoded["input_ids"], is_learned)


def _encode_completion(tokenizer: Any, row: Completion) -> LearnedTokens:
    """Learn the tokens after those that prompt and whole text have in common, as TRL does.

    If the last letters of the prompt and the first letters of the completion make one token, it is learned.
    """
    end = tokenizer.eos_token or ""
    whole = row.prompt + row.completion
    whole += "" if whole.endswith(end) else end
    prompt, ids = tokenizer([row.prompt, whole], return_attention_mask=False)["input_ids"]
    common = next((n for n, (one, other) in enumerate(zip(prompt, ids, strict=False)) if one != other), len(prompt))
    return LearnedTokens(ids, [place >= common for place in range(len(ids))])


def _write(tokenizer: Any, messages: Sequence[Any], *, asks: bool = False) -> str:
    """Return the messages as text. With `asks`, the text ends where the assistant's next message begins."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks))


def _span_of_completion(tokenizer: Any, messages: Sequence[Any], prompt: int) -> tuple[int, int]:
    """Return where the text after the first `prompt` messages begins and ends."""
    text, asked = _write(tokenizer, messages), _write(tokenizer, messages[:prompt], asks=True)
    if not text.startswith(asked):
        reason = "the chat template writes its prompt alone in another way than with its completion"
        raise UnlearnableChat(f"{reason}: {_REMEDY}")
    return len(asked), len(text)


def _spans_of_assistant(tokenizer: Any, messages: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield where each message of the assistant begins and ends in the text of the conversation.

    A message begins where the text of the earlier messages, with the generation prompt, ends. It ends with what the
    template writes after its content, such as a token for the end of a turn. Raises UnlearnableChat if the text of the
    conversation does not begin with the earlier messages, because the template writes them in another way there.
    """
    text = _write(tokenizer, messages)
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, after = _write(tokenizer, messages[:number], asks=True), _write(tokenizer, messages[: number + 1])
        content = message["content"].strip()
        end = after[after.rfind(content) :] if content in after else ""
        at = text.find(end, len(before)) if end else -1
        if not text.startswith(before) or at < 0:
            reason = (
                f"the assistant's text in message {number + 1} cannot be told apart in what the chat template writes"
            )
            raise UnlearnableChat(f"{reason}: {_REMEDY}")
        yield len(before), at + len(end)
