"""Rows of a local file, counted before they are prepared."""

import json
from pathlib import Path

import pytest

from paretune.estimating.local_rows import CountedRows, count_rows

CHINESE = "这部电影非常好看我很喜欢它的故事和演员" * 5  # 95 characters
RUSSIAN = "этот фильм очень хороший и мне понравилась его история " * 2


def counted(file: Path, *texts: str, model: str = "") -> CountedRows:
    file.write_text("text,label\n" + "".join(f"{text},{number % 2}\n" for number, text in enumerate(texts)))
    rows = count_rows(
        str(file),
        text_column="text",
        max_seq_length=512,
        most_rows=None,
        joins_rows=False,
        validates=False,
        model=model,
    )
    assert rows is not None
    return rows


def tokens(rows: CountedRows) -> float:
    return rows.facts["train_tokens"] / rows.facts["train_rows"]


def test_a_character_of_chinese_is_a_token_as_in_bert_s_vocabulary_and_it_is_said_to_be_a_guess(
    tmp_path: Path,
) -> None:
    rows = counted(tmp_path / "rows.csv", CHINESE, CHINESE)

    assert tokens(rows) == 95 + 2
    assert rows.by == (
        "tokens are estimated from its characters (Chinese, Japanese or Korean: a guess, until the rows are prepared)"
    )


def test_texts_of_several_scripts_count_each_letter_by_its_own(tmp_path: Path) -> None:
    letters = len(RUSSIAN.replace(" ", ""))

    rows = counted(tmp_path / "rows.csv", RUSSIAN.strip())

    assert tokens(rows) == pytest.approx(letters / 2.5 + RUSSIAN.strip().count(" ") / 4.2 + 2)
    assert "Cyrillic or Greek" in rows.by
    assert counted(tmp_path / "rows.csv", "a plain text").by == "tokens are estimated from its characters"


def test_a_tokenizer_that_is_here_counts(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = Tokenizer(WordLevel({"a": 0, "b": 1, "[UNK]": 2}, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.enable_truncation(2)  # as in the files of sentence encoders, which would hide the length of texts
    words.save(str(tmp_path / "tokenizer.json"))

    rows = counted(tmp_path / "rows.csv", "a b " * 10, "a " * 40, model=str(tmp_path))

    assert tokens(rows) == pytest.approx(30)
    assert rows.by == "tokens are counted with the model's tokenizer"
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "no tokenizer"}))
    assert "characters" in counted(tmp_path / "rows.csv", "a b", model=str(tmp_path)).by
