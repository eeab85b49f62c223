"""Studies with `finish_by`: no trial begins that would not be done by then, so that what is recommended is trained."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import NormalDist

from paretune.core.errors import BadInput
from paretune.jobs.deadline import seconds_at
from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.presentation.numbers import duration
from paretune.specification.job import JobSpec
from paretune.specification.limits import DEADLINE, finish_moment
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.trial_history import hash_without_seed
from paretune.tracking import Run, schema


def without_deadline(file: StudyFile) -> StudyFile:
    """The study without its deadline, for its trials: each of them only has to fit into the time that is left."""
    return replace(file, job={name: value for name, value in file.job.items() if name not in DEADLINE})


@dataclass
class StudyDeadline:
    """When a study has to be finished, in seconds since the epoch, and whether a trial would be done by then."""

    until: float
    confidence: float
    workplace: Workplace
    _least_s: float = math.inf
    _seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, file: StudyFile, jobs: Iterable[JobSpec], workplace: Workplace, run: Run | None
    ) -> "StudyDeadline | None":
        """The deadline of a study file; None without one.

        A duration counts from the first start of the study, which its run has recorded; `run` is None before that.

        Raises:
            BadInput: the study is new, and no trial would be done by then.
        """
        if not (text := file.job.get("finish_by")):
            return None
        recorded = json.loads(run.tags().get(schema.DEADLINE) or "{}") if run is not None else {}
        is_new = recorded.get("finish_by") != text
        now = workplace.clock.now()
        until = finish_moment(str(text), now) if is_new else float(recorded["until"])
        deadline = cls(until, float(file.job.get("finish_confidence", 0.95)), workplace)
        jobs = list(jobs)
        if all(deadline.why_not(spec) for spec in jobs) and is_new:
            least_s = min(deadline.seconds(spec) for spec in jobs)
            raise BadInput(
                [
                    f"finish_by={text}: the quickest trial takes {duration(least_s)} with probability "
                    f"{deadline.confidence:g}, and {duration(max(0.0, until - now))} are left: set a later time"
                ]
            )
        if run is not None:
            run.set_tags({schema.DEADLINE: json.dumps({"finish_by": text, "until": until})})
        return deadline

    def seconds(self, spec: JobSpec, longest_s: Mapping[str, float] | None = None) -> float:
        """Seconds in which a trial is done with the confidence: as equal ones were, as estimated, or as limited."""
        key = hash_without_seed(spec)
        if key not in self._seconds:
            price = self.workplace.launcher.price(spec)
            inputs = known_inputs(spec, self.workplace)
            estimate = self.workplace.forecast.time_of(spec, spec.plan(), inputs, price)
            limit_s = 60 * spec.max_runtime_minutes
            z = NormalDist().inv_cdf(self.confidence)
            self._seconds[key] = limit_s if estimate is None else seconds_at(estimate.phases, 0.0, z)
            self._least_s = min(self._least_s, self._seconds[key])
        return max(self._seconds[key], (longest_s or {}).get(key, 0.0))

    def why_not(self, spec: JobSpec, longest_s: Mapping[str, float] | None = None) -> str:
        """The reason why a trial may not begin now; empty if it would be done in time."""
        left_s = self.until - self.workplace.clock.now()
        seconds = self.seconds(spec, longest_s)
        return "" if seconds <= left_s else f"it takes {duration(seconds)}, and {duration(max(0.0, left_s))} are left"

    def why_over(self) -> str:
        """The reason why the search ends for lack of time; empty while some trial could be done."""
        left_s = self.until - self.workplace.clock.now()
        if self._least_s <= left_s:
            return ""
        return f"no further trial would be done by {datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M} UTC"
