"""The peak of a device, against sums worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from paretune.estimating.traced_step import KINDS, NF4_BYTES, Division, StepSetting, TracedStep, envelope

NOTHING = (0.0,) * len(KINDS)
FORWARD = (0.0, 50.0, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 4.0, 40.0, 6.0, 0.0)
"""Bytes at the end of the forward pass: casts 50, other 7; of each row inputs 4, inside layers 40, other 6."""
BACKWARD = (1200.0, 10.0, 0.0, 0.0, 0.0, 20.0, 0.0, 0.0, 1.0, 10.0, 0.0, 5.0)
"""Near its end: gradients 1200, casts 10, passing 20; of each row inputs 1, inside layers 10, passing 5."""
EVALUATED = (0.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.0)
STEP = TracedStep(
    layers=10,
    layer_weights=1000.0,
    other_weights=200.0,
    input_weights=150.0,
    largest_layer=100.0,
    quantisable=0.0,
    quantisable_bytes=0.0,
    layer_gradients=1000.0,
    other_gradients=200.0,
    state=2400.0,
    train=(FORWARD, BACKWARD),
    evaluate=(EVALUATED,),
)
GPU = StepSetting(
    config={"model_type": "bert"},
    task="classification",
    fine_tuning="full",
    lora_rank=8,
    lora_dropout=0.0,
    lora_target_modules="all-linear",
    half="bf16",
    frozen_in_half=False,
    on_processor=False,
    tokens=128,
    recomputes=False,
)


def peak(step: TracedStep = STEP, **division: object) -> float:
    result = step.peak(Division(**division))  # type: ignore[arg-type]
    return result.held + result.passing


@pytest.mark.parametrize(
    ("division", "total"),
    [
        ({"rows": 1}, 3600 + 1200 + 10 + 20 + 16),  # few rows: at the end of the backward pass
        ({"rows": 100}, 3600 + 57 + 5000),  # many: at its beginning
        ({"rows": 100, "accumulates": True}, 3600 + 1200 + 57 + 5000),  # gradients of earlier micro-batches
        ({"rows": 100, "has_buckets": True}, 3600 + 1200 + 57 + 5000),  # room for a copy of the gradients
        ({"rows": 1, "evaluated_rows": 1000}, 3600 + 50 + 9000),
        # deepspeed: a quarter of gradients and moments
        ({"rows": 1, "state_sharers": 4}, 1200 + 600 + 300 + 10 + 20 + 16),
        # fsdp: a quarter of all; two layers and the rest gathered, a layer's gradient twice; no weights cast
        (
            {"rows": 1, "weight_sharers": 4, "state_sharers": 4, "gathers": True},
            300 + 600 + 300 + (2 * 100 + 200) + 2 * 100 + 20 + 16,
        ),
        # the same in half precision: what is gathered has two bytes, a gradient two and four
        (
            {"rows": 1, "weight_sharers": 4, "state_sharers": 4, "gathers": True, "half": True},
            300 + 600 + 300 + (2 * 100 + 200) / 2 + 1.5 * 100 + 20 + 16,
        ),
        # two tensor devices halve what is in layers, of activations 22 of 34
        ({"rows": 100, "tensor": 2}, 500 + 200 + 2400 * 700 / 1200 + 25 + 7 + 400 + 4000 * 22 / 34 + 600),
        # two stages of the pipeline, two micro-batches: half of the layers, the embedding table in the first one
        (
            {"rows": 100, "pipeline": 2, "micro_batches": 2},
            500 + 150 + 2400 * 650 / 1200 + 25 + (400 + 4000) / 2 + (7 + 600) / 2,
        ),
        # the same rows in four micro-batches, of which two are in the stages at a time
        (
            {"rows": 100, "pipeline": 2, "micro_batches": 4},
            500 + 150 + 2400 * 650 / 1200 + 25 + (400 + 4000) / 4 + (7 + 600) / 4,
        ),
        # an evaluation is not cut into micro-batches
        (
            {"rows": 1, "pipeline": 2, "micro_batches": 2, "evaluated_rows": 1000},
            500 + 150 + 2400 * 650 / 1200 + 25 + 9000,
        ),
        # sharded stages: half of the layers and the larger end are gathered; a layer's gradient twice
        (
            {"rows": 1, "pipeline": 2, "weight_sharers": 2, "state_sharers": 2, "gathers": True},
            650 / 2 + 1300 / 2 + 650 / 2 + 650 + 2 * 100 + (1 + 10) / 2 + 20 + 5,
        ),
        ({"rows": 100, "offloads_inputs": True}, 3600 + 57 + 4600 + 400 * 2 / 10),
        ({"rows": 100, "offloads_weights": True}, 57 + 5000),
        ({"rows": 1, "weight_sharers": 4, "state_sharers": 4, "collects": True}, 300 + 600 + 2 * 1200),
    ],
)
def test_the_peak_is_the_sum_by_hand(division: dict[str, object], total: float) -> None:
    assert peak(**division) == pytest.approx(total)


def test_four_bits_replace_what_frozen_matrices_were_traced_with() -> None:
    frozen = replace(STEP, quantisable=400.0, quantisable_bytes=800.0)

    assert peak(frozen, rows=1) - peak(frozen, rows=1, quantised=True) == pytest.approx(800 - 400 * NF4_BYTES)


def test_what_is_held_for_a_part_of_a_step_is_apart() -> None:
    result = STEP.peak(Division(rows=1))

    assert (result.held, result.passing) == (3600 + 1200, 10 + 20 + 16)


def test_the_envelope_keeps_the_moments_that_may_be_the_highest() -> None:
    never = [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]  # less than another one in all kinds
    full, end = [0.0, 10.0, 2.0, 30.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0, 0.0, 4.0]
    fewer = np.array([never, full, end])
    more = np.array([never, [0.0, 10.0, 4.0, 60.0, 0.0, 0.0], end])  # with four rows in place of two

    assert envelope(fewer, more, (2, 4)) == (
        (0.0, 10.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 15.0, 0.0, 0.0),
        (100.0, 0.0, 0.0, 0.0, 0.0, 4.0, *NOTHING),
    )


def test_steps_with_other_operations_have_no_envelope() -> None:
    with pytest.raises(ValueError, match="a step of 2 rows has 3 operations, one of 4 has 5"):
        envelope(np.zeros((3, len(KINDS))), np.zeros((5, len(KINDS))), (2, 4))


def test_a_setting_has_the_key_of_all_that_it_says_and_of_what_traces_it() -> None:
    keys = {
        GPU.key(),
        GPU.key(["2.13.0"]),
        replace(GPU, tokens=64).key(),
        replace(GPU, config={"model_type": "gpt2"}).key(),
    }

    assert len(keys) == 4
    assert replace(GPU, config=dict(GPU.config)).key() in keys
