"""Memory of one device, compared with sums worked out by hand, and learned from peaks."""

import math
from dataclasses import replace
from typing import Any

import pytest

from paretune.estimating.architecture import Architecture, of_config, well_known
from paretune.estimating.memory import GIB, Footprint, MemoryModel, MemoryPrediction, MemorySetting, describe
from paretune.estimating.workload import setting_of
from paretune.specification import catalog
from paretune.specification.job import JobSpec

FP32 = MemorySetting(
    model="m",
    on_processor=False,
    parameters=1e9,
    trained_parameters=1e9,
    half=False,
    sharers=1,
    units=1e8,
    logit_bytes=0.0,
)
FRAMEWORK = 0.3  # GiB, the median of its prior


def gib(setting: MemorySetting, model: MemoryModel | None = None) -> float:
    return (model or MemoryModel()).predict(setting).gib


@pytest.mark.parametrize(
    ("setting", "gigabytes"),
    [
        (FP32, 4 + 12 + 2 * 4.5),  # weights, gradients and moments, 2 x 45 bytes a unit in fp32
        (replace(FP32, half=True, state_bytes=18.0), 6 + 12 + 4.5),  # weights in both formats, activations in one half
        (replace(FP32, half=True, update_bytes=4.0), 2 + 4 + 2 + 8 + 4.5),  # weights, masters, gradients, moments
        (replace(FP32, half=True, update_bytes=4.0, units=1e7), 2 + 4 + 2 + 8 + 4),  # gradients in fp32 in the update
        (replace(FP32, trained_parameters=1e7), 4 + 0.12 + 9),  # adapters
        (
            replace(FP32, half=True, state_bytes=18.0, trained_parameters=1e7),
            4 + 0.02 + 0.12 + 4.5,
        ),  # frozen weights are not kept twice
        (replace(FP32, sharers=8), 0.5 + 1.5 + 9),  # fsdp
        (replace(FP32, kept_bytes=4.0), 4 + 12 + 4 + 9),  # the best weights so far
        (replace(FP32, logit_bytes=12e9), 4 + 12 + 9 + 12),  # a language model's
        (replace(FP32, offloads_weights=True), 9),
        (replace(FP32, trained_parameters=1e7, frozen_bytes=2.0), 0.04 + 1.98 + 0.12 + 9),  # loaded in bf16
    ],
)
def test_memory_is_the_sum_by_hand(setting: MemorySetting, gigabytes: float) -> None:
    assert gib(setting) == pytest.approx(gigabytes * 1e9 / GIB + FRAMEWORK)


@pytest.mark.parametrize(
    ("kind", "precision", "state", "for_the_loss", "in_the_update"),
    [
        ("bert", "fp32", 4 + 8, 0, 4),  # its gradient exists from the backward pass to the update
        ("bert", "bf16", 2 + 4 + 8, 0, 2 + 4),  # masters, and their gradients in the update
        ("deberta-v2", "bf16", 4 + 8, 2, 4),  # trained under autocast
        ("bert", "fp16", 4 + 8, 2, 4),
        ("bert", "bf16-true", 2 + 4, 0, 2),  # neither masters nor anything else in fp32
    ],
)
def test_a_trained_weight_takes_what_training_keeps_of_it(
    kind: str, precision: Any, state: int, for_the_loss: int, in_the_update: int
) -> None:
    built = Architecture(
        parameters=9, matrices=6, layers=1, hidden_size=1, vocabulary=1, adapted_widths=1, kind=kind, positions=None
    )
    spec = JobSpec(instance_type="ml.g5.xlarge", precision=precision, dataset="a/b", max_train_samples=900)
    whole = setting_of(spec, spec.plan(), built)
    assert whole is not None

    setting = describe(whole)

    assert (setting.state_bytes, setting.cast_bytes, setting.update_bytes) == (state, for_the_loss, in_the_update)


