"""Formulas against sums worked out by hand."""

import math

import pytest

from paretune.specification import metrics


def test_perplexity_is_the_exponential_of_the_loss_and_absent_where_no_float_holds_it() -> None:
    assert metrics.perplexity(math.log(50257)) == pytest.approx(50257)  # a uniform guess over GPT-2's vocabulary
    assert metrics.perplexity(710.0) is None
