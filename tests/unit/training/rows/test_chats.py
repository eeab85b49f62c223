"""Conversations as token ids and labels: TRL's, exactly; and what a template that does not mark them allows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paretune.core.errors import BadInput
from paretune.specification.chats import Chat, Completion, Message, read_document
from paretune.specification.job import JobSpec
from paretune.training.rows.chats import UnlearnableChat, check_tokenizer, encode
from paretune.training.rows.sources import read_rows
from paretune.training.rows.tokenized import TokenRows, prepare
from tests.support import chats

RECORDED = json.loads((Path(chats.__file__).parent / "trl_rows.json").read_text())
"""Token ids and labels that `tests/foreign/test_trl.py` got from TRL's SFTTrainer; it says how."""
TALK = chats.turns("Is 2 even?", "yes", "And 3?", "no", system="Be brief.")


def chat(messages: list[dict[str, str]]) -> Chat:
    return Chat(tuple(Message(**message) for message in messages))


def learned(row: Chat | Completion, template: str | None) -> list[str]:
    """Return the parts of a row's text that are learned."""
    words = chats.tokenizer(template)
    ids, marks = encode(words, row)
    parts, last = list[list[int]](), False
    for token, mark in zip(ids, marks, strict=True):
        if mark:
            parts = [*parts[:-1], [*parts[-1], token]] if last else [*parts, [token]]
        last = mark
    return [words.decode(part) for part in parts]


@pytest.mark.parametrize("kind", ["messages", "completion", "messages_of_completion"])
def test_tokens_and_labels_are_those_of_trl(kind: str, tmp_path: Path) -> None:
    recorded, limit = RECORDED[kind], RECORDED["max_length"]
    path = chats.write_jsonl(tmp_path / "rows.jsonl", recorded["rows"])
    spec = JobSpec(task="causal-lm", dataset=str(path), validation_file=str(path), max_seq_length=limit)

    rows, names = read_rows(spec.data_arguments)
    prepared = prepare(spec.data_arguments, rows, names, chats.tokenizer(chats.MARKED), tmp_path / "prepared")

    made = TokenRows(prepared.folder / "train", pad_id=0)
    batches = [made.batch([number]) for number in range(len(made))]
    assert [batch["input_ids"][0].tolist() for batch in batches] == recorded["tokens"]
    # TRL gives the first token a label, which no model predicts.
    assert [batch["labels"][0].tolist()[1:] for batch in batches] == [row[1:] for row in recorded["labels"]]
    assert made.label_counts.tolist() == [sum(label != -100 for label in row[1:]) for row in recorded["labels"]]


@pytest.mark.parametrize("template", [chats.PLAIN, chats.MARKED])
def test_all_messages_of_the_assistant_are_learned_with_the_end_of_their_turns(template: str) -> None:
    assert learned(chat(TALK), template) == ["yes<|im_end|>\n", "no<|im_end|>\n"]


def test_a_template_that_writes_the_last_message_in_another_way_is_understood() -> None:
    assert learned(chat(TALK), chats.THINKING) == ["yes<|im_end|>\n", "<think>\n\n</think>\n\nno<|im_end|>\n"]


def test_a_template_in_which_messages_cannot_be_found_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnlearnableChat, match=r"message 3 .* chat template with {% generation %}"):
        encode(chats.tokenizer(chats.BACKWARDS), chat(TALK))
    asked = Chat((Message("user", "Hi"), Message("assistant", "Hello")), prompt=1)
    with pytest.raises(UnlearnableChat, match=r"prompt alone .* chat template with {% generation %}"):
        encode(chats.tokenizer(chats.BACKWARDS), asked)


def test_what_a_template_refuses_is_named_by_file_and_row(tmp_path: Path) -> None:
    rows = [{"messages": chats.turns("Hi", "Hello")}] * 3 + [{"messages": TALK}]
    path = chats.write_jsonl(tmp_path / "rows.jsonl", rows)
    spec = JobSpec(task="causal-lm", dataset=str(path), validation_file=str(path))
    read, names = read_rows(spec.data_arguments)

    with pytest.raises(BadInput) as refused:
        prepare(spec.data_arguments, read, names, chats.tokenizer(chats.WITHOUT_SYSTEM), tmp_path / "prepared")

    rule = f"1 of 4 train rows of {path} cannot be learned"
    assert refused.value.faults == (f"{rule}: row 4: the model's chat template refuses it (System role not supported)",)


def test_letters_of_a_completion_that_share_a_token_with_the_prompt_are_learned() -> None:
    assert learned(Completion("A: ", "yes"), None) == [" yes<|endoftext|>"]  # the token " y" is not in the prompt
    assert learned(Completion("A:", " yes"), None) == [" yes<|endoftext|>"]
    assert learned(Completion("", "yes<|endoftext|>"), None) == ["yes<|endoftext|>"]


def test_a_tokenizer_without_a_chat_template_is_refused() -> None:
    with pytest.raises(BadInput, match=r"model M has no chat template, .*often named Instruct or Chat"):
        check_tokenizer("M", chats.tokenizer(None))


def test_a_conversation_is_cut_at_its_end_and_left_out_if_nothing_to_learn_remains(tmp_path: Path) -> None:
    long = {"messages": chats.turns("why " * 30, "because")}
    path = chats.write_jsonl(tmp_path / "rows.jsonl", [{"messages": chats.turns("Hi", "Hello " * 20)}] * 9 + [long])
    spec = JobSpec(task="causal-lm", dataset=str(path), validation_file=str(path), max_seq_length=40)
    rows, names = read_rows(spec.data_arguments)

    prepared = prepare(spec.data_arguments, rows, names, chats.tokenizer(), tmp_path / "prepared")

    lengths = np.load(prepared.folder / "train" / "lengths.npy")
    assert lengths.tolist() == [40] * 9
    uncut = np.load(prepared.folder / "train" / "uncut.npy")
    assert len(uncut) == 10
    facts = {"unlearned_rows": 1, "truncated_share": 1.0, "kept_share": 360 / uncut.sum()}
    assert facts.items() <= dict(prepared.facts).items()


def read(row: dict[str, Any]) -> Any:
    return read_document([*row], [*row.values()])


def test_messages_of_a_csv_are_json_and_a_text_column_may_hold_conversations() -> None:
    expected = Chat((Message("user", "Hi"), Message("assistant", "Hello")))
    assert read({"messages": json.dumps(chats.turns("Hi", "Hello"))}) == expected
    assert read({"talk": chats.turns("Hi", "Hello")}) == expected
    assert read({"text": "Hi"}) == "Hi"
