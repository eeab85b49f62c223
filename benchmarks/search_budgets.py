"""Judge whole studies with money for few jobs: what they state, what they recommend, and what they say that is false.

    python benchmarks/search_budgets.py FOLDER                      # the half that may be looked at
    python benchmarks/search_budgets.py FOLDER --half left_out      # once, at the end
    python benchmarks/search_budgets.py --small                     # a minute, with one generated table

Each study is run by the code of `paretune study`, with its driver, worst cases, repeats and answer, on the simulated
launcher. FOLDER has the files of benchmarks/search/grids.py. `PROBLEMS` divides the problems into halves; no choice may
be based on the half `left_out`. Each study is one line of --results, and one that has its line is not run again.

Budgets are in median jobs: the median price of a problem's jobs is 1. `0` is the study's answer for 0 USD, which is the
estimate. `end` has money for 40 median jobs and ends by itself.

    front        share of the true front's hypervolume that the stated front has, which includes what is expected.
                 Points count with their true values. The reference point lies as far beyond the front as the front is
                 wide, in the logarithms of dollars and seconds
    regret       the best true quality less that of the recommended configuration, in units of best less median
    USD          what the recommended configuration costs, as a multiple of the cheapest one that is as good
    spent        share of the budget that was spent
    false        claims in the answer (fastest, cheapest, best) that a measured cluster or a training contradicts

Rivals get the same dollars, have no worst cases, and stop before the job that would not fit. What they recommend is
chosen by paretune's rule from what they have measured.
"""

import argparse
import csv
import json
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import arguments
import published
from search import grids, peers, plain, product, worlds
from search.tables import Point, Table

from paretune.core import pareto
from paretune.core.errors import BudgetRefused
from paretune.launchers.simulated.recorded_runs import RunTable
from paretune.pricing import VARIABLE
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from paretune.specification.profile import FILE as PROFILE
from paretune.storage.files import find_file
from paretune.studies.definition.file import StudyFile, full_name
from paretune.studies.results.front import hypervolume
from paretune.studies.results.result import StudyResult
from paretune.studies.run import run_study_file

BUDGETS = ("0", "1.5", "3", "5", "10", "20", "end")
END = 40.0  # median jobs that a study with the default end may spend
OURS, RIVALS = "paretune", ("random", "tpe", "plain")
AGAINST = ("3", "5", "10")  # budgets at which the rivals search, too
DEMO, WORLDS, FAR, SCRIPTS, TRAINER = "demo", "own training", "own training, rates far off", "scripts", "Trainer script"
PROBLEMS = {
    "development": {
        DEMO: tuple(f"demo/{seed}" for seed in range(1, 6)),
        WORLDS: ("plain/0", "plain/2", "cliff/1", "cliff/3", "failing/4", "heavy/5"),
        FAR: ("far/6", "far/7"),
        SCRIPTS: ("trimtuner-cnn//machines", "steplaw-moe", "steplaw-dense", "nmt-so"),
        TRAINER: ("trainer/0",),
    },
    "left_out": {
        WORLDS: ("plain/500", "plain/502", "cliff/501", "cliff/503", "failing/504", "heavy/505"),
        FAR: ("far/506", "far/507"),
        SCRIPTS: ("lynceus-cnn//machines", "lynceus-multilayer//machines", "fcnet-slice", "fcnet-parkinsons"),
        TRAINER: ("trainer/500",),
    },
}
RESULTS = Path(__file__).parent / "results"
_COUNTS = ("trials", "probes", "repeats")
_WORTH = 0.05  # `recommendation._WORTH`, for rivals
_FASTER = 0.95  # a claim is false if a measured cluster needs less than this share of the seconds or dollars
_TRAINER = """from transformers import Trainer, TrainingArguments, AutoModelForSequenceClassification
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=16)
parser.add_argument("--learning_rate", type=float, default=5e-5)
parser.add_argument("--num_train_epochs", type=float, default=3)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased")
"""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One study or rival: the columns of the table, see the module's docstring."""

    front: float = 0.0
    regret: float | None = None
    times_usd: float | None = None
    spent: float = 0.0
    trials: int = 0
    probes: int = 0
    repeats: int = 0
    false: int = 0
    is_refused: bool = False


