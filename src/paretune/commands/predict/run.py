"""Runs `predict`: writes the predictions and reports metrics and cost."""

import os

from paretune.commands.command import describe_opened_run
from paretune.commands.predict.command import PredictRequest
from paretune.commands.predict.predict import Predictions, predict
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput, as_json
from paretune.jobs.progress import watched
from paretune.jobs.workplace import Workplaces
from paretune.presentation.numbers import duration, plain, usd
from paretune.pricing.prices import dates_of

_METRIC_NAMES = {
    "f1": "F1 (macro)",
    "accuracy": "accuracy",
    "rouge_l": "ROUGE-L",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
}


def run_predict(request: PredictRequest) -> CommandOutput:
    """Write the rows with their predictions to a file; return metrics of labelled rows, and the cost.

    No run is created; if `mlflow run` has opened one, it gets the figures.
    """
    interruption = Workplaces.of_process().interruption
    with watched(interruption) as on_events:
        predictions = predict(request, dict(os.environ), SystemClock(), interruption, on_events)
    text = _text(request, predictions)
    counts = {"rows": float(predictions.rows), "seconds_per_1000_rows": predictions.seconds_per_1000_rows}
    describe_opened_run("predict", text, {**predictions.metrics, **counts})
    return CommandOutput(text=text, document=_document(predictions))


def _text(request: PredictRequest, predictions: Predictions) -> str:
    labelled = predictions.answer["labelled_rows"]
    rows = {
        _METRIC_NAMES.get(name, name): f"{value:.4f} on {labelled:,} rows with a label"
        for name, value in predictions.metrics.items()
    }
    counts = predictions.answer["counts"]
    rows |= {"predicted": ", ".join(f"{name} {count:,}" for name, count in counts.items())} if counts else {}
    dollars = predictions.usd_per_1000_rows
    cost = "" if dollars is None else f", {usd(dollars)} ({_basis(predictions)})"
    rows["per 1,000 rows"] = f"{duration(predictions.seconds_per_1000_rows)} on {predictions.answer['device']}{cost}"
    if predictions.answer["truncated_rows"]:
        share = predictions.answer["truncated_rows"] / predictions.rows
        rows["truncated texts"] = f"{share:.1%} longer than {predictions.answer['max_seq_length']} tokens"
    width = max(map(len, rows))
    head = f"{predictions.rows:,} rows of {request.data} predicted by {predictions.model}: {predictions.output}"
    lines = [head, *(f"  {name:<{width}}  {value}" for name, value in rows.items())]
    return "\n".join(
        [*lines, *(f"  {remark}" for remark in (*predictions.answer["remarks"], *predictions.price_remarks))]
    )


def _basis(predictions: Predictions) -> str:
    """Return the basis of the dollars, which are estimated, not billed."""
    price = predictions.price
    if price is None:
        return ""
    hourly = f"{plain(price.usd_per_hour, 3)} USD an hour"
    if price.confidence == "notional":
        return f"estimated: this machine at a notional {hourly}"
    dated = f" ({dates_of([price])})" if price.as_of else ""
    return f"estimated: seconds of this machine at {hourly} of {price.instance_type} in {price.region}{dated}"


def _document(predictions: Predictions) -> dict[str, object]:
    answer = predictions.answer
    return {
        "model": predictions.model,
        "run_id": predictions.run_id or None,
        "output": str(predictions.output),
        "rows": predictions.rows,
        "labelled_rows": answer["labelled_rows"],
        "metrics": as_json(predictions.metrics),
        "counts": answer["counts"],
        "problem_type": answer["kind"],
        "max_seq_length": answer["max_seq_length"],
        "truncated_rows": answer["truncated_rows"],
        "device": answer["device"],
        "seconds": predictions.seconds,
        "seconds_per_1000_rows": predictions.seconds_per_1000_rows,
        "usd_per_1000_rows": predictions.usd_per_1000_rows,
        "usd_basis": _basis(predictions) or None,
        "remarks": [*answer["remarks"], *predictions.price_remarks],
    }
