"""The note of a job's run, in Markdown, which MLflow's UI shows above everything else: what ran, and what came out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from paretune.estimating.noise import binomial_error
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.inputs import BUNDLED
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement


def job_note(
    spec: JobSpec,
    found: Mapping[str, float],
    *,
    state: str,
    reason: str = "",
    origin: str = "measured",
    price: Price | None = None,
    model: str = "",
    verdicts: Sequence[str] = (),
    ran: JobSpec | None = None,
) -> str:
    """What ran, what came out, what to think of it, where the model is, and the command that repeats it.

    `found` are metrics of the job and of its data, `state` and `reason` how and why it ended, `model` its place, `ran`
    the job on the instances that it got, where they may be others.
    """
    lines = [f"- {line}" for line in (_quality(found), _bill(found, price), _speed(found)) if line]
    if model:
        lines.append(f"- model: `{model}`")
    judged = [f"> **{sentence}**" for sentence in verdicts]
    # The command is no block of code: that does not wrap, and widens MLflow's page.
    parts = [_what_ran(spec, found, state, reason, origin, ran or spec), "\n".join(lines), "\n>\n".join(judged)]
    return "\n\n".join([*filter(None, parts), f"Again: `{spec.command()}`"])


def _what_ran(spec: JobSpec, found: Mapping[str, float], state: str, reason: str, origin: str, ran: Placement) -> str:
    plan = spec.plan()
    rows = found.get("train_rows")
    data = spec.dataset.removeprefix(BUNDLED) + (f" ({rows:,.0f} rows)" if rows is not None else "")
    what = f"**{Path(spec.model).name.removeprefix(BUNDLED)}** on **{data}**"
    if spec.project is not None:
        what = f"the project **{Path(spec.project).name}**, entry point {spec.entry_point}"
    elif spec.entry_script is not None:
        what = f"the script **{Path(spec.entry_script).name}**"
    where = f"{ran.instance_count} × {ran.instance_type}" if spec.has_instances else "this machine"
    training = f"{spec.fine_tuning} fine-tuning, global batch size {plan.global_batch_size}"
    how = f"{training}, learning rate {plan.learning_rate:g}, on {where}"
    if spec.project is not None:
        own = ", ".join(f"{name} {value}" for name, value in spec.project_parameters.items())
        how = f"{own}, on {where}" if own else f"on {where}"
    kind = "" if origin == "measured" else f"**{origin.capitalize()}**, nothing was trained: "
    ended = "" if state == "Completed" else f"\n\n**{state}**" + (f": {reason}" if reason else "")
    return f"{kind}{what}: {how}.{ended}"


def _quality(found: Mapping[str, float]) -> str:
    """F1 against its baselines, or perplexity; the error is that of the validation rows alone, not of the seed."""
    f1, rows = found.get(metrics.F1), found.get("validation_rows")
    if f1 is None:
        return _other_quality(found)
    told = f"F1 **{f1:.3f}**"
    if rows:
        error = binomial_error(f1, int(rows))
        told += f" on {rows:,.0f} validation rows (so few rows alone leave ± {error:.3f}; other seeds add to it)"
    names = {metrics.BASELINE_TFIDF: "TF-IDF", metrics.BASELINE_MAJORITY: "the most frequent class"}
    than = [f"{words} {found[name]:.3f}" for name, words in names.items() if name in found]
    return told + (f", against {' and '.join(than)}" if than else "")


def _other_quality(found: Mapping[str, float]) -> str:
    """Perplexity, or the error of a regression against its baselines; empty where there is neither."""
    if (perplexity := found.get(metrics.PERPLEXITY)) is not None:
        return f"perplexity **{perplexity:.2f}** on the validation rows"
    if (rmse := found.get(metrics.RMSE)) is None:
        return ""
    names = {metrics.BASELINE_TFIDF_RMSE: "TF-IDF", metrics.BASELINE_MEAN_RMSE: "the mean of the training rows"}
    than = [f"{words} {found[name]:.4g}" for name, words in names.items() if name in found]
    return f"RMSE **{rmse:.4g}** on the validation rows" + (f", against {' and '.join(than)}" if than else "")


def _bill(found: Mapping[str, float], price: Price | None) -> str:
    usd, seconds = found.get(metrics.COST_USD), found.get(metrics.JOB_SECONDS)
    said = [] if seconds is None else [f"{seconds:,.0f} s"]
    if usd is not None and price is not None:
        kind = ", notional" if price.confidence == "notional" else ""
        said.insert(0, f"**{usd:.4g} USD** ({price.usd_per_hour:g} USD per hour{kind})")
    if (share := found.get(metrics.PLAN_SHARE_USD)) is not None:
        said.insert(1, f"paid in advance: {share:.4g} USD, its share of the training plan's fee")
    return ", ".join(said)


def _speed(found: Mapping[str, float]) -> str:
    rate = found.get(metrics.THROUGHPUT_SAMPLES)
    return "" if rate is None else f"{rate:,.1f} training samples per second"
