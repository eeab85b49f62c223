"""Names and units of the recorded metrics, and the metrics of each task.

A metric that was not measured is absent; it is never 0 or NaN. For every job, `jobs.bill` computes `cost_usd`, and all
measured seconds except `train_seconds`. For paretune's own training, `training.job` computes `train_seconds` and the
metrics of speed, memory and quality, and `training.rows` the baselines. `commands.reconcile` reads the dollars of AWS's
bill.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

F1 = "f1"  # F1 of the returned model on the validation split: macro over classes or labels, or of whole entities
ACCURACY = "accuracy"  # share of validation rows with the right class, or of words with the right label
F1_MICRO = "f1_micro"  # micro-averaged F1: each pair of validation row and label counts equally
SUBSET_ACCURACY = "subset_accuracy"  # share of validation rows with all labels right
THROUGHPUT_SAMPLES = "throughput_samples_per_second"
"""Training rows per second across all devices, excluding warm-up steps and evaluation."""
THROUGHPUT_TOKENS = "throughput_tokens_per_second"  # tokens of text per second, without padding
TRAIN_SECONDS = "train_seconds"  # wall time of the training loop, excluding evaluation, checkpoints and profiled steps
JOB_SECONDS = "job_seconds"  # wall time of the job, from start to end
BILLABLE_SECONDS = "billable_seconds"  # seconds billed per instance
STARTING_SECONDS = "starting_seconds"  # from creation to the first download, including waits for capacity; not billed
DOWNLOADING_SECONDS = "downloading_seconds"
"""Download of the data and, for jobs since December 2023, also of the image; billed."""
UPLOADING_SECONDS = "uploading_seconds"  # packing and uploading the job's results; billed
WARM_POOL_SECONDS = "warm_pool_seconds"
"""Seconds billed per instance after the job, while its instances were kept for the next one."""
COST_USD = "cost_usd"  # dollars of all attempts, and of instances kept after the job once they are released
PICK_F1 = "pick_f1"  # mean F1 of the configuration that a study recommends first
PICK_COST_USD = "pick_cost_usd"
"""Dollars of one job with the configuration that a study recommends first; the study's cost_usd covers all its jobs."""
BILLED_USD = "billed_usd"
"""Unblended cost in AWS's bill, including storage, before tax, credits and the fees of Savings Plans."""
EFFECTIVE_USD = "effective_usd"
"""Like billed_usd, after Savings Plans, reservations and private rates."""
OF_THE_BILL = frozenset({COST_USD, WARM_POOL_SECONDS, BILLED_USD, EFFECTIVE_USD})  # no job reports them itself
OF_PARETUNE = "paretune."  # prefix of paretune's own tags; no metric of a job has it
MFU = "mfu"  # model FLOPs utilization: FLOP/s of the training run, divided by the peak FLOP/s of its devices
PEAK_MEMORY_GIB = "peak_memory_gib"
"""Peak memory of one GPU, or of the largest process if there is no GPU."""
EVAL_LOSS = "eval_loss"  # mean cross-entropy in nats on the validation split
PERPLEXITY = "perplexity"  # exp(eval_loss) of a causal language model
BASELINE_MAJORITY = "baseline_f1_majority"
"""Macro F1 of always predicting the most frequent class, or set of labels, on the same rows."""
BASELINE_TFIDF = "baseline_f1_tfidf"  # macro F1 of logistic regression on TF-IDF features, on the same rows
BASELINE_WORDS = "baseline_f1_words"
"""F1 of entities if each word gets its most frequent label."""
TRAINABLE_PARAMETERS = "trainable_parameters"  # parameters that the optimizer changes
TOTAL_PARAMETERS = "total_parameters"  # all parameters of the model
SKIPPED_STEPS = "skipped_steps"
"""Steps that changed no weight, because their gradients were not finite numbers; absent if there were none."""
DROPPED_ROWS = "dropped_rows"  # rows that missing_rows=drop left out
TRUNCATED_SHARE = "truncated_share"  # share of training rows longer than max_seq_length
KEPT_SHARE = "kept_share"  # share of the training rows' tokens within max_seq_length
LENGTH_FOR_MOST_TOKENS = "length_for_95_percent"  # tokens: max_seq_length that would keep 95 % of the tokens
LEARNED_SHARE = "learned_share"  # share of the tokens of conversations that count in the loss
UNLEARNED_ROWS = "unlearned_rows"  # training conversations without a token to learn within max_seq_length
ESTIMATED_SECONDS = "estimated_seconds"
"""Billable seconds predicted before the job; `_low` and `_high` bound an 80 % interval."""
ESTIMATED_COST_USD = "estimated_cost_usd"  # dollars predicted before the job
ESTIMATED_MEMORY_GIB = "estimated_memory_gib"  # peak memory predicted before the job
LAYERS = "layers"  # layers of the model
HIDDEN_SIZE = "hidden_size"  # width of the model's layers
VOCABULARY = "vocabulary"  # tokens that the model knows
MATRIX_PARAMETERS = "matrix_parameters"  # parameters in matrices, which cost time in each step
TRAIN_PADDED_TOKENS = "train_padded_tokens"
"""Tokens of the training rows with the padding that a GPU computes in batches of 16 rows."""

