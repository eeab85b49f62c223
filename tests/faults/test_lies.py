"""Jobs that leave a half-written or lying report.json or events.jsonl, and jobs that fill their disk."""

import pytest

from tests.faults.worlds import Trial

pytestmark = pytest.mark.slow

REPORTS = {
    "half": '{"metrics": {"f1": 0.',
    "empty": "",
    "another kind": "[1, 2, 3]",
    "text as number": '{"metrics": {"f1": "good"}, "facts": {}}',
    "not finite": '{"metrics": {"f1": NaN, "loss": Infinity}, "facts": {}}',
    "own bill": '{"metrics": {"cost_usd": -5.0, "billable_seconds": 0.0, "job_seconds": -1}, "facts": {}}',
    "no metrics": "{}",
    "unknown keys": '{"metrics": {"f1": 0.5}, "facts": {}, "more": 1}',
    "nested": '{"metrics": {"f1": {"macro": 1}}, "facts": null}',
    "binary": "\\xff\\x00",
}
LINES = {
    "half": '{"time": 1.0, "step": 3, "metr\\n',
    "no json": "Traceback (most recent call last):\\n",
    "another kind": "[1, 2]\\n",
    "text as number": '{"time": 1.0, "step": "two", "metrics": {"loss": "high"}}\\n',
    "unknown keys": '{"time": 1.0, "step": 2, "metrics": {"lie/a": 1.0}, "more": 1}\\n',
    "not finite": '{"time": 1.0, "step": 2, "metrics": {"lie/b": NaN}}\\n',
    "negative step": '{"time": -1.0, "step": -7, "metrics": {"lie/c": 1.0}}\\n',
    "huge": '{"time": 1e300, "step": 1e300, "metrics": {"lie/d": 1e400}}\\n',
    "binary": "\\xff\\xfe\\n",
    "no end": '{"time": 1.0, "step": 9, "metrics": {}}',
}


def test_a_report_that_is_not_one_fails_the_job_and_is_booked(trial: Trial) -> None:
    text = trial.draw.choice(list(REPORTS.values()))
    with trial.world("local") as world:
        world.may_fail = True
        world.write_script(steps=3, ending=f"(data / 'report.json').write_bytes(b'{text}')\nos._exit(0)")
        done = world.begin(world.open_run())
        assert done.wait() in (0, 3), done.text


def test_events_that_are_none_hide_no_other_event(trial: Trial) -> None:
    lies = list(LINES.values())
    trial.draw.shuffle(lies)
    with trial.world("local") as world:
        written = "".join(lies)
        body = f"(data / 'events.jsonl').write_bytes(b'{written}')\nprint({written!r}, flush=True)"
        world.write_script(steps=20, body=body.replace("\\\\x", "\\x"))
        done = world.begin(world.open_run())
        assert done.wait() == 0, done.text


def test_a_job_whose_disk_is_full_fails_with_that_reason_and_is_booked(trial: Trial) -> None:
    with trial.world("local") as world:
        world.write_script(steps=3, ending="open('/dev/full', 'w').write('x' * 10_000)")
        done = world.begin(world.open_run())
        assert done.wait() == 3
        assert "No space left on device" in done.text
