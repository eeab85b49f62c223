"""A small tokenizer with chat templates, conversations, and tiny language models that read them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

_TURN = "'<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n'"
_ASKS = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
PLAIN = "{%- for message in messages %}{{- " + _TURN + " }}{%- endfor %}" + _ASKS
"""ChatML, without marks around the assistant's text."""
MARKED = (
    "{%- for message in messages %}{%- if message.role == 'assistant' %}{{- '<|im_start|>assistant\n' }}"
    "{%- generation %}{{- message.content + '<|im_end|>\n' }}{%- endgeneration %}"
    "{%- else %}{{- " + _TURN + " }}{%- endif %}{%- endfor %}" + _ASKS
)
"""The same text, with the marks that TRL's assistant_only_loss needs."""
THINKING = (
    "{%- for message in messages %}{%- if message.role == 'assistant' and loop.last %}"
    "{{- '<|im_start|>assistant\n<think>\n\n</think>\n\n' + message.content.strip() + '<|im_end|>\n' }}"
    "{%- else %}{{- " + _TURN + " }}{%- endif %}{%- endfor %}" + _ASKS
)
"""Like Qwen3: only the last message of the assistant has an (empty) thought."""
WITHOUT_SYSTEM = (
    "{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}" + PLAIN
)
"""Like Gemma 2: refuses messages of the system."""
BACKWARDS = "{%- for message in messages | reverse %}{{- " + _TURN + " }}{%- endfor %}" + _ASKS
"""Writes the last message first, so that no earlier text is a beginning of the whole."""


def tokenizer(template: str | None = PLAIN) -> PreTrainedTokenizerFast:
    """Return a tokenizer of single bytes and a few pairs, such as a space and the letter after it."""
    letters = sorted(ByteLevel.alphabet())
    pairs = [("t", "h"), ("Ġ", "t"), ("Ġ", "a"), ("Ġ", "y"), ("i", "n")]
    words = [*letters, *(first + second for first, second in pairs)]
    model = Tokenizer(BPE({word: number for number, word in enumerate(words)}, pairs))
    model.pre_tokenizer = ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    named = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    made = PreTrainedTokenizerFast(tokenizer_object=model, extra_special_tokens=["<|im_start|>", "<|im_end|>"], **named)
    made.chat_template = template
    return made


def turns(*contents: str, system: str = "") -> list[dict[str, str]]:
    """Return a conversation in which user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": content} for number, content in enumerate(contents)]
    return [{"role": "system", "content": system}] * bool(system) + messages


def conversations(count: int) -> list[dict[str, Any]]:
    """Return rows with conversations of two or four messages."""
    return [
        {
            "messages": turns(
                f"Is {number} even?", "yes" if number % 2 == 0 else "no", *["Why?", "It is."] * (number % 3 == 0)
            )
        }
        for number in range(count)
    ]


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def language_model(folder: Path, template: str | None = PLAIN, kind: str = "llama") -> Path:
    """Write a language model with two layers, random weights and the tokenizer into `folder`."""
    from tests.support.small_models import small

    words = tokenizer(template)
    more = {"n_positions": 512} if kind == "gpt2" else {"max_position_embeddings": 512}
    small(kind, "causal-lm", vocab_size=len(words), eos_token_id=words.eos_token_id, **more).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def load_weights(folder: Path) -> dict[str, Any]:
    """Return the weights of a language model by name."""
    from transformers import AutoModelForCausalLM

    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())
