"""Shapes of clusters against each other: by hand."""

import pytest

from paretune.commands.report.observations import observations
from paretune.commands.report.scaling import Scaling, scalings
from paretune.commands.report.scaling_figures import pictures
from paretune.core.errors import BadInput
from paretune.specification import metrics
from paretune.tracking import RecordedJob
from tests.recorded_jobs import on_p3, recorded


def scaling_of(jobs: list[RecordedJob], factor: str = "shape") -> Scaling:
    (result,), _ = scalings(observations(jobs), factor)
    return result


def cells(result: Scaling) -> dict[str, list[str]]:
    table = result.table()
    return {name: [row[number].text for row in table.cells] for number, name in enumerate(table.headers)}


def test_means_deviations_and_steps_are_those_worked_out_by_hand() -> None:
    result = scaling_of([*on_p3(4, [3000, 3600]), *on_p3(1, [10_000, 10_400, 10_800])])
    cell_texts = cells(result)

    assert cell_texts["shape"] == ["1 x ml.p3.2xlarge", "4 x ml.p3.2xlarge"]
    assert cell_texts["devices"] == ["1", "4"]
    assert cell_texts["n"] == ["3", "2"]
    assert cell_texts["time"] == ["2 h 53 m ± 6 m 40 s", "55 m ± 7 m 4 s"]  # 10,400 ± 400 and 3,300 ± 424.26 s
    assert cell_texts["cost (USD)"] == ["10.40 ± 0.40", "13.20 ± 1.70"]
    assert cell_texts["time saved, one step up"] == ["", "1 h 58 m"]  # 7,100 s
    assert cell_texts["cost, one step up (USD)"] == ["", "+ 2.80"]
    assert cell_texts["speed-up"] == ["1.00", "3.15"]  # 10,400 / 3,300
    assert cell_texts["efficiency"] == ["100%", "79%"]  # 3.1515 / 4
    (row, other) = result.rows()
    assert row["billable_seconds_deviation"] == pytest.approx(400)
    assert other["dearer_usd"] == pytest.approx(2.8)


def test_one_run_has_no_deviation() -> None:
    cell_texts = cells(scaling_of([*on_p3(1, [100]), *on_p3(2, [60])]))

    assert cell_texts["time"] == ["1 m 40 s", "1 m"]


def test_origins_data_sets_and_models_stand_apart() -> None:
    jobs = [
        *(job for count in (1, 2) for job in on_p3(count, [100.0 / count])),
        *(job for count in (1, 2) for job in on_p3(count, [50.0 / count], tags={"origin": "published"})),
        *(job for count in (1, 2) for job in on_p3(count, [70.0 / count], dataset="other.csv")),
    ]
    result, left_out = scalings(observations(jobs))

    assert [(item.kind.origin, item.kind.dataset) for item in result] == [
        ("measured", "bundled:rotten_tomatoes"),
        ("measured", "other.csv"),
        ("published", "bundled:rotten_tomatoes"),
    ]
    assert [level.mean(metrics.BILLABLE_SECONDS) for level in result[2].levels] == [50, 25]
    assert left_out == []


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"per_device_train_batch_size": 8}, "per-device batch differs: 8, 16"),
        ({"precision": "fp16"}, "precision differs: auto, fp16"),
        ({"tags": {"used_versions": "torch 2.0"}}, "versions differs: torch 2.0, torch 2.13"),
    ],
)
def test_a_shape_whose_runs_differ_in_what_seconds_depend_on_is_marked(changes: dict[str, object], mark: str) -> None:
    same = {"tags": {"used_versions": "torch 2.13"}}
    jobs = [*on_p3(1, [100], **same), *on_p3(1, [90], **(same | changes)), *on_p3(2, [60], **same)]

    assert cells(scaling_of(jobs))["remark"] == [mark, ""]


def test_the_batch_that_ran_after_a_lack_of_memory_counts() -> None:
    smaller = {"used_per_device_train_batch_size": "8", "used_gradient_accumulation_steps": "2"}
    jobs = [*on_p3(1, [100]), *on_p3(1, [90], tags=smaller), *on_p3(2, [60])]

    assert cells(scaling_of(jobs))["remark"] == ["per-device batch differs: 8, 16", ""]


def test_what_differs_between_shapes_beside_them_is_known() -> None:
    result = scaling_of([*on_p3(1, [100, 101]), *on_p3(2, [60, 61], strategy="fsdp")])

    assert result.confounded == {"strategy": ["ddp", "fsdp"]}


def test_only_runs_of_equal_work_are_one_line() -> None:
    jobs = [
        *(job for count in (1, 2) for job in on_p3(count, [100 / count], max_train_samples=1000, num_train_epochs=4)),
        *(job for count in (1, 2) for job in on_p3(count, [25 / count], max_train_samples=1000, num_train_epochs=1)),
        *on_p3(4, [2.0], max_train_samples=100, num_train_epochs=1),
    ]
    groups, left_out = scalings(observations(jobs))

    assert [(group.kind.apart, group.efficiency(1)) for group in groups] == [
        ("1,000 rows x epochs", 1.0),
        ("4,000 rows x epochs", 1.0),
    ]
    assert len(left_out) == 1
    assert "100 rows x epochs: 1 run" in left_out[0]


@pytest.mark.parametrize("factor", ["shape", "learning_rate", "devices"])
def test_one_level_is_refused_with_what_is_there(factor: str) -> None:
    with pytest.raises(BadInput, match=f"at least two values of {factor}, got measured: .* 2 runs, all with {factor}"):
        scalings(observations(on_p3(1, [100, 110])), factor)


def test_no_run_at_all_is_refused() -> None:
    with pytest.raises(BadInput, match="no completed run matches"):
        scalings([])


def test_another_factor_compares_within_a_shape() -> None:
    jobs = [job for count in (1, 2) for rate in (1e-5, 1e-4) for job in on_p3(count, [100], learning_rate=rate)]
    result, _ = scalings(observations(jobs), "learning_rate")

    assert [item.kind.apart for item in result] == ["1 x ml.p3.2xlarge", "2 x ml.p3.2xlarge"]
    assert [level.name for level in result[0].levels] == ["1e-05", "0.0001"]


def test_jobs_that_failed_and_probes_are_left_out() -> None:
    jobs = [*on_p3(1, [100], tags={"state": "Failed"}), *on_p3(1, [10], probe_steps=40), *on_p3(1, [99])]

    assert len(observations(jobs)) == 1


def test_a_figure_of_many_runs_has_no_tooltip_for_each() -> None:
    few, many = ([job for count in (1, 2) for job in on_p3(count, [100.0] * runs)] for runs in (3, 400))
    sizes = []
    for jobs in (few, many):
        (bars,) = [picture for picture in pictures(scaling_of(jobs), 0) if picture.name == "time-and-cost"]
        sizes.append(bars.svg().count("<title>run "))

    assert sizes == [3 * 2 * 2, 0]


def test_local_processes_are_devices_and_their_dollars_notional() -> None:
    (observation,) = observations([recorded(instance_count=2)])

    assert (observation.devices, observation.kind.is_notional) == (2, True)
