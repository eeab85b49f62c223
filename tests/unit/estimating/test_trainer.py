"""What a script with Hugging Face's Trainer adds to the work of a job, compared with sums worked out by hand."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.estimating import memory, trainer
from paretune.estimating.architecture import Architecture, of_config, well_known
from paretune.estimating.counting import Work, describe
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence
from paretune.estimating.memory import MemoryModel, MemoryPrediction
from paretune.estimating.workload import Setting, setting_of
from paretune.specification.job import JobSpec

LLAMA = Architecture(
    parameters=8_000_000_000,
    matrices=7_500_000_000,
    layers=32,
    hidden_size=4096,
    vocabulary=128_256,
    adapted_widths=82_000 * 32,
    kind="llama",
    stored="bf16",
)
POLARITY: dict[str, Any] = {
    "model": "distilbert-base-uncased",
    "dataset": "fancyzhx/amazon_polarity",
    "max_train_samples": 900_000,
    "num_train_epochs": 3.0,
    "max_seq_length": 512,
    "precision": "fp32",
    "per_device_train_batch_size": 32,
    "instance_type": "ml.p3.2xlarge",
}


def setting(known: Architecture | None = None, **changes: Any) -> Setting:
    spec = JobSpec(**{"dataset": "a/b", "max_train_samples": 1600, "instance_type": "ml.p3.2xlarge", **changes})
    built = known or well_known(spec.model, spec.task)
    assert built is not None
    described = setting_of(spec, spec.plan(), built)
    assert described is not None
    return described


def most_bytes(function: Callable[[], object]) -> int:
    """Return the most bytes of new tensors that exist at once while a function runs."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    held: dict[int, int] = {}

    def storages(values: Any) -> list[Any]:
        return [each.untyped_storage() for each in tree_leaves(values) if isinstance(each, torch.Tensor)]

    class Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of PyTorch
        most = 0

        def __torch_dispatch__(self, operator: Any, _: Any, given: Any = (), named: Any = None) -> Any:
            made = operator(*given, **(named or {}))
            before = {storage.data_ptr() for storage in storages((given, named))}  # of views and of results in place
            for storage in storages(made):
                if storage.data_ptr() not in held and storage.data_ptr() not in before:
                    held[storage.data_ptr()] = storage.nbytes()
                    weakref.finalize(storage, held.pop, storage.data_ptr(), None)
            self.most = max(self.most, sum(held.values()))
            return made

    with Tally() as tally:  # type: ignore[no-untyped-call]
        function()
    return tally.most


def work_of(known: Architecture | None = None, **changes: Any) -> Work:
    return describe(setting(known, **changes))


def memory_of(known: Architecture, **changes: Any) -> MemoryPrediction:
    return MemoryModel().predict(memory.describe(setting(known, **changes)))


def gib_of(known: Architecture, **changes: Any) -> float:
    return memory_of(known, **changes).gib


def estimated(**changes: Any) -> Estimate:
    spec = JobSpec(**POLARITY | changes)
    built = well_known(spec.model)
    assert built is not None
    item = Estimator(Evidence()).estimate(spec, built, None)
    assert item is not None
    return item


def test_a_trainer_before_fused_attention_writes_its_scores_and_updates_one_weight_after_another() -> None:
    bert: dict[str, Any] = {"model": "bert-base-uncased", "max_seq_length": 128, "precision": "fp32"}
    bert["per_device_train_batch_size"] = 16  # the default differs
    ours, theirs = work_of(**bert), work_of(**bert, program="trainer-4.x")
    newer = work_of(**bert, program="trainer-4.46")

    scores = 16 * 12 * 128**2 * 12  # rows, heads, a matrix of scores, layers
    assert theirs.moved - ours.moved == pytest.approx(19.5 * 4 * scores)
    assert (theirs.updated, theirs.update_kernels) == (2 * ours.updated, 90 * 12)  # 48 bytes per weight, not 24
    assert newer.moved == pytest.approx(ours.moved)
    assert (newer.updated, newer.update_kernels) == (2 * ours.updated, 41)  # adamw_torch updates lists of tensors
    assert work_of(**bert, program="trainer").updated == ours.updated  # adamw_torch_fused


