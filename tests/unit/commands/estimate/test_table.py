"""A table of estimates, as it is read and as it is drawn."""

import csv
import io
import itertools
from dataclasses import replace
from typing import Any

import pytest

from paretune.commands.estimate import table as rendered
from paretune.commands.estimate.table import MOST_LABELS, as_csv, as_text, figure, on_front
from paretune.estimating.architecture import well_known
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec

PRICE = Price(usd_per_hour=3.6, region="us-east-1", as_of="2026-11-20", source="test")
DESIGN = [
    *("instance_type", "instance_count", "per_device_train_batch_size", "seconds", "seconds_low", "seconds_high"),
    *("cost_usd", "memory_gib_per_device", "on_front", "basis"),
]


def estimate(price: Price | None = PRICE, **changes: Any) -> Estimate:
    spec = JobSpec(**{"model": "bert-base-uncased", "instance_type": "ml.g5.xlarge", **changes})
    built = well_known(spec.model)
    assert built is not None
    estimated = Estimator(Evidence()).estimate(spec, built, price)
    assert estimated is not None
    return estimated


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


FULL = {"per_device_train_batch_size": 4096, "max_seq_length": 512, "dataset": "a/b", "max_train_samples": 9000}


def test_the_first_columns_are_those_that_were_promised() -> None:
    assert as_csv([estimate()]).splitlines()[0].split(",")[: len(DESIGN)] == DESIGN


def test_a_row_says_what_the_estimate_says() -> None:
    item = estimate(instance_count=2, gradient_accumulation_steps=3)
    (row,) = read(as_csv([item]))

    assert (row["instance_type"], row["instance_count"], row["on_front"]) == ("ml.g5.xlarge", "2", "true")
    assert (row["per_device_train_batch_size"], row["global_batch_size"]) == ("16", "96")
    assert float(row["seconds"]) == pytest.approx(item.time.seconds, abs=0.1)
    assert float(row["cost_usd"]) == pytest.approx(item.time.seconds * 2 * 0.001)
    assert float(row["cost_usd_high"]) == pytest.approx(item.time.seconds_high * 2 * 0.001)
    assert float(row["seconds_per_step"]) * int(row["steps"]) < float(row["seconds"])
    assert row["basis"] == item.basis


def test_a_row_has_the_seconds_of_each_phase_with_their_interval() -> None:
    item = estimate()
    (row,) = read(as_csv([item]))

    for phase in ("waiting", "starting", "data", "image", "training", "uploading"):
        low, middle, high = (float(row[f"{phase}_{name}"]) for name in ("seconds_low", "seconds", "seconds_high"))
        assert low <= middle <= high
        assert middle == pytest.approx(item.phases[phase].seconds, abs=0.1)
    billed = sum(float(row[f"{phase}_seconds"]) for phase in ("data", "image", "training", "uploading"))
    assert billed == pytest.approx(item.time.seconds, abs=0.5)
    assert float(row["uploading_seconds"]) > 0


def test_a_job_on_this_machine_has_no_phases_but_its_training() -> None:
    (row,) = read(as_csv([estimate(price=None, instance_type="local")]))

    assert row["training_seconds"] == row["seconds"]
    assert {row[f"{phase}_seconds"] for phase in ("waiting", "starting", "data", "image", "uploading")} == {""}


def test_a_language_model_is_priced_by_its_tokens_and_by_days() -> None:
    cluster = {
        "instance_type": "ml.p4d.24xlarge",
        "instance_count": 120,
        "strategy": "fsdp",
        "training_arguments.gradient_checkpointing": True,
    }
    rows = {"task": "causal-lm", "dataset": "a/b", "max_seq_length": 2048, "max_train_samples": 1_200_000}
    item = estimate(model="gpt3-175b", tensor_parallel_degree=8, global_batch_size=1200, **cluster, **rows)
    (row,) = read(as_csv([item]))

    assert float(row["tokens"]) == 1_200_000 * 2048
    assert float(row["days"]) == pytest.approx(item.time.seconds / 86_400)
    assert float(row["usd_per_billion_tokens"]) == pytest.approx(float(row["cost_usd"]) / 2.4576, rel=1e-4)
    assert (row["tensor_parallel_degree"], row["cpu_offload"]) == ("8", "false")
    assert "USD per billion tokens" in as_text([item])
    assert "USD per billion tokens" not in as_text([estimate()])
    assert read(as_csv([estimate()]))[0]["tokens"] == ""


