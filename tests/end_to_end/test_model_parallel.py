"""Ways of dividing a model among processes: they train the same model as one process, and continue from checkpoints."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
)

from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder, JobReport, write_json
from paretune.specification.job import JobSpec
from paretune.training import prepare
from tests.support.instances import SOURCE, check_weights, curves, messages
from tests.support.sentences import sentences, write_csv

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "support" / "several_jobs.py"
FOUR_LAYERS = {"num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 64}
SMALL = {"hidden_size": 32, "intermediate_size": 64, **FOUR_LAYERS}
NO_DROPOUT = {
    "gpt2": {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0},
    "llama": {"num_key_value_heads": 2},
    "gpt_neox": {"hidden_dropout": 0.0, "attention_dropout": 0.0},
}
KINDS = {"gpt2": GPT2Config, "llama": LlamaConfig, "gpt_neox": GPTNeoXConfig}


def make_model(folder: Path, kind: str, tokenizer: Any, **others: Any) -> Path:
    """Write a random model of four layers without dropout to a Hugging Face folder."""
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": tokenizer.pad_token_id}
    config = KINDS[kind](vocab_size=len(tokenizer), **SMALL, **NO_DROPOUT[kind], **special, **others)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def make_job(root: Path, alone: JobSpec, like: JobFolder | None = None, **changes: Any) -> JobFolder:
    """Return a job folder with everything that the training code reads; `like` is a job whose checkpoints it gets.

    It is prepared as the job `alone`, because four processes are refused on a machine with two cores.
    """
    folder, spec = JobFolder(root), alone.replace(**changes)
    folder.make()
    write_json(folder.document, order_of(spec, job_name=root.name).as_json())
    made = prepare._prepare(alone, root.parent / "data")
    for link, target in ((folder.dataset, made["dataset"]), (folder.model_source, made["model"])):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    if like is not None:
        shutil.copytree(like.checkpoints, folder.checkpoints, dirs_exist_ok=True)
    return folder


def run(processes: int, jobs: Sequence[str | JobFolder]) -> None:
    """Run the jobs one after another in one group of processes; `FOLDER@STEP` stops there."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    words = [sys.executable, *launch, str(SCRIPT)]
    words += [job if isinstance(job, str) else str(job.root) for job in jobs]
    values = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(words, env=os.environ | values, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(240)
        finally:
            with suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)
        log.seek(0)
        assert code == 0, log.read()[-15000:]


OWN_ROWS: Mapping[str, Any] = {"per_device_train_batch_size": 4}
"""Each of two processes has two micro-batches per step, which it adds up."""
SAVERS: Mapping[str, Any] = {"training_arguments.gradient_checkpointing": True}
ON_ONE: Mapping[str, Mapping[str, Any]] = {
    "activations": SAVERS,
    "offloaded": {"strategy": "fsdp", "cpu_offload": True},
}
ON_TWO: Mapping[str, Mapping[str, Any]] = {
    "replicated": OWN_ROWS | {"strategy": "ddp", "training_arguments.gradient_checkpointing": True},
    "sharded": OWN_ROWS | SAVERS | {"cpu_offload": True},
    "copies": {"hybrid_shard_degree": 1, "per_device_train_batch_size": 3},  # three micro-batches a step
    "tensor": SAVERS | {"tensor_parallel_degree": 2},
    "pipeline": {"pipeline_parallel_degree": 2, "per_device_train_batch_size": 8},
    "pipeline-offloaded": SAVERS | {"pipeline_parallel_degree": 2, "cpu_offload": True},
}
ON_FOUR: Mapping[str, Mapping[str, Any]] = {
    "hybrid": OWN_ROWS | {"hybrid_shard_degree": 2},
    "tensor-data": OWN_ROWS | {"tensor_parallel_degree": 2},
    "pipeline-data": OWN_ROWS | {"pipeline_parallel_degree": 2},
}
WAYS = {"alone": {}, **ON_ONE, **ON_TWO, **ON_FOUR}
PROCESSES = {name: count for count, ways in ((2, ON_TWO), (4, ON_FOUR)) for name in ways}
CASES = (
    ("llama", "activations"),
    *(("llama", way) for way in ("sharded", "copies", "tensor", "pipeline", "tensor-data")),
    ("gpt2", "offloaded"),
    *(("gpt2", way) for way in ("replicated", "pipeline", "pipeline-offloaded", "hybrid")),
    *(("gpt_neox", way) for way in ("tensor", "pipeline")),
    *(("llama-classifier", way) for way in ("pipeline", "pipeline-data")),
)
RESUMED = (
    ("llama", "tensor", "tensor-data"),
    ("gpt2", "pipeline-offloaded", "pipeline-data"),
    ("gpt2", "sharded", "hybrid"),
)
"""The model, the way that stops, and the way that continues."""
STOPPED_AFTER = 2  # optimizer steps, and an evaluation, after which shards stay gathered


