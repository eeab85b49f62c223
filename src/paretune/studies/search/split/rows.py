"""Rows that jobs train on: what turns seconds of a row into seconds of a job."""

import statistics
from collections.abc import Mapping

from paretune.estimating.workload import BUNDLED_ROWS
from paretune.jobs.preparation import known_inputs
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.search.driver import Driver

OVERHEAD_S = 120.0
"""Seconds around a training before any job has shown them."""
_NEEDED = {metrics.THROUGHPUT_SAMPLES, metrics.TRAIN_SECONDS}


def rows_of(spec: JobSpec, data_rows: float | None) -> float:
    """Rows of all epochs of a job; in units of the data set if `data_rows`, its rows, is None."""
    return float(spec.max_train_samples or data_rows or 1) * spec.num_train_epochs


def seconds_of_a_row(measured: Mapping[str, float], rows: float) -> tuple[float, float]:
    """Seconds of one row in steady state, and seconds around the training."""
    billed = measured[metrics.BILLABLE_SECONDS]
    speed = measured.get(metrics.THROUGHPUT_SAMPLES)
    training = measured.get(metrics.TRAIN_SECONDS)
    if speed and training is not None:
        return 1 / speed, max(0.0, billed - training)
    overhead = min(OVERHEAD_S, billed / 2)
    return (billed - overhead) / rows, overhead


class DataRows:
    """Finds out how many rows a study's whole data set has to train on."""

    def __init__(self, job: JobSpec, driver: Driver) -> None:
        self._job, self._driver = job, driver
        self._known: float | None = BUNDLED_ROWS.get(job.dataset, (None,))[0]

    def count(self) -> float | None:
        """Rows of the bundled data set, of the prepared one, or as trainings have shown them; None if unknown."""
        if self._known is None and self._job.max_train_samples is None:
            prepared = known_inputs(self._job, self._driver.workplace).dataset
            self._known = prepared.facts["train_rows"] if prepared else None
        return self._known or self._trained_on()

    def _trained_on(self) -> float | None:
        counts = []
        for number, measured in self._driver.history.measured.items():
            spec = JobSpec.read(self._driver.trials[number].parameters)
            if spec.probe_steps is None and spec.max_train_samples is None and measured.keys() >= _NEEDED:
                rows = measured[metrics.THROUGHPUT_SAMPLES] * measured[metrics.TRAIN_SECONDS]
                counts.append(rows / spec.num_train_epochs)
        return statistics.median(counts) if counts else None
