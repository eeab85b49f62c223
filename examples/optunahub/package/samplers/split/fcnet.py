"""Compare this sampler with Optuna's own samplers on FCNet, with `study.optimize` on a table of training runs.

    python fcnet.py search_fcnet_slice.csv [--seeds 5] [--figure fcnet_slice.svg]

FCNet (Klein and Hutter, arXiv 1905.04970) has 62,208 networks of two layers, each trained to the end four times on each
of four data sets. The table is a CSV file with a part of FCNet. Its columns are batch_size, learning_rate, n_units_1,
n_units_2, and the seconds and validation error of the four training runs of a network (runtime_s_0 ... 3, valid_mse_0
... 3). A trial costs the seconds of one of these four runs, which is drawn with the seed. The score of the trials so
far is their share of the true front's hypervolume, computed from mean seconds and mean log errors. It is shown over the
cost of the trials, in median training runs.
"""

import argparse
import csv
import math
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution

import paretune

# The sampler reads the options of a training run from its script, which it never runs.
SCRIPT = """import argparse
parser = argparse.ArgumentParser()
for name in ("batch_size", "learning_rate", "n_units_1", "n_units_2"):
    parser.add_argument(f"--{name}", type=float)
"""
AXES = ("batch_size", "learning_rate", "n_units_1", "n_units_2")
TRIALS = 40
MARGIN = 0.1
"""The reference point of the hypervolume is a tenth of the true front's range beyond its worst values."""
Curve = list[tuple[float, float]]
"""Cost in median trainings, and the share of the front that was found for it."""


class Trainings:
    """The training runs of a file: `runs` maps a network to the seconds and the log10 error of its runs."""

    def __init__(self, path: Path) -> None:
        self.runs: dict[tuple[float, ...], list[tuple[float, float]]] = {}
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                runs = ((row[f"runtime_s_{seed}"], row[f"valid_mse_{seed}"]) for seed in range(4))
                known = [(float(seconds), math.log10(float(error))) for seconds, error in runs if seconds and error]
                self.runs[tuple(float(row[name]) for name in AXES)] = known
        self.axes = {name: sorted({key[at] for key in self.runs}) for at, name in enumerate(AXES)}
        self.means = {key: tuple(map(statistics.fmean, zip(*runs, strict=True))) for key, runs in self.runs.items()}
        self.median_s = statistics.median(seconds for seconds, _ in self.means.values())
        points = list(self.means.values())
        front = [each for each in points if not any(o != each and o[0] <= each[0] and o[1] <= each[1] for o in points)]
        spans = [(min(values), max(values)) for values in zip(*front, strict=True)]
        self._reference = [worst + MARGIN * (worst - best) for best, worst in spans]
        self._volume = self._hypervolume(list(self.means.values()))

    def space(self) -> dict[str, CategoricalDistribution]:
        """Return the searched parameters."""
        return {name: CategoricalDistribution(values) for name, values in self.axes.items()}

    def objective(self, trial: optuna.Trial, draw: random.Random) -> tuple[float, float]:
        """Return the seconds and the error of one training of the network that the trial suggests."""
        key = tuple(float(trial.suggest_categorical(name, values)) for name, values in self.axes.items())
        seconds, error = draw.choice(self.runs[key])
        trial.set_user_attr("seconds", seconds)  # otherwise a trial takes as long as this function
        return seconds, error

    def curve(self, study: optuna.Study) -> Curve:
        """Return the share of the true front after each trial."""
        keys = [tuple(float(trial.params[name]) for name in AXES) for trial in study.trials]
        paid = accumulate(trial.values[0] / self.median_s for trial in study.trials)
        found = [self.means[key] for key in keys]
        return [(x, self._hypervolume(found[: n + 1]) / self._volume) for n, x in enumerate(paid)]

    def _hypervolume(self, points: Sequence[tuple[float, ...]]) -> float:
        """Return the area that the points dominate, up to the reference point."""
        area, last = 0.0, self._reference[1]
        for seconds, error in sorted(points):
            if error < last and seconds < self._reference[0]:
                area += (self._reference[0] - seconds) * (last - error)
                last = error
        return area