def test_arguments_of_the_trainer_decide_before_the_defaults_of_its_version() -> None:
    bert: dict[str, Any] = {"model": "bert-base-uncased", "precision": "fp32"}
    plain = work_of(**bert, program="trainer-4.x")
    given = {"optim": "adamw_torch_fused", "attn_implementation": "sdpa"}
    fast = work_of(**bert, program="trainer-4.x", training_arguments=given)

    assert fast.updated == plain.updated / 2
    assert fast.moved < plain.moved


def test_checkpoints_in_the_model_folder_are_packed_as_long_as_those_of_two_public_jobs_were() -> None:
    sst2: dict[str, Any] = {"model": "distilbert-base-uncased", "max_train_samples": 67_349, "precision": "fp32"}
    sst2 |= {"per_device_train_batch_size": 32, "program": "trainer-4.x"}

    def minutes(**arguments: Any) -> float:
        work = work_of(**sst2, training_arguments=arguments)
        return work.packed / 9.3e6 / 60

    model_s, checkpoint_s = 67e6 * 4 / 9.3e6, 67e6 * 12 / 9.3e6
    assert 60 * minutes() == pytest.approx(375, rel=0.02)  # 2,105 steps: four checkpoints and the model
    assert 60 * minutes(save_total_limit=1) == pytest.approx(model_s + checkpoint_s, rel=0.01)
    assert 60 * minutes(save_strategy="no") == pytest.approx(model_s, rel=0.01)
    assert 60 * minutes(save_steps=1000) == pytest.approx(model_s + 2 * checkpoint_s, rel=0.01)
    assert 60 * minutes(output_dir="/opt/ml/checkpoints") == pytest.approx(model_s, rel=0.01)
    assert 60 * minutes(save_strategy="epoch", save_only_model=True) == pytest.approx(2 * model_s, rel=0.01)
    assert work_of(**sst2 | {"program": None}).packed == 0  # paretune's jobs upload their model unpacked


def test_rows_that_a_script_evaluates_during_and_after_its_training_are_counted() -> None:
    distilbert: dict[str, Any] = {
        "model": "distilbert-base-uncased",
        "max_train_samples": 9000,
        "max_eval_samples": 1000,
    }
    distilbert |= {"num_train_epochs": 3.0, "program": "trainer-4.x"}
    once = work_of(**distilbert)  # after the training, as in the examples of Hugging Face
    often = work_of(**distilbert, training_arguments={"eval_strategy": "epoch"})
    tested = work_of(**distilbert, test_rows=5000)

    assert often.evaluated_flops == pytest.approx(4 * once.evaluated_flops)
    assert tested.evaluated_flops == pytest.approx(6 * once.evaluated_flops)


def test_data_parallel_sends_weights_and_gradients_while_arithmetic_waits() -> None:
    job: dict[str, Any] = {"model": "bert-base-uncased", "instance_type": "ml.p3.8xlarge", "precision": "fp32"}
    each, one = work_of(**job, program="trainer-4.x"), work_of(**job, program="trainer-4.x", strategy="dp")

    assert one.blocking_link == pytest.approx(8 * 109_483_778)
    assert one.kernels == pytest.approx(2 * each.kernels)  # the forward pass of four GPUs in turn
    assert each.blocking_link == 0


def test_a_compiled_script_with_fsdp_is_described_and_paretune_s_own_is_refused() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "strategy": "fsdp"}
    compiled = {"training_arguments": {"torch_compile": True}}

    assert work_of(**job, **compiled, program="trainer").kernels < work_of(**job, program="trainer").kernels
    with pytest.raises(BadInput, match="must not set torch_compile with strategy=fsdp"):
        JobSpec(**job, **compiled)


