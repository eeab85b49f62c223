"""Repeats headlines of articles about training on SageMaker with paretune, and shows the error of each.

    python benchmarks/published_claims.py --write

Nothing is trained, and no service is called. The estimates come from data sheets: none knows an earlier job. This is
not a blind test, because the articles were known when paretune's constants were chosen. The commands that simulate a
job of the demo need its table, so they work in a clone.
"""

import argparse
import contextlib
import io
import json
import os
import shlex
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import arguments
import published

from paretune.cli import main as paretune

POLARITY = (
    "--model distilbert-base-uncased --max_train_samples 90000 --max_eval_samples 10000 --num_train_epochs 30 "
    "--max_seq_length 512 --precision fp32 --per_device_train_batch_size 32"
)
SCRIPT = "--program trainer-4.6 --test_rows 400000 --training_arguments.eval_strategy epoch"  # of the benchmark
DEMO = (
    f"{POLARITY.replace('--max_eval_samples 10000 ', '')} --dataset fancyzhx/amazon_polarity --learning_rate 5e-5 "
    "--max_runtime_minutes 600 --launcher simulated --simulation.runs studies/demo_rehearsal.csv"
)
PAYMENTS = (  # of a bookkeeping company: short texts; the number of rows is ours
    "estimate --model bert-base-uncased --max_train_samples 2000000 --num_train_epochs 3 --max_seq_length 128 "
    "--precision fp32 --per_device_train_batch_size 32 --program trainer-4.12 --max_runtime_minutes 3000"
)
ONE_GPU = f"{PAYMENTS} --instance_type ml.p3.2xlarge"
EIGHT_GPUS = f"{PAYMENTS} --strategy smddp --instance_type ml.p3.16xlarge"
ONE_LINE = (
    "estimate --model distilbert-base-uncased --max_train_samples 540000 --max_eval_samples 60000 --max_seq_length 512 "
    "--per_device_train_batch_size 32 --num_train_epochs 60 --instance_type ml.p4d.24xlarge --instance_count 1,2,4,8 "
    "--max_runtime_minutes 200"
)
CHECKPOINTS = """--training_arguments '{"gradient_checkpointing": true}'"""
GPT3 = (
    "estimate --model gpt3-175b --task causal-lm --max_train_samples 100000 --max_seq_length 2048 --strategy fsdp "
    f"--precision bf16 {CHECKPOINTS} --instance_type ml.p4d.24xlarge --instance_count 120 --per_device_train_batch_size"
)
FALCON = (
    "estimate --model falcon-40b --task causal-lm --fine_tuning qlora --strategy fsdp --max_train_samples 10000 "
    f"--max_seq_length 512 --per_device_train_batch_size 1 --instance_type ml.g5.12xlarge {CHECKPOINTS}"
)
NEOX = (
    "estimate --model EleutherAI/gpt-neox-20b --task causal-lm --strategy fsdp --max_train_samples 57000 "
    f"--max_seq_length 2048 --per_device_train_batch_size 1 --precision bf16 {CHECKPOINTS} "
    "--instance_type ml.p4d.24xlarge --instance_count 2"
)
REPOSITORY = Path(__file__).parents[1]
AWS_2021 = "AWS 2021, DistilBERT on Amazon Polarity"
FREEAGENT = "FreeAgent 2022, BERT on bank transactions"
AWS_2022 = "AWS 2022, data parallelism in one line"


@dataclass(frozen=True)
class Claim:
    """A headline: what a source says, the command that repeats it, and the field of its answer that is compared.

    `published` is a number in the unit of `field`, or "fits" if the source says that the job fits in memory. `slower`
    is the command of the job with which a speed-up is compared.
    """

    source: str
    text: str
    published: float | str
    field: str  # seconds (of the bill), training_seconds, cost_usd, rate (samples/s of training), speedup, or fits
    command: str
    row: int = 0  # of the answer, in the order of the command's values
    slower: str | None = None


def of_clusters() -> list[Claim]:
    """Return the claims about billed time and dollars of the benchmark of 2021 (100,000 rows)."""
    clusters = (
        ("ml.p3.2xlarge", 1, 18 * 3600 + 11 * 60, 69.52),
        ("ml.p3.16xlarge", 2, 81 * 60, 76.33),
        ("ml.p3.16xlarge", 4, 53 * 60, 99.86),
    )
    result = []
    for kind, count, seconds, usd in clusters:
        strategy, place = "" if count == 1 else " --strategy smddp", f"--instance_type {kind} --instance_count {count}"
        for job, how in (
            (f"estimate {POLARITY} {SCRIPT}{strategy}", ""),
            (f"estimate {POLARITY}", " by paretune's training"),
        ):
            for name, value in (("seconds", float(seconds)), ("cost_usd", usd)):
                result.append(Claim(AWS_2021, f"{count} x {kind}{how}", value, name, f"{job} {place}"))
    for kind, count, seconds, usd in clusters[1:]:  # the demo has no single GPU
        job = f"train {DEMO} --instance_type {kind} --instance_count {count}"
        for name, value in (("seconds", float(seconds)), ("cost_usd", usd)):
            result.append(Claim(AWS_2021, f"{count} x {kind} in the demo", value, name, job))
    return result


