"""Names of what is recorded, each with its unit, and the formulas behind the derived ones.

A metric that cannot be known is absent: never 0, never NaN.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

F1 = "f1"  # Macro F1 over classes or labels, on the validation split of the returned model
ACCURACY = "accuracy"  # share of validation rows with the right class
RMSE = "rmse"  # root of the mean squared error on the validation split, in units of the label
MAE = "mae"  # mean absolute error, likewise
R2 = "r2"  # 1 - squared error / squared distance from the mean of the validation rows; absent where they are all equal
SPEARMAN = "spearman"  # rank correlation of predicted and true values; absent where one of them does not vary
F1_MICRO = "f1_micro"  # F1 over all pairs of a validation row and a label
SUBSET_ACCURACY = "subset_accuracy"  # share of validation rows all of whose labels are right
THROUGHPUT_SAMPLES = "throughput_samples_per_second"
"""Training samples per second over all devices in steady state: warm-up steps and evaluation excluded."""
THROUGHPUT_TOKENS = "throughput_tokens_per_second"  # the same in tokens of text; padding is not counted
OTHERS_CPU_SHARE = "others_cpu_share"
"""Share of the usable processor cores that other programs took in steady state; absent where it is 0.25 or less."""
TRAIN_SECONDS = "train_seconds"  # wall time of the training loop; evaluation, checkpoints, profiled steps excluded
JOB_SECONDS = "job_seconds"  # wall time of the job, from its start to its end
BILLABLE_SECONDS = "billable_seconds"  # seconds billed per instance
WARM_POOL_SECONDS = "warm_pool_seconds"
"""Seconds billed per instance after the job, while its instances were kept for the next one; 0 where none were."""
COST_USD = "cost_usd"  # (billable seconds + warm pool seconds) x instance count x hourly price / 3600
BILLED_USD = "billed_usd"
"""What AWS's bill says that the job cost, storage included: unblended, before tax, credits and the fees of plans."""
EFFECTIVE_USD = "effective_usd"
"""What is paid for it in effect: with Savings Plans, reservations and private rates, before tax and credits."""
PLAN_SHARE_USD = "plan_share_usd"
"""Share of a training plan's upfront fee: fee x the job's instance-seconds / those of the plan. Paid before the job, so
it is in no cost_usd and no budget."""
MFU = "mfu"  # model FLOPs utilisation: share of the devices' peak that went into the model's own arithmetic
PEAK_MEMORY_GIB = "peak_memory_gib"  # highest memory of one device; on a CPU, resident memory of the largest process
MEMORY_GIB_PER_PROCESS = "memory_gib_per_process"
"""Highest memory of the process that has most: allocated on its GPU, or without one resident, libraries included."""
EVAL_LOSS = "eval_loss"
"""Mean cross-entropy in nats on the validation split; of regression the mean squared error of labels divided by their
standard deviation in the training rows."""
PERPLEXITY = "perplexity"  # exp(eval_loss) of a causal language model
BASELINE_MAJORITY = "baseline_f1_majority"
"""Macro F1 of always answering the most frequent class, or set of labels, same validation split."""
BASELINE_TFIDF = "baseline_f1_tfidf"  # Macro F1 of TF-IDF and logistic regression, same training and validation rows
BASELINE_MEAN_RMSE = "baseline_rmse_mean"  # RMSE of always answering the mean of the training rows, same split
BASELINE_TFIDF_RMSE = "baseline_rmse_tfidf"  # RMSE of TF-IDF and ridge regression, same training and validation rows
LABEL_MEAN = "label_mean"  # of regression: mean of the labels of the training rows
LABEL_STD = "label_std"  # and their standard deviation, divided by N
TRAINABLE_PARAMETERS = "trainable_parameters"  # parameters that the optimiser may change
TOTAL_PARAMETERS = "total_parameters"  # parameters of the model, trained or not
EVALUATION_SAMPLES = "evaluation_samples_per_second"
"""Validation rows per second over all devices in the last evaluation, reading tokenised rows included."""
TRUNCATED_SHARE = "truncated_share"  # share of training rows longer than max_seq_length
ESTIMATED_SECONDS = "estimated_seconds"
"""Billable seconds that were predicted before the job began; `_low` and `_high` bound an 80 % interval."""
ESTIMATED_COST_USD = "estimated_cost_usd"  # dollars that were predicted before the job began
ESTIMATED_MEMORY_GIB = "estimated_memory_gib"  # highest memory of one device that was predicted before the job began


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a task is judged by.

    Attributes:
        measures: metrics of an evaluation beside the loss; the first is what jobs are compared by.
        direction: `maximize` or `minimize`, of the first.
        baseline: what single words tell, in the units of the first measure; None where nobody computes it.
        trivial: what one answer for all rows reaches, likewise.
    """

    measures: tuple[str, ...]
    direction: str
    baseline: str | None = None
    trivial: str | None = None

    @property
    def quality(self) -> str:
        """The metric that jobs are compared by."""
        return self.measures[0]


CLASSIFICATION, REGRESSION, MULTI_LABEL, CAUSAL_LM = "classification", "regression", "multi-label", "causal-lm"
TASKS: Mapping[str, Task] = {
    CLASSIFICATION: Task(
        measures=(F1, ACCURACY), direction="maximize", baseline=BASELINE_TFIDF, trivial=BASELINE_MAJORITY
    ),
    REGRESSION: Task(
        measures=(RMSE, MAE, R2, SPEARMAN),
        direction="minimize",
        baseline=BASELINE_TFIDF_RMSE,
        trivial=BASELINE_MEAN_RMSE,
    ),
    MULTI_LABEL: Task(
        measures=(F1, F1_MICRO, SUBSET_ACCURACY),
        direction="maximize",
        baseline=BASELINE_TFIDF,
        trivial=BASELINE_MAJORITY,
    ),
    CAUSAL_LM: Task(measures=(PERPLEXITY,), direction="minimize"),
}
"""Value of the parameter `task` to what it is judged by."""


TIMES = (TRAIN_SECONDS, JOB_SECONDS, BILLABLE_SECONDS, THROUGHPUT_SAMPLES)
"""Metrics of how fast a job is."""
OF_THE_CLUSTER = frozenset({COST_USD, *TIMES})
"""Metrics that follow from the cluster a job runs on, whatever its model has learnt."""


def finite_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries with finite numbers, also those as text, which transformers 5 prints."""
    numbers = {}
    for name, value in values.items():
        with suppress(TypeError, ValueError, OverflowError):
            numbers[str(name)] = float(value)
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def perplexity(eval_loss: float) -> float | None:
    """exp(mean negative log-likelihood per token in nats); None where it overflows a float."""
    try:
        return math.exp(eval_loss)
    except OverflowError:
        return None


def training_flops(
    *, parameters: int, trained_share: float, layers: int, hidden_size: int, mean_length: float
) -> float:
    """Floating-point operations of a forward and backward pass, per token.

    2 x parameters forward, 4 backward (2 where weights get no gradient), plus 12 x layers x hidden size x sequence
    length for the attention matrices (Chowdhery et al., arXiv 2204.02311, appendix B).

    `parameters` are the weights that multiply every token (embedding tables are looked up, not multiplied), of which
    the share `trained_share`, 0 to 1, gets gradients. Tokens are those of text, padding excluded.
    """
    return (4 + 2 * trained_share) * parameters + 12 * layers * hidden_size * mean_length