def test_a_peak_teaches_the_activations_of_its_model() -> None:
    truth = 60.0  # bytes a unit
    peaks = [
        (replace(FP32, units=units, half=True, state_bytes=18.0), (18e9 + truth * units) / GIB + 0.5)
        for units in (1e7, 1e8, 5e8, 1e9)
    ]
    model = MemoryModel(peaks)
    larger = replace(FP32, units=2e9, half=True, state_bytes=18.0)

    assert gib(larger, model) == pytest.approx((18e9 + truth * 2e9) / GIB + 0.5, rel=0.05)
    assert gib(replace(larger, model="other"), model) == pytest.approx((18e9 + 45 * 2e9) / GIB, rel=0.05)


def test_a_peak_makes_the_interval_narrower_by_as_much_as_it_tells() -> None:
    setting = replace(FP32, half=True, state_bytes=18.0)
    total, activations, framework = 18e9 + 45e8 + 0.3 * GIB, 45e8, 0.3 * GIB
    shares = activations / total, framework / total

    for peaks, deviation in (
        ([], 0.3),
        ([(setting, total / GIB)], (1 / 0.3**2 + shares[0] ** 2 / 0.06**2) ** -0.5),  # as predicted, so only surer
    ):
        predicted = MemoryModel(peaks).predict(setting)
        width = math.hypot(deviation * shares[0], 0.6 * shares[1], 0.06)
        assert predicted.gib == pytest.approx(total / GIB)
        assert predicted.gib_high / predicted.gib == pytest.approx(math.exp(1.2816 * width), rel=1e-4)
        assert predicted.gib / predicted.gib_low == pytest.approx(math.exp(1.2816 * width), rel=1e-4)


def described(kind: str = "", **changes: Any) -> MemorySetting:
    built = Architecture(
        parameters=1500, matrices=1000, layers=6, hidden_size=10, vocabulary=50, adapted_widths=1080, kind=kind
    )
    spec = JobSpec(**{"dataset": "a/b", "max_train_samples": 900, **changes})
    setting = setting_of(spec, spec.plan(), built)
    assert setting is not None
    return describe(setting)


def test_a_device_has_the_memory_of_its_type_and_a_processor_a_share_of_its_machine_s() -> None:
    gpu, processor = described(instance_type="ml.p4d.24xlarge"), described(instance_type="ml.m5.4xlarge")

    assert (gpu.on_processor, processor.on_processor) == (False, True)
    assert (gpu.usable_gib, processor.usable_gib) == (pytest.approx(40 - 0.9), pytest.approx(64 * 0.85))


def test_a_gpu_without_a_data_sheet_may_have_all_of_its_memory_or_less(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"instance_type": "ml.g9.xlarge", "accelerator": "NVIDIA Z9", "accelerator_memory_gib": 24.0}
    monkeypatch.setitem(catalog.instances(), "ml.g9.xlarge", replace(catalog.instance("ml.g5.xlarge"), **own))
    unlisted, listed = described(instance_type="ml.g9.xlarge"), described(instance_type="ml.g5.xlarge")

    assert (unlisted.usable_gib, unlisted.unsure_gib) == (pytest.approx(0.93 * 24 - 0.9), pytest.approx(0.07 * 24))
    assert listed.unsure_gib == 0.0


@pytest.mark.parametrize(
    ("low", "high", "fits"),
    [(20, 22, "yes"), (20, 23, "unsure"), (22.5, 25, "unsure"), (23.5, 25, "no")],
)
def test_a_job_fits_if_it_fits_the_least_memory_and_does_not_if_it_is_too_large_for_the_most(
    low: float, high: float, fits: str
) -> None:
    assert MemoryPrediction(gib=low, gib_low=low, gib_high=high, usable_gib=22, unsure_gib=1).fits == fits


@pytest.mark.parametrize(("strategy", "sharers"), [("ddp", 1), ("fsdp", 16), ("deepspeed_zero3", 16), ("smp", 16)])
def test_strategies_share_weights_and_state(strategy: str, sharers: int) -> None:
    assert described(strategy=strategy, instance_type="ml.p4d.24xlarge", instance_count=2).sharers == sharers


def test_the_best_weights_are_kept_in_the_memory_of_the_machine() -> None:
    best = {"eval_strategy": "epoch", "load_best_model_at_end": True}

    assert described(instance_type="ml.m5.4xlarge", training_arguments=best).kept_bytes == 4.0
    assert described(instance_type="ml.p4d.24xlarge", training_arguments=best).kept_bytes == 0.0


