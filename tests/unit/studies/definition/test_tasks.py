"""Every task has what its jobs are compared by, and studies take it."""

import pytest

from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES, default_objectives, objective_faults, unmeasured


@pytest.mark.parametrize("name", metrics.TASKS)
def test_a_study_of_a_task_weighs_dollars_against_what_the_task_is_judged_by(name: str) -> None:
    task = metrics.TASKS[name]

    direction = OBJECTIVES[task.quality].direction

    assert default_objectives({"task": name}) == {"cost_usd": "minimize", task.quality: direction}
    assert objective_faults(task.quality, direction) == []
    assert list(unmeasured(name, "objectives", task.measures)) == []


def test_measures_of_other_tasks_are_refused_with_the_own_one() -> None:
    for name, task in metrics.TASKS.items():
        others = [metric for metric in OBJECTIVES if OBJECTIVES[metric].task and metric not in task.measures]
        faults = list(unmeasured(name, "objectives", others))

        assert len(faults) == len(others)
        assert all(f"is not measured with task {name}: use {task.quality} or eval_loss" in text for _, text in faults)