CLAIMS = (
    *of_clusters(),
    Claim(FREEAGENT, "1 x ml.p3.2xlarge", 30 * 3600.0, "seconds", ONE_GPU),
    Claim(FREEAGENT, "1 x ml.p3.16xlarge", 5 * 3600.0, "seconds", EIGHT_GPUS),
    Claim(FREEAGENT, "8 GPUs instead of 1", 6.0, "speedup", EIGHT_GPUS, slower=ONE_GPU),
    *(
        Claim(AWS_2022, f"{count} x ml.p4d.24xlarge", minutes * 60, "training_seconds", ONE_LINE, row)
        for row, (count, minutes) in enumerate(((1, 99.0), (2, 55.0), (4, 27.0), (8, 13.5)))
    ),
    *(
        Claim("AWS and Hugging Face 2022, GPT-3 175B", f"960 A100, {text}", 32.0, "rate", f"{GPT3} {more}")
        for text, more in (
            ("1 row per GPU", "1"),
            ("2 rows per GPU", "2"),
            ("4 rows per GPU, inputs of layers in main memory", "4 --activation_offloading true"),
        )
    ),
    Claim("AWS 2023, Falcon-40B with QLoRA", "4 x 24 GB", "fits", "fits", FALCON),
    Claim("AWS 2023, GPT-NeoX-20B with FSDP", "2 x ml.p4d.24xlarge", "fits", "fits", NEOX),
)


def answer(command: str) -> Any:
    """Return the JSON document that a command prints. Ends the benchmark with its message if it is refused."""
    words = shlex.split(command.replace("studies/", f"{REPOSITORY}/studies/"))
    output, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages):
        code = paretune([*words, "--json"])
    if code:
        raise SystemExit(f"paretune {shlex.join(words)} ended with {code}: {messages.getvalue()}")
    return json.loads(output.getvalue())


def ours(claim: Claim, document: Any, slower: Any = None) -> float | str:
    """Return our value of a claim; `slower` is the answer of the job with which a speed-up is compared."""
    if "rows" not in document:  # of a job
        name = "billable_seconds" if claim.field == "seconds" else claim.field
        return float(document["metrics"][name])
    row = sorted(document["rows"], key=lambda row: row["instance_count"])[claim.row]
    if claim.field == "rate":
        return float(row["global_batch_size"] / row["seconds_per_step"])
    if claim.field == "speedup":
        return float(slower["rows"][0]["seconds"] / row["seconds"])
    return str(row["fits"]) if claim.field == "fits" else float(row[claim.field])


def is_inside(claim: Claim, document: Any) -> bool:
    """Return whether a published figure is inside our 80 % interval, or has none: a speed-up, or a job that was run."""
    assert isinstance(claim.published, float)
    if "rows" not in document or claim.field == "speedup":
        return True
    row = sorted(document["rows"], key=lambda row: row["instance_count"])[claim.row]
    if claim.field == "rate":
        seconds = row["global_batch_size"] / row["seconds_per_step"] / claim.published * row["seconds"]
        return bool(row["seconds_low"] <= seconds <= row["seconds_high"])
    return bool(row[f"{claim.field}_low"] <= claim.published <= row[f"{claim.field}_high"])


def shown(claim: Claim, value: float | str) -> str:
    """Return a value of a claim as people read it."""
    if isinstance(value, str):
        return {"yes": "fits", "no": "does not fit"}.get(value, value)
    if claim.field.endswith("seconds"):
        minutes = value / 60
        return f"{minutes:.3g} min" if minutes < 60 else f"{int(minutes // 60)} h {round(minutes % 60)} min"
    if claim.field == "speedup":
        return f"{value:.1f} x"
    return f"{value:.2f} USD" if claim.field == "cost_usd" else f"{value:.3g} samples/s"


def lines(claims: tuple[Claim, ...]) -> list[str]:
    """Return the table, and under it the command of each row."""
    commands, rows, answered = [*dict.fromkeys(claim.command for claim in claims)], list[list[str]](), cache(answer)
    for claim in claims:
        slower = None if claim.slower is None else answered(claim.slower)
        document = answered(claim.command)
        value = ours(claim, document, slower)
        error = ""
        if isinstance(claim.published, float) and isinstance(value, float):
            error = f"{value / claim.published - 1:+.0%}{'' if is_inside(claim, document) else '!'}"
        fits = str(document["rows"][0]["fits"]) if claim.field == "rate" else ""
        found = shown(claim, value) + (f", memory: {fits}" if fits else "")
        number = str(commands.index(claim.command) + 1)
        rows.append([claim.source, claim.text, shown(claim, claim.published), found, error, number])
    header = ["source", "claim", "published", "paretune", "error", "command"]
    typed = [f"paretune {command}  # {number}" for number, command in enumerate(commands, 1)]
    return [*published.table(header, rows), "", "```bash", *typed, "```"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=len(CLAIMS), help="how many claims to repeat")
    given = arguments.parse(parser, claims=2)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ |= {
            "PARETUNE_HOME": folder,
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
            "HF_HUB_OFFLINE": "1",
        }
        os.environ["PARETUNE_PROFILE"] = ""
        os.environ.pop("PARETUNE_PRICES", None)
        table = lines(CLAIMS[: given.claims])
    print(published.conditions("mlflow"))
    print(published.block("published_claims", table))