def test_a_device_map_divides_the_weights() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "fine_tuning": "qlora", "per_device_train_batch_size": 4}
    in_turn, alike = described(**job, strategy="device_map"), described(**job)

    assert in_turn.parameters == alike.parameters / 4
    assert in_turn.frozen_bytes == alike.frozen_bytes


def test_a_device_has_its_share_of_weights_in_full_what_it_computes_with_and_the_constants_of_four_bits() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "precision": "bf16"}
    layer, rest = 1000 / 6, 500  # of 1,500 weights 1,000 are in six layers
    scales = 1000 * (8 / 64 + 32 / (64 * 256)) / 8

    assert described(**job).whole_bytes == described(**job).gathered_bytes == 0
    gradients = layer * (2 + 4) + rest * 2
    assert described(**job, strategy="fsdp").gathered_bytes == pytest.approx(2 * layer * 2 + rest * 2 + gradients)
    assert described(**job, fine_tuning="qlora").whole_bytes == pytest.approx(scales)
    sharded = described(**job, fine_tuning="qlora", strategy="fsdp")
    assert sharded.whole_bytes == pytest.approx(scales)
    assert sharded.gathered_bytes == pytest.approx(2 * layer / 2 + rest * 2)
    assert sharded.frozen_bytes == described(**job, fine_tuning="qlora").frozen_bytes


@pytest.mark.parametrize(("batch", "bytes_of_rows"), [(1, 4 * 64), (64, 12 * 64)])  # 64 rows are evaluated
def test_a_script_with_the_trainer_has_logits_of_a_training_or_an_evaluation_batch(
    batch: int, bytes_of_rows: int
) -> None:
    job: dict[str, Any] = {"task": "causal-lm", "max_seq_length": 128, "per_device_train_batch_size": batch}
    setting = described(instance_type="ml.g5.xlarge", program="trainer", **job)

    assert setting.logit_bytes == pytest.approx(bytes_of_rows * 128 * 50)


def test_our_own_training_has_logits_of_1024_tokens_however_many_rows_a_batch_has() -> None:
    job: dict[str, Any] = {"task": "causal-lm", "instance_type": "ml.g5.xlarge", "max_seq_length": 128}

    for batch in (8, 64):
        assert described(**job, per_device_train_batch_size=batch, precision="fp32").logit_bytes == 4 * 1024 * 50
        assert described(**job, per_device_train_batch_size=batch, precision="bf16").logit_bytes == 6 * 1024 * 50


def test_a_step_of_several_micro_batches_has_gradients_in_fp32_of_bf16_weights() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": 4}

    for precision, state, in_the_update in (("bf16-true", 6, 2), ("bf16", 14, 2 + 4)):
        once = described("bert", **job, precision=precision)
        often = described("bert", **job, precision=precision, gradient_accumulation_steps=2)
        assert (once.state_bytes, once.update_bytes) == (state, in_the_update)
        assert (often.state_bytes, often.update_bytes) == (state + 4, 2)
    job |= {"precision": "bf16-true", "program": "trainer"}
    assert described(**job).state_bytes == 6
    assert described(**job, gradient_accumulation_steps=2).state_bytes == 8  # with gradients


def test_ddp_of_the_trainer_keeps_copies_of_gradients_and_our_own_does_not() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "precision": "fp32"}

    for program, state in (("paretune", 12), ("trainer", 12 + 4)):
        setting = described(**job, program=program)
        assert (setting.state_bytes, setting.update_bytes) == (state, 4)


QWEN3_600M: dict[str, Any] = {  # of Qwen/Qwen3-0.6B
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}