def samplers(trainings: Trainings, script: Path) -> Iterator[tuple[str, Callable[[int], optuna.samplers.BaseSampler]]]:
    """Yield a name, and a function that makes the sampler of a seed."""
    script.write_text(SCRIPT, encoding="utf-8")
    job: dict[str, Any] = {"entry_script": str(script)}
    goals = ("job_seconds", "error")

    def split(_: int) -> optuna.samplers.BaseSampler:
        return paretune.SplitSampler(job, trainings.space(), objectives=goals, metric="error")

    yield "SplitSampler", split
    yield "TPESampler", lambda seed: optuna.samplers.TPESampler(seed=seed)
    yield "GPSampler", lambda seed: optuna.samplers.GPSampler(seed=seed)
    yield "NSGAIISampler", lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=10)
    yield "RandomSampler", lambda seed: optuna.samplers.RandomSampler(seed=seed)


def search(trainings: Trainings, sampler: optuna.samplers.BaseSampler, trials: int, seed: int) -> Curve:
    """Search with a sampler, by `study.optimize` as for any objective, and return its curve."""
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    draw = random.Random(seed)
    study.optimize(lambda trial: trainings.objective(trial, draw), n_trials=trials)
    return trainings.curve(study)


def row(name: str, curves: Sequence[Curve]) -> str:
    """Return a line of the table: the cost until 90 % and 95 % of the front, the final share, and the final cost."""
    cells = [name.ljust(14)]
    for share in (0.90, 0.95):
        reached = [next((paid for paid, found in curve if found >= share), math.inf) for curve in curves]
        usual = statistics.median(reached)
        cells.append(("never" if math.isinf(usual) else f"{usual:.1f}").rjust(10))
    cells.append(f"{statistics.median(curve[-1][1] for curve in curves):.3f}".rjust(8))
    cells.append(f"{statistics.median(curve[-1][0] for curve in curves):.1f}".rjust(8))
    return " ".join(cells)


def draw(path: Path, curves: dict[str, list[Curve]], title: str) -> None:
    """Draw the median share of the front depending on the cost."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel="paid, in median trainings", ylabel="share of the front")
    grid = [step / 4 for step in range(1, 4 * TRIALS)]
    for (name, of_seeds), (color, dash) in zip(curves.items(), _LOOKS, strict=True):
        shares = [
            statistics.median(max((found for at, found in curve if at <= paid), default=0.0) for curve in of_seeds)
            for paid in grid
        ]
        end = statistics.median(curve[-1][0] for curve in of_seeds)
        shown = [(paid, share) for paid, share in zip(grid, shares, strict=True) if paid <= end]
        axes.plot([paid for paid, _ in shown], [share for _, share in shown], dash, color=color, label=name)
    axes.set_ylim(0.5, 1.0)
    axes.grid(color="#d6d6d6", linewidth=0.5)
    axes.legend()
    figure.savefig(path)


_LOOKS = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#8C8C8C", "-"))


def main() -> None:
    """Search the table with each sampler and seed, and print a line for each sampler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    trainings, curves = Trainings(options.table), dict[str, list[Curve]]()
    script = Path(tempfile.mkdtemp()) / "network.py"
    print("sampler         to 90 %    to 95 %      end     paid   (median trainings; median of the seeds)", flush=True)
    for name, made in samplers(trainings, script):
        started = time.monotonic()
        curves[name] = [search(trainings, made(seed), options.trials, seed) for seed in range(options.seeds)]
        print(row(name, curves[name]), f"  ({time.monotonic() - started:.0f} s)", flush=True)
    if options.figure:
        draw(options.figure, curves, f"{options.table.stem}: median of {options.seeds} seeds")


if __name__ == "__main__":
    main()