class Problem:
    """A table with its truth, and the study that searches it.

    `truth` maps the key of a point to what is minimized: log dollars, log seconds if they are an objective, and
    negative quality.
    """

    def __init__(
        self, table: Any, content: Mapping[str, Any], environment: Mapping[str, str], names: Mapping[str, str]
    ):
        self.table, self.content, self.environment, self._names = table, content, environment, names
        self.has_seconds = "job_seconds" in content["objectives"]
        self.truth: dict[str, tuple[float, ...]] = {}
        self.seconds: dict[str, float] = {}
        self.points: dict[str, Point] = {}
        for point in table.points:
            if (costs := table.truth(point)) is None:
                continue
            key = self.key(point)
            usd, self.points[key] = costs[0], point
            self.seconds[key] = usd / table.usd(table.spec(point), 1.0)
            time = [math.log(self.seconds[key])] if self.has_seconds else []
            self.truth[key] = (math.log(usd), *time, costs[1])
        best = self._front(self.truth.values())
        columns = list(zip(*best, strict=True))
        self._reference = [2.0 * max(c) - min(c) + (0.0 if max(c) > min(c) else 0.1) for c in columns]
        self._whole = hypervolume(best, self._reference)
        qualities = [-costs[-1] for costs in self.truth.values()]
        self.best, self.median = max(qualities), statistics.median(qualities)

    def key(self, point: Mapping[str, Any]) -> str:
        """Return the key of a point, whose names may be the full ones of a job."""
        named = {self._names.get(name, name): value for name, value in point.items()}
        return str([f"{float(v):.4g}" if not isinstance(v, str) else v for v in (named[n] for n in self.table.axes)])

    @staticmethod
    def _front(costs: Iterable[tuple[float, ...]]) -> list[tuple[float, ...]]:
        listed = list(costs)
        is_best = pareto.front(listed, [False] * len(listed[0]))
        return [each for each, kept in zip(listed, is_best, strict=True) if kept]

    def share(self, keys: Iterable[str]) -> float:
        """Return the share of the true front's hypervolume that points have at their true values."""
        return hypervolume([self.truth[key] for key in keys if key in self.truth], self._reference) / self._whole

    def regret(self, key: str) -> float:
        """Return the regret of a point; 1 if its job does not complete."""
        return 1.0 if key not in self.truth else (self.best + self.truth[key][-1]) / (self.best - self.median)

    def times_usd(self, key: str) -> float | None:
        """Return the dollars of a point as a multiple of the cheapest one that is as good."""
        if key not in self.truth:
            return None
        own = self.truth[key]
        return math.exp(own[0] - min(costs[0] for costs in self.truth.values() if costs[-1] <= own[-1]))

    @property
    def grid_jobs(self) -> float:
        """What all jobs cost together, in median jobs."""
        return math.fsum(math.exp(costs[0]) for costs in self.truth.values()) / float(self.table.median_usd)

    def cluster(self, key: str) -> tuple[Any, ...]:
        """Return what the seconds of a point depend on, as far as it is known: all but the learning rate."""
        return tuple(value for name, value in self.points[key].items() if name != "learning_rate")


@cache
def problem_of(name: str, folder: Path, work: Path) -> Problem:
    """Return the problem of a name such as demo/1, plain/0, trainer/0 or nmt-so."""
    kind, _, seed = name.partition("/")
    table: Any
    if kind == "demo":
        prices = {VARIABLE: str(Path(find_file("demo")).with_name("polarity_prices.csv"))}
        table = Table(Path(find_file("demo")).with_name("demo_rehearsal.csv"), environment=prices)
        study = StudyFile.read(find_file("demo"), {"simulation.seed": seed})
        return Problem(table, {**study_content(study), "seed": int(seed)}, prices, {})
    if kind in worlds.KINDS:
        path = work / f"{kind}-{seed}.csv"
        worlds.World.draw(kind, int(seed)).write(path)
        table, names = Table(path), dict[str, str]()
        goals = {"cost_usd": "minimize", table.metric: "maximize"}
    elif kind == "trainer":
        table = _trainer_table(int(seed), work)
        names = {full_name(table.job, axis): axis for axis in table.axes}
        goals = {"cost_usd": "minimize", table.metric: "maximize"}
    else:
        table = grids.grid(name, folder, work)
        table.record(work)
        names = {full_name(table.job, axis): axis for axis in table.axes}
        goals = {"cost_usd": "minimize", table.metric: "maximize"}
    search = {axis: {"choices": list(values)} for axis, values in table.axes.items()}
    content = {"name": "budgets", "job": dict(table.job), "search": search, "objectives": goals}
    return Problem(table, content, table.environment, names)


