"""Formulas against sums worked out by hand."""

import math

import pytest

from paretune.specification import metrics


def test_perplexity_is_the_exponential_of_the_loss_and_absent_where_no_float_holds_it() -> None:
    assert metrics.perplexity(math.log(50257)) == pytest.approx(50257)  # a uniform guess over GPT-2's vocabulary
    assert metrics.perplexity(710.0) is None


def test_full_training_takes_six_flops_a_parameter_and_token_plus_attention() -> None:
    # 6 x 1000 parameters + 12 x 2 layers x 8 wide x 5 long.
    flops = metrics.training_flops(parameters=1000, trained_share=1.0, layers=2, hidden_size=8, mean_length=5.0)
    assert flops == 6000 + 960
    # Frozen weights: forward 2, gradients of the activations 2, none of the weights.
    flops = metrics.training_flops(parameters=1000, trained_share=0.0, layers=2, hidden_size=8, mean_length=5.0)
    assert flops == 4000 + 960
