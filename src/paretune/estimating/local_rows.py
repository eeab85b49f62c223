"""Rows before they are prepared: counted in a local file, with tokens by their characters, or padded from a mean."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from paretune.core.packages import can_be_imported
from paretune.core.reading import at_home
from paretune.core.shell import options
from paretune.specification.inputs import texts_in

_CHARACTERS_PER_TOKEN = 4.2  # of English texts: the bundled reviews have 4.2
_SCRIPTS = {
    "Chinese, Japanese or Korean": (re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]"), 1.0),
    "Cyrillic or Greek": (re.compile("[\u0370-\u052f]"), 2.5),
    "Arabic or Hebrew": (re.compile("[\u0590-\u08ff]"), 2.2),
    "Indic or Thai": (re.compile("[\u0900-\u0eff]"), 1.6),
}
"""Letters of scripts, and characters of a token. BERT's Chinese vocabulary has one; the others are guesses, between
vocabularies of many languages and those that are mostly English, which need a token for each letter."""
_SAMPLED = 500  # texts whose tokens are counted with the model's tokenizer, if that is here
_VALIDATION_SHARE = 0.1  # of the rows of a data set without a validation split
_FEW_CUT = 0.01  # share of the tokens from which on it is said that rows are cut


_SPREAD_OF_LENGTHS = 0.5  # standard deviation of the tokens of a row, relative to their mean: a guess


def padded_tokens(mean: float, longest: float, rows: int) -> float:
    """Return the mean tokens of a row after padding to the longest of a batch of `rows` rows, at most `longest`.

    The expected largest of n normal values is about the quantile (n - 3/8) / (n + 1/4) (Blom, 1958).
    """
    largest = NormalDist().inv_cdf((rows - 0.375) / (rows + 0.25)) if rows > 1 else 0.0
    return min(longest, mean * (1 + _SPREAD_OF_LENGTHS * largest))


@dataclass(frozen=True, kw_only=True)
class CountedRows:
    """The rows of a file: facts like those of prepared data, and a sentence if max_seq_length cuts many tokens off."""

    facts: Mapping[str, float]
    by: str = ""  # how tokens were counted
    cuts: tuple[str, ...] = ()


def count_rows(
    dataset: str,
    *,
    text_column: str,
    max_seq_length: int,
    most_rows: int | None,
    joins_rows: bool,
    validates: bool,
    model: str = "",
) -> CountedRows | None:
    """Return the rows of a local file; None if `dataset` is something else, or too large to be read here.

    text_column: the column with the texts; without such a column, that of conversations, or the longest texts.
    most_rows: the training rows that are used; None for all.
    joins_rows: whether texts are joined and cut into rows of max_seq_length tokens.
    validates: whether a tenth of the rows is kept for validation, because there is no file for it.
    model: folder of the model, whose tokenizer counts if it is there.
    """
    texts = texts_in(dataset, text_column)
    if not texts:
        return None
    tokens, by = _tokens_of(texts, model)
    share = 1 - _VALIDATION_SHARE if validates else 1.0
    rows, mean = max(1.0, round(share * len(tokens))), sum(min(each, max_seq_length) for each in tokens) / len(tokens)
    used = min(rows, most_rows or rows)
    kept = sum(min(each, max_seq_length) for each in tokens) / sum(tokens)
    cuts: tuple[str, ...] = ()
    if joins_rows:
        joined = sum(tokens) / len(tokens) / max_seq_length
        used, rows, mean = max(1.0, round(used * joined)), rows * joined, float(max_seq_length)
    elif kept < 1 - _FEW_CUT:
        length = 64 * -(-int(sorted(tokens)[int(0.95 * (len(tokens) - 1))]) // 64)
        cut = sum(each > max_seq_length for each in tokens) / len(tokens)
        cuts = (
            f"max_seq_length={max_seq_length} keeps about {kept:.0%} of the tokens: it cuts the end off {cut:.0%} of "
            f"the rows; 95 % of them have at most {options(max_seq_length=length)}",
        )
    facts = {
        "train_rows": float(used),
        "train_tokens": used * mean,
        "validation_rows": rows * _VALIDATION_SHARE / share,
    }
    return CountedRows(facts=facts, cuts=cuts, by=by)


def _tokens_of(texts: Sequence[str], model: str) -> tuple[list[float], str]:
    """Return the tokens of each text with the two special ones of a row, and how they were counted."""
    counted, others = [_by_characters(text) for text in texts], set[str]()
    for text in texts[:: max(1, len(texts) // _SAMPLED)]:
        others |= {name for name, (letters, _) in _SCRIPTS.items() if not text.isascii() and letters.search(text)}
    by = "tokens are estimated from its characters"
    if others:
        by += f" ({', '.join(sorted(others))}: a guess, until the rows are prepared)"
    path = at_home(model) / "tokenizer.json" if model else Path()
    if model and path.is_file() and can_be_imported("tokenizers"):
        from tokenizers import Tokenizer  # comes with transformers

        with suppress(Exception):  # its errors have no class of their own
            tokenizer, every = Tokenizer.from_file(str(path)), max(1, len(texts) // _SAMPLED)
            tokenizer.no_truncation()  # files of sentence encoders ask for both
            tokenizer.no_padding()
            exact = sum(len(each.ids) for each in tokenizer.encode_batch([*texts[::every]]))
            share = exact / sum(counted[::every])
            return [share * each for each in counted], "tokens are counted with the model's tokenizer"
    return counted, by


def _by_characters(text: str) -> float:
    if text.isascii():
        return len(text) / _CHARACTERS_PER_TOKEN + 2
    tokens, rest = 2.0, len(text)
    for letters, each in _SCRIPTS.values():
        count = len(letters.findall(text))
        tokens, rest = tokens + count / each, rest - count
    return tokens + rest / _CHARACTERS_PER_TOKEN