class Jobs:
    """Jobs of tiny models, by model and way; the way `alone` is one process that divides nothing."""

    def __init__(self, root: Path, tokenizer: Any) -> None:
        self._root = root
        self._models = {kind: make_model(root / kind, kind, tokenizer) for kind in KINDS}
        self._spec = JobSpec(
            dataset=str(write_csv(root / "reviews.csv", sentences(80))),
            max_seq_length=32,
            learning_rate=1e-3,
            global_batch_size=16,
            precision="fp32",
            training_arguments={"logging_steps": 1, "eval_steps": 2, "save_strategy": "no"},
        )

    def make(self, name: str, way: str, title: str, like: JobFolder | None = None) -> JobFolder:
        classifies = name == "llama-classifier"
        model = str(self._models[name.partition("-")[0]])
        task = {"task": "classification" if classifies else "causal-lm", "num_train_epochs": 1.0 if classifies else 2.0}
        count = PROCESSES.get(way, 1)
        strategy = {} if count == 1 else {"strategy": "fsdp", "instance_count": count}
        alone = self._spec.replace(model=model, **task)
        return make_job(self._root / f"{name}-{title}", alone, like, **strategy | WAYS[way])


@pytest.fixture(scope="module")
def finished(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, ...], JobFolder]:
    """Return the finished jobs by model and way, and the resumed ones by model and both ways."""
    jobs = Jobs(tmp_path_factory.mktemp("parallel"), AutoTokenizer.from_pretrained(tiny_model))
    whole: dict[tuple[str, ...], JobFolder] = {
        (name, way): jobs.make(name, way, way)
        for name, way in (*((name, "alone") for name in (*KINDS, "llama-classifier")), *CASES)
    }
    stopped = {case: jobs.make(*case[:2], f"{case[1]}-stopped") for case in RESUMED}
    expected = [f"{job.root}@{STOPPED_AFTER}" for job in stopped.values()]
    run(2, [*(job for case, job in whole.items() if PROCESSES.get(case[1]) == 2), *expected])
    resumed = {case: jobs.make(case[0], case[2], "-then-".join(case[1:]), job) for case, job in stopped.items()}
    everything: dict[tuple[str, ...], JobFolder] = {**whole, **resumed}
    for processes in (1, 4):
        run(processes, [job for case, job in everything.items() if PROCESSES.get(case[-1], 1) == processes])
    return everything


@pytest.mark.parametrize(("name", "way"), CASES, ids=str)
def test_a_divided_model_trains_as_in_one_process(
    finished: Mapping[tuple[str, ...], JobFolder], name: str, way: str
) -> None:
    job, alone = finished[name, way], finished[name, "alone"]

    result, expected = (curves(folder) for folder in (job, alone))
    assert {key for _, key in expected} >= {"train/loss", "train/grad_norm", "eval/loss"}
    assert result == pytest.approx(expected, abs=1e-4)
    check_weights(job, alone)
    assert JobReport.model_validate_json(job.report.read_text()).metrics["eval_loss"] == pytest.approx(
        JobReport.model_validate_json(alone.report.read_text()).metrics["eval_loss"], abs=1e-4
    )


@pytest.mark.parametrize(("name", "before", "after"), RESUMED, ids=str)
def test_a_training_goes_on_with_other_devices(
    finished: Mapping[tuple[str, ...], JobFolder], name: str, before: str, after: str
) -> None:
    job, alone = finished[name, before, after], finished[name, "alone"]

    result, expected = (curves(folder) for folder in (job, alone))
    assert messages(job)[0] == f"continuing from checkpoint-{STOPPED_AFTER}"
    left = {key: value for key, value in expected.items() if key[0] > STOPPED_AFTER and key[1].startswith("train/")}
    assert left
    assert {key: value for key, value in result.items() if key[1].startswith("train/")} == pytest.approx(left, abs=1e-4)


@pytest.mark.parametrize(("name", "way"), [("gpt_neox", "tensor"), ("gpt2", "pipeline"), ("llama", "tensor-data")])
def test_the_saved_folder_is_a_plain_model_and_the_largest_process_is_recorded(
    finished: Mapping[tuple[str, ...], JobFolder], name: str, way: str
) -> None:
    job = finished[name, way]

    loaded = AutoModelForCausalLM.from_pretrained(job.model)
    assert type(loaded).__name__ == {"gpt_neox": "GPTNeoXForCausalLM", "gpt2": "GPT2LMHeadModel"}.get(
        name, "LlamaForCausalLM"
    )
    scores = loaded(torch.arange(8)[None]).logits
    reference = AutoModelForCausalLM.from_pretrained(finished[name, "alone"].model)
    assert torch.allclose(scores, reference(torch.arange(8)[None]).logits, atol=1e-3)
    measured = JobReport.model_validate_json(job.report.read_text()).metrics
    assert measured["peak_memory_gib"] > 0
