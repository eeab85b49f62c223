"""Compare predicted training rates with rates that others have published.

    python benchmarks/estimate_error_cold.py                     # the two tables of benchmarks/tables
    python benchmarks/estimate_error_cold.py --table rates.csv   # other tables with the same columns

Each row is predicted twice: from data sheets alone; and with the rows of all other sources known. Published memory is
compared with the formula, and with the estimate of whether the job fits. Predicted rates count training steps only;
`note` marks the published figures whose time also includes evaluations or compilation.

Rows in tf32 are left out, and so are pretraining runs of BERT with packed rows and the optimizer LAMB: paretune
supports neither.

Columns: model, layers, hidden_size, sequence_length, precision, strategy, per_device_batch, accumulation,
instance_type, instance_count, published_rate, unit (sequences/s or tokens/s over all devices), source. Optional
columns: config (content of config.json), task, fine_tuning, lora_rank, checkpointing, compiler,
`optim`), facts (of an instance type that SageMaker does not have), published_memory_gib, memory_note, note. Without a
config, models named mpt-* are decoders with 50,368 tied embeddings, and others are encoders with 30,522 embeddings.
"""

import argparse
import csv
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import arguments
import published
from scipy.stats import t as student

from paretune.core.errors import BadInput
from paretune.core.noise import Z80
from paretune.estimating import timing
from paretune.estimating.architecture import of_config
from paretune.estimating.counting import Work, describe
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence
from paretune.estimating.timing import Measurement, fit
from paretune.estimating.workload import setting_of
from paretune.specification import catalog
from paretune.specification.job import JobSpec

TABLES = [
    Path(__file__).parent / "tables" / name for name in ("published_throughput.csv", "published_throughput_2.csv")
]
ROWS = 10_000_000
"""Training rows of a predicted job, so many that all other phases are negligible."""
SOURCES_OF_PRIOR = 4
"""Number of sources as much as which the deviation of all sources counts in that of each kind. A guess."""
UNMEASURED = 1.5
"""Deviation of a kind of job that no source has measured, relative to that of all sources. A guess: data sheets of
chips deviate 1.8 times as much as those of chips with a measured rate (`unmeasured` and `chip` in timing._PRIORS)."""
NOT_COMPARABLE = ("not comparable", "offloaded")
"""Parts of the `memory_note` of jobs whose memory cannot be compared with that of a job of paretune."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A published rate, as seconds per step, with paretune's estimate from data sheets."""

    row: Mapping[str, str]
    spec: JobSpec
    work: Work
    step_seconds: float
    estimate: Estimate

    @property
    def source(self) -> str:
        """The name of its publisher."""
        return self.row["source"].partition(":")[0]

    @property
    def configuration(self) -> tuple[Mapping[str, object], str]:
        """The content of the model's config.json, and the task."""
        return configuration(self.row)

    @property
    def is_llm(self) -> bool:
        """Whether the model is a causal language model."""
        return self.spec.task == "causal-lm"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A predicted rate divided by the published one, and the half-width of the interval as a factor."""

    rate: Rate
    ratio: float
    width: float

    @property
    def is_inside(self) -> bool:
        """Whether the published rate is inside the predicted interval."""
        return 1 / self.width <= self.ratio <= self.width


FITTED_ON = (
    *("Lambda", "MosaicML", "QwenLM", "philschmid fine-tune", "NVIDIA dgxc"),
    *(f"Pollux OSDI21 g4dn.12xlarge BERT SQuAD {nodes}" for nodes in ("1 node", "2 to 4")),
)
"""Beginnings of the names of sources on which constants were chosen. Only the other sources judge the constants."""
_OPTIM, _APEX = "training_arguments.optim", "training_arguments.fp16_opt_level"
_PROGRAMS: Mapping[str, Mapping[str, object]] = {
    "Lambda": {"program": "trainer-4.x", _OPTIM: "adamw_apex_fused", _APEX: "O2"},
    "NVIDIA DeepLearningExamples BERT TF": {"program": "trainer-4.x", _OPTIM: "adamw_hf"},
    "NVIDIA DeepLearningExamples BERT Py": {"program": "trainer-4.x", _OPTIM: "adamw_apex_fused", _APEX: "O2"},
    "Pollux": {"program": "trainer-4.x", _OPTIM: "adamw_hf"},
    "Hugging Face run_": {"program": "trainer-4.x", _OPTIM: "adamw_hf"},
    "philschmid pytorch": {"program": "trainer-4.26", _OPTIM: "adamw_torch_fused"},
    "NVIDIA dgxc-benchmarking": {"program": "trainer-4.46"},
}
"""Programs of the sources whose training differs from paretune's, by the beginning of the source's name. Not all of
them are the Trainer: these trained encoders before attention had fused kernels, and the optimizers of Pollux
(benchmark/models/bert/run_squad.py in github.com/petuum/adaptdl) and of the Trainer updated one weight after another.
Sources that are not listed are predicted as paretune's own training."""
_BY_PCIE = ("Lambda", "ml.p3.16xlarge")
"""A source, and the instance type in its rows for servers with eight V100 but without NVLink. There, BERT large in fp16
needs 0.17 s per step to exchange 2.35 GB."""
_PCIE_BYTES_PER_S = 16e9  # PCIe of the third generation
_IN_BF16_ALONE = "IBM fms-acceleration A100 full"
"""A source whose scenarios.yaml has `torch_dtype: bfloat16` and no `bf16: True` for full fine-tuning, so that weights,
gradients and moments are bf16."""
_FUSES_THE_LOSS = "MosaicML"
"""The source whose loss function does not keep all logits of a batch (llm-foundry's fused cross entropy), as ours."""
GROUPS: Mapping[str, Callable[[Rate], bool]] = {
    "small models on one GPU": lambda rate: not rate.is_llm and rate.work.devices * rate.work.instances == 1,
    "small models on several GPUs of a machine": lambda rate: (
        not rate.is_llm and rate.work.devices > 1 == rate.work.instances
    ),
    "several machines by TCP": lambda rate: rate.work.constants["network"] == "tcp",
    "several machines with EFA": lambda rate: rate.work.constants["network"] == "efa",
    "LLMs on one machine": lambda rate: rate.is_llm and rate.work.instances == 1,
}