def test_adapters_of_peft_under_fsdp_move_more_bytes_than_those_of_paretune() -> None:
    job: dict[str, Any] = {"task": "causal-lm", "fine_tuning": "lora", "precision": "bf16", "strategy": "fsdp"}
    job |= {"instance_type": "ml.p4de.24xlarge", "max_seq_length": 2048, "per_device_train_batch_size": 1}
    ours, theirs = work_of(LLAMA, **job), work_of(LLAMA, **job, program="trainer-4.46")

    assert theirs.moved - ours.moved == pytest.approx(10 * 3 * 2048 * LLAMA.adapted_widths)


def test_a_model_in_bf16_takes_the_memory_of_the_format_in_which_the_trainer_loads_it() -> None:
    job: dict[str, Any] = {"task": "causal-lm", "instance_type": "ml.p5en.48xlarge", "precision": "bf16"}
    job |= {
        "per_device_train_batch_size": 1,
        "max_seq_length": 512,
        "training_arguments": {"gradient_checkpointing": True},
    }
    newest, before = gib_of(LLAMA, **job, program="trainer"), gib_of(LLAMA, **job, program="trainer-4.46")

    # Weight, moments, gradient and its copy in DDP in fp32 instead of bf16, and foreach's copy of the second moments.
    assert before - newest == pytest.approx((5 * 4 + 4 - 5 * 2) * 8e9 / 2**30, rel=0.01)


def test_scores_that_are_written_are_also_kept_in_memory() -> None:
    bert = well_known("bert-base-uncased")
    assert bert is not None
    job: dict[str, Any] = {"model": "bert-base-uncased", "max_seq_length": 512, "precision": "fp32"}
    job["per_device_train_batch_size"] = 16

    gradients = 4 * bert.parameters / 2**30  # which torch before 2.0 keeps beside the activations
    kept = gib_of(bert, **job, program="trainer-4.x") - gib_of(bert, **job, program="trainer-4.46") - gradients

    assert kept == pytest.approx(9 * 16 * 12 * 512**2 * 12 / 2**30)
    half = job | {"precision": "fp16"}
    kept = gib_of(bert, **half, program="trainer-4.x") - gib_of(bert, **half, program="trainer-4.46") - gradients
    assert kept == pytest.approx(11 * 16 * 12 * 512**2 * 12 / 2**30)  # autocast computes the softmax in fp32
    apex = half | {"training_arguments": {"fp16_opt_level": "O2"}}
    kept = gib_of(bert, **apex, program="trainer-4.x") - gib_of(bert, **apex, program="trainer-4.46")
    kept -= gradients / 2  # apex holds the model in half precision, and its gradients, too
    assert kept == pytest.approx(5 * 16 * 12 * 512**2 * 12 / 2**30)


MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 32_000,
}
MIXTRAL = MISTRAL | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
POWERLM = {  # of ibm/PowerLM-3b
    "model_type": "granite",
    "hidden_size": 2304,
    "num_hidden_layers": 40,
    "num_attention_heads": 36,
    "hidden_act": "silu",
    "num_key_value_heads": 36,
    "intermediate_size": 9216,
    "vocab_size": 49_152,
}


