"""Rows before they are prepared: counted in a local file, with tokens by their characters, or padded from a mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from paretune.core.shell import options
from paretune.specification.inputs import text_lengths

_CHARACTERS_PER_TOKEN = 4.2  # of English texts: the bundled reviews have 4.2. A guess for other texts
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
    cuts: tuple[str, ...] = ()


def count_rows(
    dataset: str, *, text_column: str, max_seq_length: int, most_rows: int | None, joins_rows: bool, validates: bool
) -> CountedRows | None:
    """Return the rows of a local file; None if `dataset` is something else, or too large to be read here.

    text_column: the column with the texts; without such a column, that of conversations, or the longest texts.
    most_rows: the training rows that are used; None for all.
    joins_rows: whether texts are joined and cut into rows of max_seq_length tokens.
    validates: whether a tenth of the rows is kept for validation, because there is no file for it.
    """
    characters = text_lengths(dataset, text_column)
    if not characters:
        return None
    tokens = [length / _CHARACTERS_PER_TOKEN + 2 for length in characters]  # with the two special tokens of a row
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
    return CountedRows(facts=facts, cuts=cuts)
