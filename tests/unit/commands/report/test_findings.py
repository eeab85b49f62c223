"""What runs say in words, and what they do not say."""

import re

from paretune.commands.report.findings import findings
from paretune.commands.report.observations import observations
from paretune.commands.report.scaling import scalings
from paretune.tracking import RecordedJob
from tests.recorded_jobs import on_p3


def said(jobs: list[RecordedJob]) -> list[str]:
    (result,), _ = scalings(observations(jobs))
    return findings(result)


def found_in(sentences: list[str], part: str) -> bool:
    return any(part in sentence for sentence in sentences)


def test_a_step_up_says_what_it_saves_and_costs() -> None:
    sentences = said([*on_p3(1, [10_000, 10_200]), *on_p3(4, [3000, 3100])])

    assert sentences[0] == (
        "From 1 x ml.p3.2xlarge to 4 x ml.p3.2xlarge: saves 1 h 58 m (70%), costs + 2.10 USD, "
        "speed-up 3.31 over 1 x ml.p3.2xlarge, efficiency 83%."
    )
    assert found_in(
        sentences, "1 x ml.p3.2xlarge and 4 x ml.p3.2xlarge, by Tukey's test: time differs by more than noise (p"
    )


def test_too_few_repeats_are_said() -> None:
    sentences = said([*on_p3(1, [100], f1=0.9), *on_p3(2, [60], f1=0.91), *on_p3(4, [40], f1=0.89)])

    assert found_in(sentences, "by Tukey's test: too few repeats to tell time, cost, F1 apart.")
    assert found_in(sentences, "F1: too few repeats to tell whether a straight line fits (no setting ran twice)")


def test_data_sizes_that_differ_within_a_shape_count_as_noise_of_f1_and_that_is_said() -> None:
    jobs = [
        job
        for count in (1, 2)
        for size, values in ((1000, (0.80, 0.81)), (4000, (0.90, 0.91)))
        for value in values
        for job in on_p3(
            count, [100 / count], f1=value - 0.001 * count, max_train_samples=size, num_train_epochs=4e3 / size
        )
    ]

    assert found_in(said(jobs), ", where data sizes that differ within them count as noise)")


def test_rates_of_two_rules_in_a_shape_are_said() -> None:
    rules = ("none", "sqrt")
    jobs = [job for count in (1, 2) for rule in rules for job in on_p3(count, [100], learning_rate_scaling=rule)]

    assert found_in(
        said(jobs), "F1 is of runs that differ in scaling of the learning rate: learning_rates=fixed or =scaled"
    )


def test_noise_is_called_noise() -> None:
    sentences = said([*on_p3(1, [100, 140, 120]), *on_p3(2, [110, 90, 135])])

    assert found_in(sentences, "time cannot be told apart from noise (p 0.")


def test_a_straight_line_that_does_not_hold_is_said_with_its_probability() -> None:
    jobs = [
        job
        for count, values in {1: (0.90, 0.901), 2: (0.95, 0.951), 8: (0.90, 0.901)}.items()
        for value in values
        for job in on_p3(count, [100 / count], f1=value)
    ]
    sentences = said(jobs)

    (sentence,) = [item for item in sentences if "straight line" in item]
    assert re.search(
        r"A straight line does not hold for F1 \(f1 ~ log2\(devices\); lack of fit .* F\(1, 3\) .*, p < 0.0001\)",
        sentence,
    )
    assert found_in(sentences, "per doubling of devices (f1 ~ log2(devices), least squares, 6 runs, 95% intervals)")


def test_an_effect_that_depends_on_another_one_says_where_it_holds() -> None:
    jobs = [
        job
        for count in (1, 4, 16)
        for size, loss in ((1000, 0.01), (4000, 0.002), (16_000, 0.001))
        for noise in (-0.001, 0.001)
        for job in on_p3(
            count,
            [100 / count],
            f1=0.9 + noise - loss * count / 4,
            max_train_samples=size,
            num_train_epochs=16_000 / size,
        )
    ]

    assert found_in(said(jobs), "per doubling of devices at 4,000 rows, by ")
    assert found_in(said(jobs), "per doubling of data size at 4.0 devices and the effect of devices by ")


def test_what_is_not_comparable_comes_first() -> None:
    sentences = said(
        [
            *on_p3(1, [100], precision="fp32", max_train_samples=100),
            *on_p3(1, [90], precision="fp16", max_train_samples=100),
            *on_p3(2, [60], strategy="fsdp", max_train_samples=100),
        ]
    )

    assert "no repeats of each other: precision differs" in sentences[0]
    assert found_in(sentences, "Shape is not all that differs between the rows: so does strategy (ddp, fsdp)")
