"""The note of a job's run, in Markdown, which MLflow's UI shows above everything else: what ran, and what came out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from paretune.core.untrusted import code_span, markdown
from paretune.estimating.noise import binomial_error
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.inputs import BUNDLED
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement

_LONGEST_SOURCES = 500  # characters in a note; the tag has all


def job_note(
    spec: JobSpec,
    values: Mapping[str, float],
    *,
    state: str,
    reason: str = "",
    origin: str = "measured",
    price: Price | None = None,
    model: str = "",
    verdicts: Sequence[str] = (),
    over_bound_usd: float = 0.0,
    ran: JobSpec | None = None,
    metrics_from: str = "",
    deadline: str = "",
) -> str:
    """Markdown with quality and cost in its first line, the job, verdicts, its model, and the command that repeats it.

    `values` are metrics of the job and of its data, `state` and `reason` how and why it ended, `model` is where the
    model is, `over_bound_usd` what it cost beyond its worst case, `ran` the job on the instances that it got, if they
    may differ from those of `spec`, `metrics_from` the sources of the numbers of a training of the user's own,
    `deadline` how the plan of a job with `finish_by` has ended.
    """
    ending = "" if state == "Completed" else f"**{state}**" + (f": {reason}" if reason else "")
    answer = [part for part in (markdown(ending), _quality(values), _bill(values, price)) if part]
    kind = "" if origin == "measured" else f"**{origin.capitalize()}**, nothing was trained: "
    lines = [f"- {line}" for line in [_speed(values)] if line]
    if over_bound_usd:
        lines.append(f"- it cost {over_bound_usd:.4g} USD more than its worst case")
    if metrics_from:
        lines.append(f"- numbers from {code_span(metrics_from[:_LONGEST_SOURCES])}")
    if model:
        lines.append(f"- model: {code_span(model)}")
    quotes = [f"> **{sentence}**" for sentence in verdicts]
    # The command is no block of code: that does not wrap, and widens MLflow's page.
    summary = markdown(_summary(spec, values, ran or spec))
    parts = ["; ".join(answer), markdown(deadline), summary, "\n".join(lines), markdown("\n>\n".join(quotes))]
    return kind + "\n\n".join([*filter(None, parts), f"Again: {code_span(spec.command())}"])


def _summary(spec: JobSpec, values: Mapping[str, float], ran: Placement) -> str:
    plan = spec.plan()
    rows = values.get("train_rows")
    data = spec.dataset.removeprefix(BUNDLED) + (f" ({rows:,.0f} rows)" if rows is not None else "")
    cluster = f"{ran.instance_count} × {ran.instance_type}" if spec.has_instances else "this machine"
    if spec.project is not None:
        trained = f"the project **{Path(spec.project).name}**, entry point {spec.entry_point}"
        parameters = ", ".join(f"{name} {value}" for name, value in spec.project_parameters.items())
        settings = f"{parameters}, on {cluster}" if parameters else f"on {cluster}"
    else:
        trained = f"**{Path(spec.model).name.removeprefix(BUNDLED)}** on **{data}**"
        if spec.entry_script is not None:
            trained = f"the script **{Path(spec.entry_script).name}**"
        batch = f"{spec.fine_tuning} fine-tuning, global batch size {plan.global_batch_size}"
        settings = f"{batch}, learning rate {plan.learning_rate:g}, on {cluster}"
    return f"{trained}: {settings}."


def _quality(values: Mapping[str, float]) -> str:
    """F1, perplexity, ROUGE-L or RMSE, against baselines.

    The stated error of F1 is that of the validation rows, not of the seed.
    """
    f1, rows = values.get(metrics.F1), values.get("validation_rows")
    if f1 is not None:
        error = ""
        if rows:
            size = binomial_error(f1, int(rows))
            error = f" on {rows:,.0f} validation rows (so few rows alone leave ± {size:.3f}; other seeds add to it)"
        baselines = {metrics.BASELINE_TFIDF: "TF-IDF", metrics.BASELINE_MAJORITY: "the most frequent class"}
        baselines |= {metrics.BASELINE_WORDS: "the most frequent label of each word"}
        return f"F1 **{f1:.3f}**{error}{_against(values, baselines, '.3f')}"
    if (perplexity := values.get(metrics.PERPLEXITY)) is not None:
        return f"perplexity **{perplexity:.2f}** on the validation rows"
    if (overlap := values.get(metrics.ROUGE_L)) is not None:
        against = _against(values, {metrics.BASELINE_LEAD: "the beginning of the text"}, ".3f")
        return f"ROUGE-L **{overlap:.3f}** on the validation rows{against}"
    if (rmse := values.get(metrics.RMSE)) is None:
        return ""
    baselines = {metrics.BASELINE_TFIDF_RMSE: "TF-IDF", metrics.BASELINE_MEAN_RMSE: "the mean of the training rows"}
    return f"RMSE **{rmse:.4g}** on the validation rows{_against(values, baselines, '.4g')}"


def _against(values: Mapping[str, float], baselines: Mapping[str, str], form: str) -> str:
    parts = [f"{words} {values[name]:{form}}" for name, words in baselines.items() if name in values]
    return f", against {' and '.join(parts)}" if parts else ""


def _bill(values: Mapping[str, float], price: Price | None) -> str:
    usd, seconds = values.get(metrics.COST_USD), values.get(metrics.JOB_SECONDS)
    parts = [] if seconds is None else [f"{seconds:,.0f} s"]
    if usd is not None and price is not None:
        kind = ", notional" if price.confidence == "notional" else ""
        parts.insert(0, f"**{usd:.4g} USD** ({price.stated}{kind})")
    if (share := values.get(metrics.PLAN_SHARE_USD)) is not None:
        parts.insert(1, f"paid in advance: {share:.4g} USD, its share of the training plan's fee")
    return ", ".join(parts)


def _speed(values: Mapping[str, float]) -> str:
    rate = values.get(metrics.THROUGHPUT_SAMPLES)
    return "" if rate is None else f"{rate:,.1f} training samples per second"
