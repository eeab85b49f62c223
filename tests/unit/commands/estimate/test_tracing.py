"""Steps are traced in a process of their own, within the time that is given."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from paretune.commands.estimate.tracing import LIMIT, limit_s, trace
from paretune.core.errors import BadInput
from paretune.estimating.traced_step import TracedSteps
from tests.unit.estimating.test_traced_step import GPU


def test_the_time_is_limited_by_the_environment() -> None:
    assert limit_s({}) == 120
    assert limit_s({LIMIT: "7.5"}) == 7.5
    assert limit_s({LIMIT: "-1"}) == 0
    with pytest.raises(BadInput, match=f"{LIMIT} must be seconds, 0 for none, got 'soon'"):
        limit_s({LIMIT: "soon"})


@pytest.mark.slow
def test_what_can_be_traced_is_kept_and_the_rest_is_left_to_formulas(tmp_path: Path, tiny_model: Path) -> None:
    tiny = replace(GPU, config=json.loads((tiny_model / "config.json").read_text()), tokens=16)
    own_code = replace(tiny, config={"model_type": "nobody-s"})
    steps = TracedSteps(tmp_path)

    trace([own_code, tiny, tiny], steps, {**os.environ, LIMIT: "60"})

    result = steps.find(tiny)
    assert result is not None
    assert result.layers == 2
    assert steps.find(own_code) is None
    assert not steps.is_untried(own_code)


@pytest.mark.slow
def test_what_the_time_does_not_reach_is_still_open(tmp_path: Path) -> None:
    steps = TracedSteps(tmp_path)

    trace([GPU], steps, {**os.environ, LIMIT: "0.05"})

    assert steps.is_untried(GPU)
