"""Replay the study of `paretune demo` with several seeds of its noise, and judge what each search has found.

    python benchmarks/search_demo.py
    python benchmarks/search_demo.py --small      # seconds, with one seed

The study is the shipped one (studies/demo.yaml), with the driver, the simulated launcher and a database, but with
noise from other seeds. It has three objectives, and a table of all of its jobs. A job is on the true front if no other
job is better in dollars, seconds and F1 without noise. The share of the stated front, which includes what is expected,
and that of the jobs that were trained, is that of the hypervolume, in the logarithms of dollars and seconds, with a
reference point that lies as far beyond the front's worst values as the front is wide, because a closer one would not
count the front's corners. Repeats of earlier jobs are not part of the search.
"""

import argparse
import math
import os
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import arguments
import published
from search import product

from paretune.core import pareto
from paretune.launchers.offers import usual_price
from paretune.launchers.simulated.recorded_runs import RunTable
from paretune.pricing import PriceList
from paretune.specification.profile import FILE as PROFILE
from paretune.storage.files import find_file
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.front import hypervolume
from paretune.studies.results.trials import Trial
from paretune.studies.run import run_study_file

SEEDS = tuple(range(1, 11))
PRICES, TABLE = (Path(find_file("demo")).with_name(f"{name}.csv") for name in ("polarity_prices", "demo_rehearsal"))
Key = tuple[str, int, float]
"""Instance type, number of instances and learning rate."""
Costs = tuple[float, float, float]
"""What is minimized: log dollars, log seconds, and negative F1."""


@dataclass(frozen=True, kw_only=True)
class Bought:
    """The full training jobs of one study in their order, its stated front, its probes, and their dollars."""

    jobs: Sequence[Key]
    stated: Sequence[Key]  # the front of the answer, with what is only expected
    probes: int
    job_usd: float
    probe_usd: float


class Truth:
    """The costs of all jobs of the demo's table without noise."""

    def __init__(self, table: Path) -> None:
        prices = PriceList.read({"PARETUNE_PRICES": str(PRICES)})
        self.costs: dict[Key, Costs] = {}
        for row in RunTable.read(table).rows:
            spec, seconds = row.spec, row.cells.billable_seconds or 0.0
            price = usual_price(spec, prices, {})
            assert price is not None  # the file has a price of both types
            usd = price.cost_usd(seconds, spec.instance_count)
            key = (spec.instance_type, spec.instance_count, row.plan.learning_rate)
            self.costs[key] = (math.log(usd), math.log(seconds), -(row.cells.f1 or 0.0))

    @cached_property
    def front(self) -> dict[Key, Costs]:
        """The jobs that no other beats, from the slowest to the fastest."""
        is_best = pareto.front([*self.costs.values()], [False] * 3)
        best = {key: costs for (key, costs), kept in zip(self.costs.items(), is_best, strict=True) if kept}
        return dict(sorted(best.items(), key=lambda pair: -pair[1][1]))

    @property
    def fastest(self) -> Key:
        """The fastest job of the front."""
        return [*self.front][-1]

    def share(self, keys: Iterable[Key]) -> float:
        """Return the share of the front's hypervolume that some jobs have."""
        columns = list(zip(*self.front.values(), strict=True))
        reference = [2.0 * max(column) - min(column) for column in columns]
        whole = hypervolume([*self.front.values()], reference)
        return hypervolume([self.costs[key] for key in keys], reference) / whole


def buy(seed: int) -> Bought:
    """Run the demo's study with the noise of a seed."""
    study = StudyFile.read(find_file("demo"), {"simulation.seed": str(seed)})
    front = run_study_file(study, say=lambda text: None).answer.front
    trials = front.trials
    full = [trial for trial in trials if not trial.is_probe and trial.repeats is None and trial.values]
    probes = [trial for trial in trials if trial.is_probe]
    return Bought(
        jobs=[_key(trial) for trial in full],
        stated=[_key(point.trial) for point in [*front.best, *front.expected_best]],
        probes=len(probes),
        job_usd=math.fsum(trial.cost_usd or 0.0 for trial in full),
        probe_usd=math.fsum(trial.cost_usd or 0.0 for trial in probes),
    )


def row(name: str, bought: Bought, truth: Truth) -> tuple[str, ...]:
    """Return the cells of a study."""
    return (
        name,
        f"{truth.share(bought.stated):.3f}",
        f"{truth.share(bought.jobs):.3f}",
        f"{sum(key in bought.stated for key in truth.front)} of {len(truth.front)}",
        "yes" if {key[:2] for key in bought.stated} & {truth.fastest[:2]} else "no",
        str(len(bought.jobs)),
        str(bought.probes),
        f"{bought.job_usd:.0f}",
        f"{bought.probe_usd:.1f}",
    )


def _key(trial: Trial) -> Key:
    assert trial.plan is not None  # only the job of a project has none
    return trial.spec.instance_type, trial.spec.instance_count, trial.plan.learning_rate


_COLUMNS = (
    *("seed", "stated", "trained", "jobs of the front", "on the fastest cluster"),
    *("jobs", "probes", "USD of jobs", "USD of probes"),
)


def replay(seed: int) -> Bought:
    """Run the demo's study with the noise of a seed, in folders of its own."""
    with tempfile.TemporaryDirectory() as folder, product.empty_home():
        before = dict(os.environ)
        try:
            os.environ.update(_environment(Path(folder)))
            return buy(seed)
        finally:
            os.environ.clear()
            os.environ.update(before)


def _environment(home: Path) -> Mapping[str, str]:
    (profile := home / PROFILE).touch()  # an empty one, instead of the user's
    return {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PARETUNE_HOME": str(home),
        "PARETUNE_PRICES": str(PRICES),
        "PARETUNE_PROFILE": str(profile),
    }


def main() -> None:
    """Read the arguments, run the studies, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    options = arguments.parse(parser, seeds=1)
    truth, rows, all_bought = Truth(TABLE), [], list[Bought]()
    for seed in SEEDS[: options.seeds]:
        bought = replay(seed)
        all_bought.append(bought)
        rows.append(row(str(seed), bought, truth))
    shares = [truth.share(bought.stated) for bought in all_bought]
    made = published.conditions("paretune", "optuna", "scipy", "numpy")
    text = f"{made}; mean share {statistics.fmean(shares):.3f}, worst {min(shares):.3f}."
    print(published.block("search_demo", [text, "", *published.table(_COLUMNS, rows)]))


if __name__ == "__main__":
    main()
