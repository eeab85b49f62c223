"""What is learnt of a point's seconds."""

import pytest

from paretune.spec.job import JobSpec
from paretune.studies.recurring.history import TRY, Night, NightJob
from paretune.studies.recurring.points import _longest_s
from paretune.studies.search.trial_history import but_for_its_seed

POINT = {"learning_rate": 3e-5}
SPEC = JobSpec(learning_rate=3e-5)


def night(*jobs: tuple[str, float]) -> Night:
    """A night of jobs, each with its state and its seconds."""
    made = [
        NightJob(
            run_id=str(number),
            night="n0",
            part=TRY,
            point=POINT,
            state=state,
            value=0.9 if state == "Completed" else None,
            usd=1.0,
            seconds=seconds,
            started=float(number),
        )
        for number, (state, seconds) in enumerate(jobs)
    ]
    return Night(name="n0", number=0, jobs=made)


@pytest.mark.parametrize(
    ("jobs", "longest"),
    [
        ([("Completed", 100.0)], 100.0),
        ([("Completed", 100.0), ("Stopped", 300.0)], 300.0),  # it was cut off, and would have taken longer
        ([("Completed", 100.0), ("Failed", 20.0)], 100.0),
        ([("Stopped", 30.0)], None),  # it says nothing about how long it takes
    ],
)
def test_a_job_that_was_cut_off_raises_the_next_limit(jobs: list[tuple[str, float]], longest: float | None) -> None:
    found = _longest_s([POINT], [SPEC], [night(*jobs)])

    assert found == ({} if longest is None else {but_for_its_seed(SPEC): longest})
