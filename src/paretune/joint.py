"""`method: joint`: all searched parameters at once, as Optuna's sampler suggests; then the front again, for noise."""

from collections.abc import Callable, Mapping, Sequence

from paretune.driver import MOST_REFUSALS, Driver
from paretune.early_stopping import Curve, is_hopeless, optimistic_end
from paretune.pareto import front
from paretune.trial_job import TrialJob
from paretune.trials import Trial, TrialStatus

F1_NOISE = 0.005
"""Standard deviation of F1 between seeds where no repeats have shown it; SageMaker repeats differed by up to 0.0052."""
_NEVER_BEFORE = 0.15  # share of the training before which no curve is judged


def search(driver: Driver, *, stalled: Callable[[Sequence[Trial]], bool] = lambda trials: False) -> str:
    """Run the study to its end; why it ended, in words.

    Args:
        driver: runs the jobs.
        stalled: whether these trials show that the front has stopped growing.
    """
    reason = ""
    refused = 0
    curves: dict[int, Curve] = {}
    while True:
        while not reason and len(driver.running) < driver.file.n_parallel:
            reason = _over(driver, refused, stalled)
            if reason:
                break
            refused = 0 if driver.start(driver.study.ask()) else refused + 1
        _stop_hopeless(driver, curves)
        driver.look()
        if not driver.running and reason:
            return reason
        if driver.running:
            driver.wait()


def repeat_front(driver: Driver, most: int) -> int:
    """Train each point of the front once more with another seed, within the budget; how many were."""
    done = 0
    chosen = front_of(list(driver.trials.values()), driver.file.objectives)
    for trial in chosen[:most]:
        if any(other.repeats == trial.number for other in driver.trials.values()):
            continue
        asked = driver.study.ask_for(trial.point)
        done += driver.start(asked, changes={"seed": trial.seed + 1}, repeats=trial.number)
        while driver.running:
            driver.look()
            if driver.running:
                driver.wait()
    return done


def front_of(trials: Sequence[Trial], objectives: Mapping[str, str]) -> list[Trial]:
    """Completed first trials that no other one beats, the cheapest first where dollars are known."""
    found = [
        trial
        for trial in trials
        if trial.status is TrialStatus.COMPLETED and trial.repeats is None and set(objectives) <= set(trial.values)
    ]
    marks = front(
        [[trial.values[name] for name in objectives] for trial in found],
        [direction == "maximize" for direction in objectives.values()],
    )
    best = [trial for trial, is_best in zip(found, marks, strict=True) if is_best]
    return sorted(best, key=lambda trial: trial.cost_usd or 0.0)


def _over(driver: Driver, refused: int, stalled: Callable[[Sequence[Trial]], bool]) -> str:
    """Why no further trial is begun; empty while one is."""
    begun = [trial for trial in driver.trials.values() if trial.repeats is None]
    if driver.file.n_trials is not None and len(begun) + len(driver.running) >= driver.file.n_trials:
        return f"{driver.file.n_trials} trials were made"
    if driver.study.is_spent():
        return "every point of the grid was tried"
    if refused >= MOST_REFUSALS:
        return f"{refused} suggestions in a row were known, impossible or beyond what is left of the budget"
    if stalled(begun):
        return "the front has stopped growing"
    return ""


def _stop_hopeless(driver: Driver, finished: dict[int, Curve]) -> None:
    """Stop jobs whose optimistic end the front already beats; they are paid for what they have used."""
    objectives = driver.file.objectives
    if "f1" not in objectives or not set(objectives) <= {"f1", "cost_usd", "billable_seconds"}:
        return
    best = [dict(trial.values) for trial in front_of(list(driver.trials.values()), objectives)]
    for number, curve in driver.curves.items():
        finished.setdefault(number, curve)
    for job in driver.running:
        end = _optimistic(job, list(finished.values()))
        if end is not None and is_hopeless(end, best, objectives):
            job.stop_early(f"even an optimistic end (f1 {end['f1']:.3f}) would be beaten by the front")


def _optimistic(job: TrialJob, finished: Sequence[Curve]) -> dict[str, float] | None:
    if not job.curve or job.curve[-1][0] < _NEVER_BEFORE or job.curve[-1][0] >= 1.0:
        return None
    f1 = optimistic_end(job.curve, finished, F1_NOISE)
    if f1 is None:
        return None
    seconds = job.billable_seconds() / job.curve[-1][0]
    usd = job.usd(seconds)
    return {"f1": f1, "billable_seconds": seconds, **({} if usd is None else {"cost_usd": usd})}