def study_content(study: StudyFile) -> dict[str, Any]:
    """Return the shipped study of the demo as the content of a file, one job at a time."""
    search = {name: {"choices": list(entry.values)} for name, entry in study.search.items()}
    return {"name": "demo", "job": study.job.given(), "search": search, "objectives": dict(study.objectives)}


class TrainerGrid(grids.Grid):
    """Runs of a script with the Trainer, whose batch size and rate are parameters of paretune, too."""

    def spec(self, point: Point) -> JobSpec:
        """Return the job at a point."""
        return JobSpec.read({name: spell(value) for name, value in {**self.job, **point}.items()})

    def usd(self, spec: JobSpec, seconds: float) -> float:
        """Return the dollars of this many billed seconds of a job."""
        return seconds * self._usd_per_s({"instance_type": spec.instance_type})


def _trainer_table(seed: int, work: Path) -> grids.Grid:
    """Return a world whose trainings are those of a script with the Trainer, on one instance."""
    world = worlds.World.draw("plain", seed)
    script, runs = work / f"trainer-{seed}.py", dict[tuple[Any, ...], list[grids.Run]]()
    script.write_text(_TRAINER)
    path = work / f"trainer-{seed}-world.csv"
    world.write(path)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["instance_count"] == "1" and row["status"] == "Completed":
                key = (row["instance_type"], int(row["per_device_train_batch_size"]), float(row["learning_rate"]))
                runs.setdefault(key, []).append((float(row["billable_seconds"]), float(row["f1"])))
    names = ("instance_type", "per_device_train_batch_size", "learning_rate")
    axes = {name: sorted({key[index] for key in runs}) for index, name in enumerate(names)}
    prices: Any = Table(path)
    usd = {kind: prices.usd(prices.spec({**prices.points[0], "instance_type": kind}), 1.0) for kind in axes[names[0]]}
    made = TrainerGrid(script, axes, runs, lambda point: usd[point["instance_type"]])
    made.job |= {"max_train_samples": world.rows, "model": "distilbert-base-uncased", "max_seq_length": 128}
    made.record(work)
    return made


@cache
def _runs(path: Path) -> RunTable:
    return _read_runs(path)


_read_runs = RunTable.read


def study(problem: Problem, budget: str, seed: int) -> Judged:
    """Run a study with a budget, and judge its answer."""
    usd = (END if budget == "end" else float(budget)) * problem.table.median_usd
    simulation = {**problem.content["job"].get("simulation", {}), "seed": seed}
    job = {key: value for key, value in problem.content["job"].items() if key != "simulation"} | {
        "simulation": simulation
    }
    content = {
        "seed": seed,
        **problem.content,
        "job": job,
        "budget_usd": usd,
        "stop": "auto" if budget == "end" else "never",
    }
    with tempfile.TemporaryDirectory() as home, product.empty_home():
        before = dict(os.environ)
        (Path(home) / PROFILE).touch()
        own = {"MLFLOW_DISABLE_TELEMETRY": "true", "PARETUNE_HOME": home, "PARETUNE_PROFILE": f"{home}/{PROFILE}"}
        try:
            os.environ.update({**own, **problem.environment})
            result = run_study_file(StudyFile.read(content), say=lambda text: None)
        except BudgetRefused:
            return Judged(is_refused=True)
        finally:
            os.environ.clear()
            os.environ.update(before)
    return judge(problem, result, usd)


def judge(problem: Problem, result: StudyResult, budget_usd: float) -> Judged:
    """Judge the answer of a study."""
    answer, front = result.answer, result.answer.front
    stated = [problem.key(point.trial.point) for point in [*front.best, *front.expected_best]]
    trials = front.trials
    taken = problem.key(answer.picks[0].point.trial.point) if answer.picks else None
    return Judged(
        front=problem.share(stated),
        regret=None if taken is None else problem.regret(taken),
        times_usd=None if taken is None else problem.times_usd(taken),
        spent=front.spent_usd / budget_usd if budget_usd else 0.0,
        trials=sum(not trial.is_probe and trial.repeats is None for trial in trials),
        probes=sum(trial.is_probe for trial in trials),
        repeats=sum(trial.repeats is not None for trial in trials),
        false=sum(1 for _ in false_claims(problem, result)),
    )