def configuration(row: Mapping[str, str]) -> tuple[Mapping[str, object], str]:
    """Return the content of the model's config.json, and the task."""
    if row.get("config"):
        return json.loads(row["config"]), row["task"]
    layers, hidden = int(row["layers"]), int(row["hidden_size"])
    if row["model"].startswith("mpt"):
        sizes = {"d_model": hidden, "n_layers": layers, "max_position_embeddings": 2048}
        return {"model_type": "mpt", **sizes, "vocab_size": 50_368, "tie_word_embeddings": True}, "causal-lm"
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": 4 * hidden}
    return {"model_type": "bert", **sizes, "vocab_size": 30_522}, "classification"


def job(row: Mapping[str, str], task: str) -> JobSpec:
    """Return the job that a row describes."""
    for name, facts in json.loads(row.get("facts") or "{}").items():
        catalog.instances()[name] = catalog.Instance(
            instance_type=name,
            accelerator=f"NVIDIA {facts['gpu']}",
            accelerator_count=facts["gpus"],
            accelerator_memory_gib=facts["gpu_memory_gib"],
            network_gbps=facts["network_gbps"],
            vcpus=facts["vcpus"],
            memory_gib=facts["memory_gib"],
            launcher="sagemaker",
        )
    arguments: dict[str, object] = {"gradient_checkpointing": True} if row.get("checkpointing") == "yes" else {}
    arguments |= {"torch_compile": True} if row.get("compiler") == "inductor" else {}
    values = {
        "model": row["model"],
        "dataset": "published",
        "task": task,
        "max_train_samples": ROWS,
        "max_eval_samples": 1,
        "max_seq_length": row["sequence_length"],
        "per_device_train_batch_size": row["per_device_batch"],
        "gradient_accumulation_steps": row["accumulation"],
        "fine_tuning": row.get("fine_tuning") or "full",
        "lora.r": row.get("lora_rank"),
        "training_arguments": arguments,
    }
    same = ("instance_type", "instance_count", "strategy", "precision")
    bf16_alone = {"precision": "bf16-true"} if row["source"].startswith(_IN_BF16_ALONE) else {}
    program = next((dict(given) for name, given in _PROGRAMS.items() if row["source"].startswith(name)), {})
    program |= {"training_arguments.save_strategy": "no"} if program else {}
    return JobSpec.read(values | {name: row[name] for name in same} | bf16_alone | program)


