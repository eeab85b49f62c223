"""Finds the model, predicts in a process of the training wing, and prices its seconds."""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from paretune.commands.predict.command import PredictRequest
from paretune.core.clock import Clock
from paretune.core.errors import BadInput, JobFailed
from paretune.core.interruption import Interruption
from paretune.launchers.processes import training_process
from paretune.pricing.prices import Price, PriceList, local_price, price_remarks
from paretune.specification.container import Event, EventReader, write_json
from paretune.specification.job import JobSpec
from paretune.specification.profile import read_profile
from paretune.specification.regions import usual_region

_POLL_S = 0.1
_LOG_LINES = 15


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The predictions of a file: metrics, seconds and price."""

    model: str  # a folder, or a version such as `sentiment/3`
    run_id: str
    output: Path
    rows: int
    seconds: float  # of tokenising and predicting, without starting, loading and reading the file
    metrics: Mapping[str, float]  # of the rows with labels; empty without any
    price: Price | None  # of an hour of the machine; None if unknown
    price_remarks: tuple[str, ...]  # remarks on the price, in sentences
    answer: Mapping[str, Any]  # all that the predicting process has returned

    @property
    def seconds_per_1000_rows(self) -> float:
        """Seconds of this machine per 1,000 rows."""
        return 1000 * self.seconds / self.rows

    @property
    def usd_per_1000_rows(self) -> float | None:
        """Dollars of these seconds on one instance, or None without a price."""
        return None if self.price is None else self.price.cost_usd(self.seconds_per_1000_rows, 1)


def predict(
    request: PredictRequest,
    environment: Mapping[str, str],
    clock: Clock,
    interruption: Interruption,
    on_events: Callable[[list[Event]], None],
) -> Predictions:
    """Write the rows of the request with their predictions; return metrics, seconds and price.

    Raises:
        BadInput: model, rows or price cannot be used; nothing is written.
        Interrupted: Ctrl-C or SIGTERM; nothing is written.
        JobFailed: the predicting process broke, which is a bug, a full disk or too little memory.
        TrackingUnavailable: MLflow, which holds the model, does not answer.
    """
    price, remarks = _price(request, environment, clock)
    with tempfile.TemporaryDirectory(prefix="paretune-") as scratch:
        name, run_id, folder, params = _model(request, environment, clock, Path(scratch))
        length = params.get("max_seq_length", "")
        document = {
            "model": str(folder),
            "data": str(request.data_path),
            "text_column": request.text_column or params.get("text_column") or "text",
            "label_column": request.label_column or params.get("label_column") or "label",
            "output": str(request.output_path),
            "batch_size": request.batch_size,
            "max_seq_length": request.max_seq_length or (int(length) if length.isdigit() else None),
        }
        answer = _run(document, Path(scratch), environment, clock, interruption, on_events)
    return Predictions(
        model=name,
        run_id=run_id,
        output=request.output_path,
        rows=answer["rows"],
        seconds=answer["seconds"],
        metrics=answer["metrics"],
        price=price,
        price_remarks=tuple(remarks),
        answer=answer,
    )


def _model(
    request: PredictRequest, environment: Mapping[str, str], clock: Clock, scratch: Path
) -> tuple[str, str, Path, Mapping[str, str]]:
    """Return name, run id and folder of the model, and the parameters of its training if MLflow has them."""
    if not request.is_address:
        return str(request.model_folder), "", request.model_folder, {}
    from mlflow import MlflowClient  # MLflow takes a second to import

    from paretune.commands.predict.model_files import fetch
    from paretune.tracking import Tracking

    Tracking(environment, clock)  # raises if the store cannot be used
    files = fetch(MlflowClient(), request.model or "", scratch / "model")
    return files.name, files.run_id, files.folder, files.params


def _price(request: PredictRequest, environment: Mapping[str, str], clock: Clock) -> tuple[Price | None, list[str]]:
    """Return the price of an hour, and remarks on it; raises BadInput if profile or prices cannot be read."""
    profile = read_profile(environment)
    if request.instance_type is None:
        usd_per_hour = request.local_price_usd_per_hour or profile.get("local_price_usd_per_hour")
        return local_price(float(usd_per_hour or JobSpec().local_price_usd_per_hour)), []
    region = usual_region(request.region or profile.get("region"), environment)
    price = PriceList.read(environment).price(request.instance_type, region)
    return price, price_remarks(price, request.instance_type, region, date.fromtimestamp(clock.now()))


def _run(
    document: Mapping[str, Any],
    scratch: Path,
    environment: Mapping[str, str],
    clock: Clock,
    interruption: Interruption,
    on_events: Callable[[list[Event]], None],
) -> dict[str, Any]:
    """Predict the rows in another process and return its answer."""
    request, answer_file, events, log = (scratch / name for name in ("request.json", "answer.json", "events", "log"))
    write_json(request, document)
    reader, paths = EventReader(events), (request, answer_file, events)
    with training_process("paretune.training.predicting", paths, log, environment) as child:
        while child.poll() is None:
            interruption.check()
            on_events(list(reader.new()))
            clock.sleep(_POLL_S)
    if not answer_file.exists():
        raise _failure(log.read_text(errors="replace").splitlines(), child.returncode)
    result: dict[str, Any] = json.loads(answer_file.read_text())
    if "faults" in result:
        raise BadInput(result["faults"])
    return result


def _failure(lines: list[str], code: int | None) -> Exception:
    """Return the error of a process without an answer."""
    if any("No space left on device" in line for line in lines):
        return BadInput(["the disk that holds the output is full: make room, or set output to another one"])
    if any("No module named" in line for line in lines):
        return BadInput([f"predict needs a package that is missing here: {lines[-1]}: pip install 'paretune[train]'"])
    if code == -9:
        return JobFailed("predict", "it was killed, probably for lack of memory: lower batch_size", lines[-_LOG_LINES:])
    return JobFailed("predict", lines[-1] if lines else f"it ended with exit code {code}", lines[-_LOG_LINES:])