def false_claims(problem: Problem, result: StudyResult) -> Iterator[str]:
    """Yield each claim of the answer that what was measured contradicts.

    The seconds of a cluster count as measured once a job or a probe has completed on it. A claim of what "was trained"
    is compared with trainings only.
    """
    answer, front = result.answer, result.answer.front
    ran = {trial.number: problem.key(trial.point) for trial in front.trials if trial.status.value == "Completed"}
    trained = {problem.key(point.trial.point): point for point in front.feasible}
    measured = {problem.cluster(key) for key in ran.values() if key in problem.points}
    for pick in answer.picks:
        key = problem.key(pick.point.trial.point)
        if key not in problem.truth:
            continue
        least = -problem.truth[key][-1] - 0.1 * (problem.best - problem.median)
        for words in [*pick.roles, *(reason for reason in pick.roles.values() if reason.startswith("Nothing else"))]:
            is_of_trained = "trained" in words
            others = trained if is_of_trained else [k for k in problem.truth if problem.cluster(k) in measured]
            as_good = [k for k in others if k in problem.truth]
            if "least" in words:  # of at least median quality, or with at least a bound
                as_good = [k for k in as_good if -problem.truth[k][-1] >= least]
            if re.search(r"\bthe fastest\b", words, re.IGNORECASE) and any(
                problem.seconds[k] < _FASTER * problem.seconds[key] for k in as_good
            ):
                yield words
            if re.search(r"\bthe cheapest\b", words, re.IGNORECASE) and any(
                problem.truth[k][0] < math.log(_FASTER) + problem.truth[key][0] for k in as_good
            ):
                yield words
            if "has a better mean" in words:
                name = front.quality or ""
                sign = 1.0 if front.objectives.get(name) == "maximize" else -1.0
                if any(sign * (p.means[name] - pick.point.means[name]) > 0 for p in front.feasible):
                    yield words


def rival(problem: Problem, method: str, budget: str, seed: int) -> Judged:
    """Let a rival spend the same dollars, and judge what it has measured."""
    table, most_usd = problem.table, (END if budget == "end" else float(budget)) * problem.table.median_usd
    asking: Any = plain.Plain(table) if method == "plain" else peers.OptunaAlone(table, method, seed=seed)
    ended = peers.drive(asking, table, draw=seed, most_usd=most_usd, most=150)
    spent_usd, kept = 0.0, []
    for job in ended:
        if spent_usd + job.usd > most_usd:
            break
        spent_usd += job.usd
        kept.append(job)
    runs = [(problem.key(job.point), *job.costs) for job in kept if job.point is not None and job.costs is not None]
    if not runs:
        return Judged(spent=spent_usd / most_usd, trials=len(kept))
    best = [
        run
        for run, is_best in zip(runs, pareto.front([run[1:] for run in runs], [False, False]), strict=True)
        if is_best
    ]
    spread = statistics.median(run[2] for run in runs) - min(run[2] for run in runs)
    taken = min(best, key=lambda run: run[2] + _WORTH * spread * math.log2(max(run[1], 1e-12)))[0]
    return Judged(
        front=problem.share([run[0] for run in best] if not problem.has_seconds else [run[0] for run in runs]),
        regret=problem.regret(taken),
        times_usd=problem.times_usd(taken),
        spent=spent_usd / most_usd,
        trials=len(kept),
    )