def test_a_row_says_whether_its_memory_was_traced() -> None:
    rows = read(as_csv([estimate(), replace(estimate(), is_traced=True)]))

    assert [row["memory_basis"] for row in rows] == ["formula", "traced"]


def test_what_is_not_known_is_an_empty_field() -> None:
    (row,) = read(as_csv([estimate(price=None)]))

    assert [row[name] for name in ("cost_usd", "cost_usd_low", "cost_usd_high", "price_usd_per_hour")] == [""] * 4
    assert row["on_front"] == "false"


def test_the_text_marks_the_front_and_names_what_differs() -> None:
    head, best, worse = as_text([estimate(fine_tuning="head"), estimate(fine_tuning="full")]).splitlines()

    assert head.split()[:3] == ["cluster", "batch", "fine_tuning"]
    assert best.split()[:6] == ["*", "1", "x", "ml.g5.xlarge", "16", "head"]
    assert worse.split()[:5] == ["1", "x", "ml.g5.xlarge", "16", "full"]
    assert "model" not in head  # the same in all rows


def test_the_text_says_what_does_not_fit_and_what_has_no_price() -> None:
    _, line = as_text([estimate(price=None, **FULL)]).splitlines()

    assert "does NOT fit" in line
    assert "no price" in line


@pytest.mark.parametrize(
    ("seconds", "message"),
    [(7.4, "7 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h"), (90_000, "25.0 h")],
)
def test_seconds_are_said_in_the_unit_that_one_would_use(seconds: float, message: str) -> None:
    assert rendered._time(seconds) == message


@pytest.mark.parametrize(("usd", "message"), [(12.345, "12.35"), (0.1, "0.10"), (0.0123, "0.012"), (0.0, "0")])
def test_small_sums_keep_their_digits(usd: float, message: str) -> None:
    assert rendered._usd(usd) == message


def test_the_picture_has_a_point_and_a_label_for_each_priced_row() -> None:
    drawing = figure([estimate(), estimate(instance_count=2), estimate(price=None, instance_type="ml.p4d.24xlarge")])
    (axes,) = drawing.axes

    assert [text.get_text() for text in axes.texts] == ["1 x, batch 16", "2 x, batch 16"]
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"ml.g5.xlarge", "predicted front"}
    assert "minutes" in axes.get_xlabel()
    assert axes.get_ylabel() == "USD"


def test_a_table_without_prices_has_no_picture() -> None:
    assert figure([estimate(price=None)]) is None


def test_a_table_of_which_nothing_fits_is_drawn_without_a_front() -> None:
    drawing = figure([estimate(**FULL)])
    (axes,) = drawing.axes

    assert [text.get_text() for text in axes.texts] == ["1 x, batch 4096, fits: no"]
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"ml.g5.xlarge"}


def test_labels_that_nobody_could_read_are_left_out() -> None:
    drawing = figure([estimate(instance_count=count) for count in range(1, MOST_LABELS + 2)])

    assert list(drawing.axes[0].texts) == []


def test_only_what_fits_and_has_a_price_is_on_the_front() -> None:
    # These have more arithmetic than communication.
    busy: dict[str, Any] = {"per_device_train_batch_size": 32, "max_seq_length": 512, "max_train_samples": 50_000}
    cheap, dear = estimate(**busy), estimate(**busy, instance_type="ml.g5.12xlarge", instance_count=4)
    unpriced = estimate(price=None, instance_type="ml.p4d.24xlarge")
    full = estimate(per_device_train_batch_size=4096, max_train_samples=16)

    assert full.fits == "no"
    assert full.time.seconds < cheap.time.seconds
    assert dear.time.seconds < cheap.time.seconds
    assert on_front([unpriced, cheap, full, dear]) == [False, True, False, True]
    assert on_front([full]) == [False]
    assert on_front([]) == []


@pytest.mark.parametrize("rows", [[10_000], [10_000, 1_000_000]])
def test_no_texts_of_the_axis_of_time_overlap(rows: list[int]) -> None:
    drawing = figure([estimate(max_train_samples=count) for count in rows])
    drawing.canvas.draw()
    (axes,) = drawing.axes
    low, high = axes.get_xlim()
    ticks = [*axes.get_xticks(), *axes.get_xticks(minor=True)]
    texts = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
    boxes = sorted(
        (text.get_window_extent().x0, text.get_window_extent().x1)
        for tick, text in zip(ticks, texts, strict=True)
        if low <= tick <= high and text.get_text()
    )

    assert len(boxes) >= 2
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(boxes))