@pytest.mark.parametrize(
    ("config", "fine_tuning", "gpus", "batch", "published_gib"),
    [
        (MISTRAL, "full", 1, 4, 67.46),  # 10 bytes a weight: foreach's copy, and no activations beside it
        (MISTRAL, "full", 1, 8, 67.46),
        (MISTRAL, "full", 2, 4, 33.74),
        (MISTRAL, "lora", 1, 4, 24.87),
        (MISTRAL, "lora", 1, 8, 36.08),
        (MISTRAL, "lora", 2, 4, 20.45),
        (MISTRAL, "qlora", 1, 4, 19.25),
        (MISTRAL, "qlora", 1, 8, 34.46),
        (MISTRAL, "qlora", 2, 4, 14.87),
        (MIXTRAL, "lora", 2, 2, 53.60),  # all experts are in the layers that are gathered one after the other
        (MIXTRAL, "lora", 2, 4, 60.40),
        (MIXTRAL, "qlora", 1, 4, 39.86),
        (MIXTRAL, "qlora", 1, 8, 56.39),
        (MIXTRAL, "qlora", 2, 2, 19.68),
        (MIXTRAL, "qlora", 2, 4, 26.21),
        (POWERLM, "full", 1, 4, 32.72),
        (POWERLM, "full", 1, 8, 43.83),  # the activations are more than the gradients and the copy
        (POWERLM, "full", 2, 2, 16.42),
        (POWERLM, "lora", 1, 8, 30.88),
        (POWERLM, "qlora", 1, 8, 31.83),
    ],
)
def test_the_memory_of_a_trainer_is_that_of_published_peaks(
    config: dict[str, Any], fine_tuning: Any, gpus: int, batch: int, published_gib: float
) -> None:
    """The peaks are those of torch in IBM's fms-acceleration, on A100, with checkpointing and 4,096 tokens."""
    is_tied = config is POWERLM
    built = of_config({**config, "tie_word_embeddings": is_tied, "torch_dtype": "bfloat16"}, "causal-lm")
    assert built is not None
    job: dict[str, Any] = {"task": "causal-lm", "max_seq_length": 4096, "per_device_train_batch_size": batch}
    job |= {"program": "trainer-4.41", "training_arguments": {"gradient_checkpointing": True}}
    job |= {"precision": "bf16-true" if fine_tuning == "full" else "bf16", "fine_tuning": fine_tuning}
    one = memory.describe(setting(built, **job, instance_type="ml.p4de.24xlarge", strategy="fsdp"))
    one = replace(one, sharers=gpus, gathered_bytes=one.gathered_bytes if gpus > 1 else 0.0)
    if gpus == 1:
        alone = memory.describe(setting(built, **job, instance_type="ml.p5.4xlarge"))
        one = replace(alone, usable_gib=one.usable_gib)

    peak = MemoryModel().predict(one)

    assert 0.93 < peak.gib / published_gib < 1.08
    assert peak.gib_low < published_gib < peak.gib_high