def courses(
    problems: Mapping[str, Sequence[str]], options: argparse.Namespace, work: Path
) -> dict[tuple[str, str, str, int], Judged]:
    """Return each study and rival by problem, method, budget and seed; those in `options.results` are not run again."""
    done: dict[tuple[str, str, str, int], Judged] = {}
    if options.results and options.results.exists():
        for line in options.results.read_text().splitlines():
            *key, values = json.loads(line)
            done[tuple(key)] = Judged(**values)
    for name in (name for names in problems.values() for name in names):
        if options.only and options.only not in name:
            continue
        problem = problem_of(name, options.folder, work)
        for budget in options.budgets.split(","):
            for method in options.methods.split(","):
                if method != OURS and budget not in AGAINST:
                    continue
                is_drawn = method in ("random", "tpe")
                has_noise = not isinstance(problem.table, grids.Grid) or problem.table.has_noise
                seeds = range(options.seeds) if (is_drawn or has_noise) and not name.startswith("demo") else [0]
                for seed in seeds if budget not in ("20", "end") or is_drawn else list(seeds)[:1]:
                    key = (name, method, budget, seed)
                    if key in done:
                        continue
                    at = int(name.partition("/")[2]) if name.startswith("demo") else seed
                    done[key] = study(problem, budget, at) if method == OURS else rival(problem, method, budget, at)
                    print(name, method, budget, seed, done[key], file=sys.stderr, flush=True)
                    if options.results:
                        with options.results.open("a") as file:
                            file.write(json.dumps([*key, asdict(done[key])]) + "\n")
    return done


def mean(values: Iterable[float | None]) -> str:
    """Return the mean of the values that are there, or a dash."""
    there = [value for value in values if value is not None]
    return f"{statistics.fmean(there):.2f}" if there else "-"


def rows(
    names: Sequence[str], family: str, done: Mapping[tuple[str, str, str, int], Judged]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each budget and method of a family; a problem with several seeds counts once."""
    for budget in BUDGETS:
        for method in (OURS, *RIVALS):
            groups = [[v for k, v in done.items() if k[:3] == (name, method, budget)] for name in names]
            each = [judged for group in groups for judged in group]
            if not each:
                continue

            def by_problem(get: Callable[[Judged], float | None], groups: Any = groups) -> str:
                means = [[v for j in group if (v := get(j)) is not None] for group in groups]
                return mean(statistics.fmean(values) if values else None for values in means)

            ours = method == OURS
            yield (
                f"{family}, {budget}",
                method,
                by_problem(lambda j: j.front),
                by_problem(lambda j: j.regret),
                by_problem(lambda j: j.times_usd),
                by_problem(lambda j: j.spent),
                "/".join(
                    f"{statistics.fmean(getattr(j, n) for j in each):.1f}" for n in ("trials", "probes", "repeats")
                ),
                str(sum(j.false for j in each)) if ours else "",
                f"{sum(j.is_refused for j in each)} of {len(each)}" if ours else "",
            )


_COLUMNS = (
    *("problems, budget", "method", "front", "regret", "USD", "spent"),
    *("trials/probes/repeats", "false", "refused"),
)


def main() -> None:
    """Read the arguments, run the studies, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="the files of benchmarks/search/grids.py")
    parser.add_argument("--half", choices=[*PROBLEMS], default="development")
    parser.add_argument("--budgets", default=",".join(BUDGETS), help="budgets in median jobs")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds where chance plays a part")
    parser.add_argument("--only", default="", help="only the problems whose names contain this")
    parser.add_argument("--results", type=Path, help="a file with a line for each study")
    parser.add_argument("--methods", default=",".join((OURS, *RIVALS)))
    options = arguments.parse(parser, budgets="3", seeds=1, only="tiny")
    RunTable.read = staticmethod(_runs)  # type: ignore[method-assign]  # a study reads its table again and again
    problems = {"tiny": ("tiny/0",)} if options.only == "tiny" else PROBLEMS[options.half]
    with tempfile.TemporaryDirectory() as work:
        done = courses(problems, options, Path(work))
        names = [name for group in problems.values() for name in group if any(key[0] == name for key in done)]
        grids_cost = [problem_of(name, options.folder, Path(work)).grid_jobs for name in names]
    lines = [row for family, names in problems.items() for row in rows(names, family, done)]
    made = published.conditions("paretune", "optuna", "scipy", "numpy")
    grid = f"The full grid costs {min(grids_cost):.0f} to {max(grids_cost):.0f} median jobs."
    text = [f"{made}; {options.seeds} seeds where anything is drawn.", "", *published.table(_COLUMNS, lines), "", grid]
    print(published.block(f"search_budgets_{options.half}", text))


if __name__ == "__main__":
    main()