@pytest.mark.parametrize("instance_type", ["ml.p5.48xlarge", "ml.g6e.xlarge"])
def test_a_small_model_with_a_large_vocabulary_fits_with_rows_that_its_logits_alone_would_not_let_fit(
    instance_type: str,
) -> None:
    built = of_config(QWEN3_600M, "causal-lm")
    assert built is not None
    arguments = {"gradient_checkpointing": True}
    job: dict[str, Any] = {"max_seq_length": 4096, "per_device_train_batch_size": 16, "training_arguments": arguments}
    job |= {"task": "causal-lm", "instance_type": instance_type, "dataset": "a/b", "max_train_samples": 9000}
    memory = [
        MemoryModel().predict(describe(whole))
        for model in (built, replace(built, changes_logits=True))
        for spec in [JobSpec(precision="bf16", **job)]
        if (whole := setting_of(spec, spec.plan(), model)) is not None
    ]

    assert [each.fits for each in memory] == ["yes", "no"]
    assert memory[1].gib - memory[0].gib == pytest.approx(12 * 16 * 4096 * 151_936 / GIB, rel=0.02)


def test_a_full_8b_model_in_bf16_true_fits_on_one_h100_with_two_rows_of_8192_tokens() -> None:
    built = well_known("Llama-3.1-8B")
    assert built is not None
    arguments = {"gradient_checkpointing": True}
    job: dict[str, Any] = {"max_seq_length": 8192, "per_device_train_batch_size": 2, "training_arguments": arguments}
    job |= {"task": "causal-lm", "instance_type": "ml.p5.4xlarge", "dataset": "a/b", "max_train_samples": 9000}
    spec = JobSpec(precision="bf16-true", **job)
    whole = setting_of(spec, spec.plan(), built)
    assert whole is not None

    assert MemoryModel().predict(describe(whole)).fits == "yes"


SMALL, LARGE = "ml.g4dn.xlarge", "ml.g6e.xlarge"  # 16 and 48 GiB


def held(batch: int, instance_type: str = "ml.g5.xlarge", **terms: object) -> Footprint:
    texts = {"instance_type": instance_type, "per_device_train_batch_size": str(batch)}
    spec = JobSpec.read(texts | {name: str(value) for name, value in terms.items()})
    return Footprint.of(spec, spec.plan())


FULL = [held(128)]  # of the ml.g5.xlarge, 24 GiB: 128 rows do not fit


@pytest.mark.parametrize(
    ("footprint", "fits"),
    [
        (held(32), True),
        (held(32, LARGE), True),
        (held(32, instance_count=4), True),
        (held(128), False),
        (held(256), False),
        (held(128, SMALL), False),
        (held(128, "ml.g5.12xlarge"), False),
        (held(64), True),  # from here on it is open
        (held(128, LARGE), True),
        (held(128, fine_tuning="lora"), True),
        (held(128, max_seq_length=64), True),
        (held(128, precision="fp16"), True),
        (held(128, training_arguments='{"gradient_checkpointing": true}'), True),
    ],
)
def test_what_did_not_fit_rules_out_as_many_rows_or_more_on_as_much_memory_or_less(
    footprint: Footprint, fits: bool
) -> None:
    assert (footprint.why_full(FULL) is None) is fits


def test_sharded_weights_fit_on_more_devices_where_they_did_not_on_fewer() -> None:
    full = [held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=2)]

    assert held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=1).why_full(full)
    assert not held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=4).why_full(full)
    assert not held(16, "ml.g5.12xlarge", strategy="ddp", instance_count=1).why_full(full)


@pytest.mark.parametrize(("fine_tuning", "whole"), [("full", 2 * 1500), ("lora", 2 * 1500)])
def test_stage_2_of_zero_divides_gradients_and_states_and_no_weights(fine_tuning: str, whole: float) -> None:
    job: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "precision": "bf16", "program": "trainer-4.57"}
    stage_2, stage_3 = (
        MemoryModel().predict(described(**job, fine_tuning=fine_tuning, strategy=name)).gib * GIB
        for name in ("deepspeed", "deepspeed_zero3")
    )
    gathered = described(**job, fine_tuning=fine_tuning, strategy="deepspeed_zero3").gathered_bytes

    setting = described(**job, fine_tuning=fine_tuning, strategy="deepspeed")
    in_full = setting.undivided_bytes * setting.trained_parameters
    in_full += setting.frozen_bytes * (setting.parameters - setting.trained_parameters)
    assert in_full >= 0.9 * whole
    assert stage_2 - stage_3 == pytest.approx(in_full * 7 / 8 - gathered, rel=0.05)
