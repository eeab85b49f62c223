"""The command `predict`: a trained model on the rows of a file."""

import os
from collections.abc import Mapping

from paretune.commands.predict.predict import Predictions, predict
from paretune.commands.predict.request import PredictRequest
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput, as_json
from paretune.jobs.progress import watched
from paretune.jobs.workplace import Workplaces
from paretune.presentation.numbers import duration, plain, usd

_NAMES = {"f1": "F1 (macro)", "accuracy": "accuracy", "rmse": "root mean squared error", "mae": "mean absolute error"}


def run_predict(request: PredictRequest) -> CommandOutput:
    """The rows with their predictions in a file; how good they are where rows have labels, and what they cost.

    No run is made for it; the one that `mlflow run` has opened gets the figures.
    """
    environment, clock = dict(os.environ), SystemClock()
    interruption = Workplaces.of_process().interruption
    with watched(interruption) as on_events:
        found = predict(request, environment, clock, interruption, on_events)
    _record(found, environment)
    return CommandOutput(text=_text(request, found), document=_document(found))


def _record(found: Predictions, environment: Mapping[str, str]) -> None:
    """Fill the run that `mlflow run` has opened for this command; nothing where it was started by hand."""
    if "MLFLOW_RUN_ID" not in environment:
        return
    from paretune.tracking import Tracking, schema  # MLflow takes a second to import

    run = Tracking(environment, SystemClock()).begin("predict")
    run.set_tags({schema.KIND: "predict"})
    run.log_metrics({**found.metrics, "rows": float(found.rows), "seconds_per_1000_rows": found.seconds_per_1000_rows})


def _text(request: PredictRequest, found: Predictions) -> str:
    labelled = found.found["labelled_rows"]
    rows = {
        _NAMES.get(name, name): f"{value:.4f} on {labelled:,} rows with {request.label_column!r}"
        for name, value in found.metrics.items()
    }
    counts = found.found["counts"]
    rows |= {"predicted": ", ".join(f"{name} {count:,}" for name, count in counts.items())} if counts else {}
    dollars = found.usd_per_1000_rows
    cost = "" if dollars is None else f", {usd(dollars)} ({_basis(found)})"
    rows["per 1,000 rows"] = f"{duration(found.seconds_per_1000_rows)} on {found.found['device']}{cost}"
    if found.found["truncated_rows"]:
        share = found.found["truncated_rows"] / found.rows
        rows["truncated texts"] = f"{share:.1%} longer than {found.found['max_seq_length']} tokens"
    width = max(map(len, rows))
    head = f"{found.rows:,} rows of {request.data} predicted by {found.model}: {found.output}"
    lines = [head, *(f"  {name:<{width}}  {value}" for name, value in rows.items())]
    return "\n".join([*lines, *(f"  {remark}" for remark in (*found.found["remarks"], *found.price_remarks))])


def _basis(found: Predictions) -> str:
    """Where the dollars come from: they are estimated, for nobody bills them."""
    price = found.price
    if price is None:
        return ""
    hourly = f"{plain(price.usd_per_hour, 3)} USD an hour"
    if price.confidence == "notional":
        return f"estimated: this machine at a notional {hourly}"
    return f"estimated: seconds of this machine at {hourly} of {price.instance_type} in {price.region}"


def _document(found: Predictions) -> dict[str, object]:
    told = found.found
    return {
        "model": found.model,
        "run_id": found.run_id or None,
        "output": str(found.output),
        "rows": found.rows,
        "labelled_rows": told["labelled_rows"],
        "metrics": as_json(found.metrics),
        "counts": told["counts"],
        "problem_type": told["kind"],
        "max_seq_length": told["max_seq_length"],
        "truncated_rows": told["truncated_rows"],
        "device": told["device"],
        "seconds": found.seconds,
        "seconds_per_1000_rows": found.seconds_per_1000_rows,
        "usd_per_1000_rows": found.usd_per_1000_rows,
        "usd_basis": _basis(found) or None,
        "remarks": [*told["remarks"], *found.price_remarks],
    }
