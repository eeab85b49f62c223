"""Studies with `finish_by`: which trials begin, and where the time counts from."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.estimating.phases import Seconds
from paretune.specification.job import JobSpec
from paretune.studies.search.deadline import StudyDeadline, without_deadline
from paretune.studies.search.trial_history import hash_without_seed
from tests.unit.jobs.test_retrying_job import Clock

SHORT, LONG = JobSpec(learning_rate=1e-4), JobSpec(learning_rate=2e-4, max_runtime_minutes=120)


@dataclass
class TaggedRun:
    """The tags of a study's run."""

    written: dict[str, str] = field(default_factory=dict)

    def tags(self) -> dict[str, str]:
        return self.written

    def set_tags(self, tags: dict[str, str]) -> None:
        self.written |= tags


@dataclass
class Forecast:
    """An hour for SHORT, nothing for other jobs."""

    def time_of(self, spec: JobSpec, *_: object) -> Any:
        hour = Seconds(seconds=3600.0, seconds_low=3600.0, seconds_high=3600.0)
        return SimpleNamespace(phases={"training": hour}) if spec == SHORT else None


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("paretune.studies.search.deadline.known_inputs", lambda *_: None)
    launcher = SimpleNamespace(price=lambda _: None)
    return SimpleNamespace(clock=Clock(), launcher=launcher, forecast=Forecast())


def begun(place: Any, run: TaggedRun, finish_by: str = "90m") -> StudyDeadline:
    file: Any = SimpleNamespace(job={"finish_by": finish_by})
    deadline = StudyDeadline.of(file, [SHORT, LONG], place, run)  # type: ignore[arg-type]
    assert deadline is not None
    return deadline


def test_a_trial_begins_if_it_is_done_in_time_as_estimated_as_equal_ones_or_as_limited(place: Any) -> None:
    deadline = begun(place, TaggedRun())

    assert deadline.why_not(SHORT) == ""
    assert deadline.why_not(LONG) == "it takes 2 h, and 1 h 30 m are left"
    assert "it takes 1 h 40 m" in deadline.why_not(SHORT, {hash_without_seed(SHORT): 6000.0})


def test_the_search_is_over_when_not_even_the_shortest_trial_would_be_done(place: Any) -> None:
    deadline = begun(place, TaggedRun())
    before = deadline.why_over()
    place.clock.time += 1801.0

    assert before == ""
    assert deadline.why_over().startswith("no further trial would be done by 2027-01-15 ")


def test_a_duration_counts_from_the_first_start_of_the_study_also_when_its_time_is_over(place: Any) -> None:
    run = TaggedRun()
    first = begun(place, run).until
    place.clock.time += 7200.0

    assert begun(place, run).until == first
    assert begun(place, run, "2h").until == place.clock.now() + 7200.0  # another command says another time


def test_a_new_study_without_time_for_any_trial_is_refused(place: Any) -> None:
    with pytest.raises(BadInput, match="finish_by=10m: the quickest trial takes 1 h with probability 0"):
        begun(place, TaggedRun(), "10m")


def test_trials_have_no_deadline_of_their_own() -> None:
    from paretune.studies.definition.file import StudyFile

    file = StudyFile.read("studies/pareto.yaml", {"finish_by": "6h", "finish_confidence": "0.9"})

    assert file.job["finish_by"] == "6h"
    assert not {"finish_by", "finish_confidence"} & without_deadline(file).job.keys()