SCRIPT_METRICS = {
    "eval_f1": F1,
    "eval_macro_f1": F1,
    "eval_f1_macro": F1,
    "train_runtime": TRAIN_SECONDS,
    "train_samples_per_second": THROUGHPUT_SAMPLES,
    "train_tokens_per_second": THROUGHPUT_TOKENS,
}
"""Names that users' scripts give to our metrics. All other metrics keep their names."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The metrics of a task.

    To add a task, change these places as well:
    - the choices of `JobSpec.task`
    - each function of `training.tasks`: its last branch covers all tasks that the function does not name
    - `training.model`: the head of the model, even if the task has no labels
    - `training.rows`, and `inputs` and `rules` of `specification`: the texts and labels of the task
    - `studies.definition.objectives`: the objective of a study
    - `jobs.outcome`: the verdict on a result
    - `jobs.model` and `training.mlflow_model`: the pipeline that serves the model

    A higher value of `baseline` and of `trivial` must mean a better model.
    """

    measures: tuple[str, ...]  # metrics of an evaluation besides the loss; jobs are compared by the first one
    baseline: str | None = None  # metric that holds the quality of a model that counts words; None if not computed
    trivial: str | None = None  # metric that holds the quality of a constant prediction; None if not computed

    @property
    def quality(self) -> str:
        """The metric that jobs are compared by."""
        return self.measures[0]


CLASSIFICATION, MULTI_LABEL = "classification", "multi-label"
CAUSAL_LM, TOKEN_CLASSIFICATION = "causal-lm", "token-classification"
TASKS: Mapping[str, Task] = {
    CLASSIFICATION: Task(measures=(F1, ACCURACY), baseline=BASELINE_TFIDF, trivial=BASELINE_MAJORITY),
    MULTI_LABEL: Task(measures=(F1, F1_MICRO, SUBSET_ACCURACY), baseline=BASELINE_TFIDF, trivial=BASELINE_MAJORITY),
    CAUSAL_LM: Task(measures=(PERPLEXITY,)),
    TOKEN_CLASSIFICATION: Task(measures=(F1, ACCURACY), baseline=BASELINE_WORDS),
}
"""Values of the parameter `task`, and their metrics."""
SHOWN: Mapping[str, tuple[str, str]] = {
    F1: ("F1 (macro, validation)", "{:.4f}"),
    BASELINE_TFIDF: ("TF-IDF + logistic regression", "{:.4f}"),
    BASELINE_MAJORITY: ("most frequent class", "{:.4f}"),
    BASELINE_WORDS: ("most frequent label of each word", "{:.4f}"),
    "test_f1": ("F1 (macro, test)", "{:.4f}"),
    F1_MICRO: ("F1 (micro, validation)", "{:.4f}"),
    SUBSET_ACCURACY: ("rows with all labels right", "{:.1%}"),
    PERPLEXITY: ("perplexity", "{:.2f}"),
    THROUGHPUT_SAMPLES: ("throughput", "{:,.1f} samples/s"),
    TRAIN_SECONDS: ("training", "s"),
    JOB_SECONDS: ("whole job", "s"),
    COST_USD: ("cost", "USD"),
    TRUNCATED_SHARE: ("truncated texts", "{:.1%}"),
    SKIPPED_STEPS: ("steps with gradients that are not finite", "{:,.0f}"),
}
"""Label and format of each metric in the table of a finished job, in the order of the table; a duration's format is
`s`, that of dollars `USD`."""
OF_MODELS = (F1, "test_f1", F1_MICRO, SUBSET_ACCURACY, PERPLEXITY)
"""Metrics in SHOWN that a user's own training may compute in another way than paretune's."""
RENAMED = {TOKEN_CLASSIFICATION: ("macro", "entities"), MULTI_LABEL: ("frequent class", "frequent set of labels")}
"""By task, the words to replace in the labels of SHOWN, and their replacement."""