def test_the_experts_of_transformers_5_are_no_linear_layers_so_they_stay_in_16_bits() -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = {**MIXTRAL, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "vocab_size": 100, "tie_word_embeddings": False}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.MixtralConfig(**config))
    linear = {name: module.weight.numel() for name, module in model.named_modules() if type(module) is torch.nn.Linear}
    experts = sum(weight.numel() for name, weight in model.named_parameters() if ".experts." in name)
    built = of_config(config, "causal-lm")
    assert built is not None
    job: dict[str, Any] = {"task": "causal-lm", "fine_tuning": "qlora", "instance_type": "ml.p4d.24xlarge"}
    packed = {
        program: setting(built, **job, program=program).work.packed_weights
        for program in ("paretune", "trainer", "trainer-4.46")
    }

    assert (built.experts, built.idle_experts) == (experts, experts * 6 // 8)
    assert packed["paretune"] == packed["trainer"] == sum(linear.values()) - linear["lm_head"]
    assert packed["trainer-4.46"] == packed["trainer"] + experts  # a linear layer for each matrix of an expert


def test_the_memory_of_an_optimizer_is_what_it_allocates() -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    bitsandbytes = pytest.importorskip("bitsandbytes")
    foreach: dict[str, Any] = {"lr": 1e-3, "foreach": True}
    adafactor = {"lr": 1e-3, "scale_parameter": False, "relative_step": False}
    makers: dict[str, Any] = {
        "adamw_torch": lambda weights: torch.optim.AdamW(weights, **foreach),
        "adamw_torch_fused": lambda weights: torch.optim.AdamW(weights, fused=True),
        "sgd": lambda weights: torch.optim.SGD(weights, **foreach),
        "adagrad": lambda weights: torch.optim.Adagrad(weights, **foreach),
        "rmsprop": lambda weights: torch.optim.RMSprop(weights, **foreach),
        "adafactor": lambda weights: transformers.optimization.Adafactor(weights, **adafactor),
        "adamw_8bit": lambda weights: bitsandbytes.optim.AdamW8bit(weights),
        "lion_8bit": lambda weights: bitsandbytes.optim.Lion8bit(weights),
        "lion_32bit": lambda weights: bitsandbytes.optim.Lion(weights),
    }
    tensors, width = 16, 256
    for format_, precision in (("float32", "fp32"), ("bfloat16", "bf16-true")):
        for name, make in makers.items():
            weights = [
                torch.nn.Parameter(torch.randn(width, width).to(getattr(torch, format_))) for _ in range(tensors)
            ]
            optimizer = make(weights)
            for _ in range(2):  # the first step allocates the states
                for weight in weights:
                    weight.grad = torch.randn_like(weight)
                most = most_bytes(optimizer.step)
            states = (value for state in optimizer.state.values() for value in state.values())
            state = sum(value.nbytes for value in states if isinstance(value, torch.Tensor))

            counted = trainer.optimizer_of(
                setting(precision=precision, program="trainer", training_arguments={"optim": name})
            )

            count = tensors * width**2
            assert state / count == pytest.approx(counted.state, abs=0.1), (name, format_)
            copied = counted.copy + counted.of_largest / tensors
            assert most / count == pytest.approx(copied, rel=0.1, abs=0.5), (name, format_)


def test_paged_states_take_no_memory_of_the_gpu_and_embeddings_have_theirs_in_fp32() -> None:
    def of(name: str, **changes: Any) -> memory.MemorySetting:
        return memory.describe(setting(program="trainer", training_arguments={"optim": name}, **changes))

    usual, eight, paged = of("adamw_torch_fused"), of("adamw_8bit"), of("paged_adamw_8bit")

    assert usual.state_bytes - paged.state_bytes == 8
    assert eight.state_bytes - paged.state_bytes == pytest.approx(2 * (1 + 4 / 256))
    bert = well_known(setting().spec.model, setting().spec.task)
    assert bert is not None
    assert eight.fixed_state_bytes == pytest.approx((8 - 2 * (1 + 4 / 256)) * bert.vocabulary * bert.hidden_size)
    assert of("adamw_8bit", fine_tuning="lora").fixed_state_bytes == 0


@pytest.mark.parametrize(
    ("arguments", "instance_type", "flops"),
    [
        ({"tf32": True}, "ml.p4d.24xlarge", 312e12 / 2 * 1.3 / 2),
        ({}, "ml.p4d.24xlarge", 19.5e12 * 0.7),
        ({"tf32": True}, "ml.p3.2xlarge", 15.7e12 * 0.7),  # a V100 has no TF32
    ],
)
def test_tf32_is_a_format_of_its_own_where_the_gpu_has_it(
    arguments: dict[str, Any], instance_type: str, flops: float
) -> None:
    bert: dict[str, Any] = {"model": "bert-base-uncased", "program": "trainer"}
    work = work_of(**bert, instance_type=instance_type, training_arguments=arguments)

    assert work.arithmetic == pytest.approx(flops)
    assert work.constants["chip"].endswith("tf32") is (flops > 2e13)


def test_the_published_bills_of_a_script_with_the_trainer_of_2021_are_inside_and_those_of_paretune_are_not() -> None:
    script = estimated(program="trainer-4.6", test_rows=400_000, training_arguments={"eval_strategy": "epoch"})
    own, billed_s = estimated(), 66_142  # mean of two jobs of a public benchmark

    assert script.time.seconds == pytest.approx(billed_s, rel=0.05)
    assert script.time.seconds_low < billed_s < script.time.seconds_high
    assert own.time.seconds_high < billed_s
    assert script.phases["uploading"].seconds == pytest.approx(4 * 3600, rel=0.1)  # 168 checkpoints and the model


def test_runs_of_a_program_are_evidence_for_the_speed_of_that_program() -> None:
    job = work_of(model="bert-base-uncased", program="trainer-4.x")

    assert job.constants["stack"] == "stack:trainer-4.x"
    assert work_of(model="bert-base-uncased").constants["stack"] == "stack:own"
    assert replace(job, constants={}).steps == 200  # 1,600 rows in batches of 8, the Trainer's default


def decoder(hidden: int, layers: int, wide: int, vocabulary: int, *, ties: bool) -> Architecture:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": wide, "vocab_size": vocabulary}
    heads = {"num_attention_heads": hidden // 128, "num_key_value_heads": 8, "head_dim": 128}
    config = {"model_type": "llama", **sizes, **heads, "tie_word_embeddings": ties, "torch_dtype": "bfloat16"}
    built = of_config(config, "causal-lm")
    assert built is not None
    return built


@pytest.mark.parametrize(
    ("sizes", "job"),
    [
        (  # 3 billion weights on an L40S
            {"hidden": 3072, "layers": 28, "wide": 8192, "vocabulary": 128_256, "ties": True},
            {"instance_type": "ml.g6e.xlarge", "per_device_train_batch_size": 4, "max_seq_length": 768},
        ),
        (  # 0.6 billion weights by DDP on four L40S, without the logits of all tokens
            {"hidden": 1024, "layers": 28, "wide": 3072, "vocabulary": 151_936, "ties": True},
            {
                "instance_type": "ml.g6e.12xlarge",
                "per_device_train_batch_size": 16,
                "max_seq_length": 4096,
                "training_arguments": {"gradient_checkpointing": True, "use_liger_kernel": True},
            },
        ),
        (  # 8 billion weights on a card with 96 GB
            {"hidden": 4096, "layers": 32, "wide": 14_336, "vocabulary": 128_256, "ties": False},
            {
                "instance_type": "ml.g7e.2xlarge",
                "per_device_train_batch_size": 2,
                "max_seq_length": 8192,
                "training_arguments": {"gradient_checkpointing": True},
            },
        ),
    ],
)
def test_a_script_in_bf16_alone_is_not_refused_where_the_same_script_in_fp32_is(
    sizes: dict[str, Any], job: dict[str, Any]
) -> None:
    built = decoder(**sizes)
    job |= {"task": "causal-lm", "program": "trainer-4.49", "max_train_samples": 10_000}

    assert memory_of(built, **job, precision="bf16-true").fits != "no"
    assert memory_of(built, **job | {"training_arguments": {}}, precision="fp32").fits == "no"


@pytest.mark.parametrize("format_", ["bfloat16", "float32"])
def test_transformers_needs_as_many_bytes_for_its_logits_as_the_estimate_counts(format_: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    vocabulary, tokens, width = 20_000, 256, {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**width, **heads, vocab_size=vocabulary))
    model = model.to(getattr(torch, format_))
    rows = torch.randint(0, vocabulary, (1, tokens))

    most = most_bytes(lambda: model(input_ids=rows, labels=rows).loss.backward())

    one = Architecture(
        parameters=1, matrices=1, layers=1, hidden_size=1, vocabulary=vocabulary, adapted_widths=1, kind="llama"
    )
    job: dict[str, Any] = {"task": "causal-lm", "max_seq_length": tokens, "per_device_train_batch_size": 16}
    counted = memory.describe(setting(one, **job, program="trainer", max_train_samples=1600)).logit_bytes
    assert 16 * most == pytest.approx(counted, rel=0.05)