def read(paths: Sequence[Path]) -> list[Rate]:
    """Return the rates of the tables, without the rows that paretune could not train."""
    rows = (row for path in paths for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    rates = list[Rate]()
    for row in filter(_is_comparable, rows):
        try:
            rates.append(_rate(Estimator(Evidence()), row))
        except BadInput as error:
            print(f"left out, {row['source']}, {row['model']}: {error}")
    return rates


def _is_comparable(row: Mapping[str, str]) -> bool:
    """Return whether paretune could train this row: its number format is supported, and it is not pretraining."""
    is_tf32 = "tf32" in (row.get("note") or "").lower() or row["precision"] not in {"fp32", "bf16", "fp16", "bf16-true"}
    return not is_tf32 and "pretraining" not in row["model"]


def _rate(cold: Estimator, row: Mapping[str, str]) -> Rate:
    config, task = configuration(row)
    built, spec = of_config(config, task), job(row, task)
    assert built is not None
    built = replace(built, changes_logits=not row["source"].startswith(_FUSES_THE_LOSS))  # the others keep all logits
    setting, estimate = setting_of(spec, spec.plan(), built), cold.estimate(spec, built, None)
    assert setting is not None
    assert estimate is not None
    work = describe(setting, stack=row["source"])
    if row["source"].startswith(_BY_PCIE[0]) and row["instance_type"] == _BY_PCIE[1]:
        work = replace(work, link=_PCIE_BYTES_PER_S)
    rows_per_second = float(row["published_rate"]) / (spec.max_seq_length if row["unit"] == "tokens/s" else 1)
    step_seconds = spec.plan().global_batch_size / rows_per_second
    return Rate(row=row, spec=spec, work=work, step_seconds=step_seconds, estimate=estimate)


def forecasts(rates: Sequence[Rate], earlier: Sequence[Rate]) -> list[Forecast]:
    """Predict the rates from the `earlier` ones."""
    if not rates:
        return []
    model = fit([Measurement(work=item.work, step_seconds=item.step_seconds, origin="published") for item in earlier])
    predictions = model.predict([rate.work for rate in rates])
    return [
        Forecast(rate=rate, ratio=rate.step_seconds / item.step_seconds, width=item.seconds_high / item.seconds)
        for rate, item in zip(rates, predictions, strict=True)
    ]


def calibration(rates: Sequence[Rate], *, but: str = "") -> dict[str, tuple[int, int, float]]:
    """Return `timing.CALIBRATION`, from the sources that constants were chosen on, without the source `but`.

    For each kind of job: the number of rates, the number of sources, and the factor. The mean square of the deviations
    of a source counts once, relative to the spreads of the priors. In it, an outlier has little influence.
    """
    with mock.patch.dict(timing.CALIBRATION, clear=True):
        known = [rate for rate in rates if rate.source.startswith(FITTED_ON) and rate.work.kind]
        made = forecasts([rate for rate in known if rate.source != but], [])
    of_kind: dict[str, dict[str, list[float]]] = {kind: {} for kind in timing.CALIBRATION}
    for item in made:
        square = (math.log(item.ratio) / math.log(item.width) * Z80) ** 2
        of_kind[item.rate.work.kind].setdefault(item.rate.source, []).append(square)
    means = {
        kind: [statistics.mean(square * _weight(square) for square in squares) for squares in of_source.values()]
        for kind, of_source in of_kind.items()
    }
    of_all = statistics.mean(mean for values in means.values() for mean in values)
    factors = {}
    for kind, values in means.items():
        count = SOURCES_OF_PRIOR + len(values)
        deviation = math.sqrt((SOURCES_OF_PRIOR * of_all + sum(values)) / count)
        factor = deviation * float(student.ppf(0.9, count)) / Z80 * (1.0 if values else UNMEASURED)
        factors[kind] = sum(map(len, of_kind[kind].values())), len(values), round(factor, 2)
    return factors


def _weight(square: float) -> float:
    """Return the weight of a squared deviation, as in a fit with a t distribution of four degrees of freedom."""
    return 5.0 / (4.0 + square)


def calibration_table(rates: Sequence[Rate]) -> list[str]:
    """Return a table of the factors of the intervals."""
    header = ["kind of job", "rates", "sources", "factor"]
    rows = calibration(rates).items()
    return published.table(header, [[kind, f"{n}", f"{sources}", f"{made:.2f}"] for kind, (n, sources, made) in rows])


def summary(name: str, made: Sequence[Forecast]) -> list[str]:
    """Return a row of a table: median ratio, mean error of seconds, number inside the interval, and half-width."""
    ratios = [item.ratio for item in made]
    error = statistics.mean(abs(1 / ratio - 1) for ratio in ratios)
    inside = f"{sum(item.is_inside for item in made)} of {len(made)}"
    width = math.exp(statistics.mean(math.log(item.width) for item in made))
    return [name, f"{statistics.median(ratios):.2f}", f"{error:.0%}", inside, f"x {width:.2f}"]


def tables(rates: Sequence[Rate]) -> list[str]:
    """Return tables of errors by group and by source, from data sheets and from known rows, and a line on memory."""
    header = ["predicted rate / published rate", "median", "mean error", "in the 80 % interval", "its half-width"]
    cold = forecasts(rates, [])
    groups = {name: [item for item in cold if holds(item.rate)] for name, holds in GROUPS.items()}
    lines = ["From data sheets alone:", ""]
    lines += published.table(header, [summary(name, made) for name, made in groups.items() if made])
    sources = dict.fromkeys(rate.source for rate in rates)
    by_source = {source: [item for item in cold if item.rate.source == source] for source in sources}
    lines += ["", "The same by source:", ""]
    lines += published.table(header, [summary(source, made) for source, made in by_source.items()])
    apart: list[Forecast] = []
    rows = []
    for source in sources:
        others = [rate for rate in rates if rate.source != source]
        made = forecasts([rate for rate in rates if rate.source == source], others)
        rows.append(summary(source, made))
        apart += made
    of_groups = {name: [item for item in apart if holds(item.rate)] for name, holds in GROUPS.items()}
    rows += [summary(name, made) for name, made in of_groups.items() if made]
    lines += ["", "All other sources known, each source left out in turn:", "", *published.table(header, rows)]
    return [*lines, "", memory(rates)]


def memory(rates: Sequence[Rate]) -> str:
    """Describe the error of the memory formula, and the number of jobs that it wrongly calls too large."""
    peaks = [rate for rate in rates if rate.row.get("published_memory_gib")]
    alike = [rate for rate in peaks if not any(note in rate.row["memory_note"] for note in NOT_COMPARABLE)]
    errors = [
        memory.gib / float(rate.row["published_memory_gib"]) - 1
        for rate in alike
        if (memory := rate.estimate.memory) is not None
    ]
    refused = [rate for rate in rates if rate.estimate.fits == "no"]
    sentence = f"{len(refused)} of {len(rates)} jobs, all of which have run, are said not to fit."
    median, worst = statistics.median(map(abs, errors)), max(errors, key=abs)
    return f"Memory by formula is {median:.0%} off (median of {len(errors)}, the worst {worst:+.0%}). {sentence}"


def main() -> None:
    """Print a line for each published rate, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, action="append", help="CSV of published rates; may be repeated")
    parser.add_argument("--most", type=int, help="maximum number of rows per source; default: all")
    chosen = arguments.parse(parser, most=2)
    rates = read(chosen.table or TABLES)
    if chosen.most is not None:
        sources = dict.fromkeys(rate.source for rate in rates)
        rates = [rate for name in sources for rate in [item for item in rates if item.source == name][: chosen.most]]
    print("predicted rate over the published one, and the half-width of the stated 80 % interval")
    for item in forecasts(rates, []):
        row, spec = item.rate.row, item.rate.spec
        label = f"{row['model']} {row['precision']} {spec.fine_tuning}, {spec.instance_count} x {spec.instance_type}, "
        label += f"{row['per_device_batch']} x {row['sequence_length']} tokens"
        print(f"  {label:70} {item.ratio:5.2f}  (x {item.width:.2f}){'' if item.is_inside else '  outside'}")
    made = f"{published.conditions('paretune')}:"
    print(published.block("estimate_error_cold", [made, "", *tables(rates)]))


if __name__ == "__main__":
    main()
