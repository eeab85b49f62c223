"""What a study spends: dollars or, on a launcher that nobody bills, the time of its jobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paretune.presentation.text import duration, usd
from paretune.specification import metrics


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The unit in which a study counts what its jobs take, and the metric that its quality is traded against."""

    metric: str  # seconds or dollars of a job
    noun: str  # dollars or time, in a sentence
    text: Callable[[float], str]  # an amount in words
    is_dearer: str  # what a job that takes more is
    is_cheaper: str

    @property
    def is_time(self) -> bool:
        """Whether it counts seconds instead of dollars."""
        return self.metric == metrics.JOB_SECONDS

    def of_job(self, means: Mapping[str, float]) -> float:
        """Return what a job with these metrics takes, in seconds or dollars; 0 if unknown."""
        return means.get(self.metric, 0.0)


DOLLARS = Spending(metric=metrics.COST_USD, noun="dollars", text=usd, is_dearer="more expensive", is_cheaper="cheaper")
TIME = Spending(metric=metrics.JOB_SECONDS, noun="time", text=duration, is_dearer="longer", is_cheaper="shorter")


def spending_of(objectives: Mapping[str, str], *, is_billed: bool) -> Spending:
    """Return what a study with these objectives spends. One that trades quality against dollars spends dollars."""
    return DOLLARS if is_billed or metrics.COST_USD in objectives else TIME
