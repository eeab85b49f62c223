"""Every task has what its jobs are compared by, and studies take it."""

import pytest

from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES, default_objectives, objective_faults


@pytest.mark.parametrize("name", metrics.TASKS)
def test_a_study_of_a_task_weighs_dollars_against_what_the_task_is_judged_by(name: str) -> None:
    task = metrics.TASKS[name]
    direction = OBJECTIVES[task.quality].direction

    assert default_objectives({"task": name}) == {"cost_usd": "minimize", task.quality: direction}
    assert objective_faults(task.quality, direction, name) == []
    for metric in OBJECTIVES:
        faults = objective_faults(metric, OBJECTIVES[metric].direction, name)
        is_of_another = OBJECTIVES[metric].task is not None and metric not in task.measures
        assert len(faults) == is_of_another
        assert all(f"is not measured with task {name}: use {task.quality} or eval_loss" in text for text in faults)