TIMES = (TRAIN_SECONDS, JOB_SECONDS, BILLABLE_SECONDS, THROUGHPUT_SAMPLES)  # metrics of a job's speed
OF_THE_CLUSTER = frozenset({COST_USD, *TIMES})
"""Metrics that depend on a job's cluster, but not on what its model has learned."""

_OF_DOLLARS = frozenset({COST_USD, PICK_COST_USD, "spent_usd"})
_OF_SECONDS = frozenset({TRAIN_SECONDS, JOB_SECONDS, BILLABLE_SECONDS, STARTING_SECONDS, DOWNLOADING_SECONDS}) | {
    UPLOADING_SECONDS,
    WARM_POOL_SECONDS,
}
_ESTIMATES = (ESTIMATED_SECONDS, ESTIMATED_COST_USD, ESTIMATED_MEMORY_GIB)  # prefixes: names may end in _low or _high
_UNITS = ("rows", "tokens", "dropped_tokens")
_OF_SPLITS = tuple(f"{split}_{unit}" for split in ("train", "validation", "test") for unit in _UNITS)
BASELINES = frozenset({BASELINE_MAJORITY, BASELINE_TFIDF, BASELINE_WORDS})
FACTS = frozenset(
    {
        *(TOTAL_PARAMETERS, TRAINABLE_PARAMETERS, MATRIX_PARAMETERS, LAYERS, HIDDEN_SIZE, VOCABULARY),
        *(TRAIN_PADDED_TOKENS, DROPPED_ROWS, TRUNCATED_SHARE, KEPT_SHARE, LENGTH_FOR_MOST_TOKENS, *_OF_SPLITS),
        *(LEARNED_SHARE, UNLEARNED_ROWS),
        *(f"{name}{end}" for name in _ESTIMATES for end in ("", "_low", "_high")),
    }
)
"""Numbers that are known before the training: sizes of the model and of the data, and estimates. In MLflow they are
tags, because it compares runs by the first metrics, and these hardly differ between runs."""
_OF_FOUR_DIGITS = frozenset({THROUGHPUT_SAMPLES, THROUGHPUT_TOKENS, MFU, PEAK_MEMORY_GIB, "hypervolume"})


def to_known_digits(values: Mapping[str, float]) -> dict[str, float]:
    """Round seconds, rates, memory and dollars to the digits meaningful for one job; other metrics keep all digits.

    Seconds get two decimals; rates, memory, estimates and the hypervolume get four significant digits. Dollars get
    seven: for a job of up to 1,000 USD the error is below a tenth of a cent. Ledgers, budgets and searches use exact
    dollars.
    """
    return {name: _to_known_digits(name, value) for name, value in values.items()}


def _to_known_digits(name: str, value: float) -> float:
    if not math.isfinite(value):
        return value
    if name in _OF_SECONDS:
        return round(value, 2)
    digits = 7 if name in _OF_DOLLARS else 4 if name in _OF_FOUR_DIGITS or name.startswith(_ESTIMATES) else None
    return value if digits is None else float(f"{value:.{digits}g}")


def may_be_of_a_job(name: str) -> bool:
    """Return whether a job may report a metric of this name: it is not one of the bill or of paretune itself.

    >>> may_be_of_a_job("val_f1"), may_be_of_a_job("cost_usd"), may_be_of_a_job("paretune.state")
    (True, False, False)
    """
    return name not in OF_THE_BILL and not name.startswith(OF_PARETUNE)
