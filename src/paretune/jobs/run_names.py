"""Names runs after the settings of their jobs and, once a job has ended, its quality and dollars.

The reason is that MLflow's table of runs shows names but, by default, no metrics.
"""

from collections.abc import Mapping
from dataclasses import replace

from paretune.core.shell import command_line
from paretune.presentation.text import usd
from paretune.specification import metrics
from paretune.specification.plan import Card
from paretune.tracking import schema


def run_name(card: Card, instance_type: str, result: str = "") -> str:
    """Return the name of a job's run on one of the job's instance types.

    It contains the batch, learning rate, cluster and model or, for a user's own training, its name and settings,
    without the seed if the training does not get it. The `result` of an ended job comes before the model, so that the
    result is visible in MLflow's narrow column.
    """
    heads = card.heads if card.takes_seed else card.unseeded_heads
    head = heads.get(instance_type) or next(iter(heads.values()))
    if card.is_users:
        return f"{head}: {result}" if result else head
    simulated = " simulated" if card.is_simulated else ""
    return f"{head}{simulated}: {result}, {card.model}" if result else f"{head} {card.model}{simulated}"


def trial_in_name(tags: Mapping[str, str]) -> str:
    """Return the number of a run's trial as run names show it: `trial 7, repeats 3: `; "" for a single job."""
    if not (number := tags.get(schema.TRIAL, "")):
        return ""
    repeats = f", repeats {tags[schema.REPEATS]}" if tags.get(schema.REPEATS) else ""
    return f"trial {number}{repeats}: "


def new_name(
    tags: Mapping[str, str], card: Card, instance_type: str, before: Mapping[str, float], values: Mapping[str, float]
) -> str | None:
    """Return the new name of a run whose job has ended, with its quality and dollars from `values`, the job's metrics.

    `instance_type` is the type of the last attempt. Returns None if neither is known, or if the user has renamed the
    run: its name is neither the one that it got when the job started nor the one that it got with the metrics `before`.
    """
    quality = metrics.F1 if card.is_users else metrics.TASKS[card.task].quality
    trial, result = trial_in_name(tags), result_in_name(values, quality)
    # A study names the run of a trial before it knows whether the training gets the seed.
    earlier = {
        f"{trial}{run_name(each, instance_type, result_in_name(known, quality))}"
        for known in (values, before, {})
        for each in (card, replace(card, takes_seed=True))
    }
    is_ours = tags.get(schema.RUN_NAME) in earlier
    return f"{trial}{run_name(card, instance_type, result)}" if result and is_ours else None


def result_in_name(values: Mapping[str, float], quality: str | None) -> str:
    """Return quality and dollars as run names show them: `F1 .812, 0.270 USD`; "" if neither is known."""
    parts, value, cost_usd = list[str](), values.get(quality or ""), values.get(metrics.COST_USD)
    if value is not None:
        parts.append(f"F1 {value:.3f}".replace(" 0.", " .") if quality == metrics.F1 else f"{quality} {value:.4g}")
    if cost_usd is not None:
        parts.append(usd(cost_usd))
    return ", ".join(parts)


def unknown_run(name: str) -> str:
    """Return the fault of a name that is neither the id of a run nor the name of a job."""
    return f"no job here has the run id or the name {name}: `{command_line('status')}` lists running jobs"
