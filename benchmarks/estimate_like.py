"""Measure the error of `estimate --like`, which predicts the seconds of a job from those of another job.

    python benchmarks/estimate_like.py                                       # tables of this folder and local jobs
    python benchmarks/estimate_like.py --published runs.csv --table rates.csv

The two jobs of a pair come from one source and train the same model on two clusters. At most --most pairs of each kind
and source are drawn at random, with a fixed seed. For comparison, `equal` assumes that a token needs the same
device-seconds on both clusters, as people do on paper. --published has the columns of estimate_error.py, and --table
those of estimate_error_cold.py.
"""

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import arguments
import estimate_error
import estimate_error_cold
import pandas as pd
import published

from paretune.estimating.counting import Work
from paretune.estimating.timing import Measurement, fit


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A job that has run, with its seconds per step, or the seconds of the whole job if `is_whole`."""

    source: str
    work: Work
    seconds: float
    is_whole: bool

    @property
    def device_seconds(self) -> float:
        """Device-seconds per token."""
        seconds = self.seconds if self.is_whole else self.seconds * self.work.steps
        return seconds * self.work.instances * self.work.devices / self.work.tokens

    def predict(self, other: "Measured") -> tuple[float, float]:
        """Return the other job's seconds, predicted from this job, and the half-width of the interval as a factor."""
        seconds, step = (self.seconds, None) if self.is_whole else (None, self.seconds)
        measured = Measurement(work=self.work, seconds=seconds, step_seconds=step)
        (prediction,) = fit([measured]).predict([other.work])
        predicted = prediction.seconds if self.is_whole else prediction.step_seconds
        return predicted, prediction.seconds_high / prediction.seconds


def _chip(work: Work) -> str:
    return work.constants["chip"]


KINDS: dict[str, Callable[[Work, Work], bool]] = {
    "one type, one machine each": lambda one, two: _chip(one) == _chip(two) and one.instances == two.instances == 1,
    "one type, several machines": lambda one, two: _chip(one) == _chip(two) and max(one.instances, two.instances) > 1,
    "across types or precisions": lambda one, two: _chip(one) != _chip(two),
}


def main() -> None:
    """Print a row for each source and kind of pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, help="CSV of published jobs, with 512 tokens a row")
    parser.add_argument("--table", type=Path, action="append", default=[], help="CSV of published rates")
    parser.add_argument("--most", type=int, default=150, help="maximum number of pairs of a kind")
    options = arguments.parse(parser, most=2)
    rows = [
        row
        for source, jobs in itertools.groupby(read(options.published, options.table), lambda job: job.source)
        for row in rows_of(source, list(jobs), options.most)
    ]
    header = [
        "seconds, from one job elsewhere",
        "pairs",
        "equal",
        "error",
        "in the 80 % interval",
        "its half-width",
    ]
    made = f"Published and local jobs, {published.conditions('paretune')}:"
    print(published.block("estimate_like", [made, "", *published.table(header, rows)]))


def read(jobs: Path | None, tables: Sequence[Path]) -> Iterator[Measured]:
    """Yield all jobs, grouped by source."""
    whole = {"local jobs": estimate_error.read_local()}
    if jobs is not None:
        whole = {"DistilBERT jobs": estimate_error.read_published(pd.read_csv(jobs), 512)} | whole
    for source, members in whole.items():
        yield from (Measured(source=source, work=job.work, seconds=job.seconds, is_whole=True) for job in members)
    for rate in estimate_error_cold.read([*estimate_error_cold.TABLES, *tables]):
        source = rate.source.partition(" ")[0]
        yield Measured(source=source, work=rate.work, seconds=rate.step_seconds, is_whole=False)


def rows_of(source: str, jobs: Sequence[Measured], most: int) -> Iterator[list[str]]:
    """Yield a row for each kind of pair that the source has."""
    generator = random.Random(1)
    for kind, holds in KINDS.items():
        pairs = [
            (one, two)
            for one, two in itertools.permutations(jobs, 2)
            if one.work.constants["model"] == two.work.constants["model"]
            and one.work.cluster != two.work.cluster
            and holds(one.work, two.work)
        ]
        if not pairs:
            continue
        pairs = generator.sample(pairs, min(most, len(pairs)))
        made = [one.predict(two) for one, two in pairs]
        errors = [abs(seconds / two.seconds - 1) for (seconds, _), (_, two) in zip(made, pairs, strict=True)]
        equal = [abs(one.device_seconds / two.device_seconds - 1) for one, two in pairs]
        inside = [
            1 / width <= two.seconds / seconds <= width for (seconds, width), (_, two) in zip(made, pairs, strict=True)
        ]
        width = math.exp(statistics.mean(math.log(width) for _, width in made))
        cells = [f"{statistics.mean(values):.0%}" for values in (equal, errors, inside)]
        yield [f"{source}: {kind}", str(len(pairs)), *cells, f"x {width:.2f}"]


if __name__ == "__main__":
    main()
