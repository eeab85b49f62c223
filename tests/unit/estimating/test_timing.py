"""The time model: sums worked out by hand, and the effect of measurements."""

import math
from dataclasses import replace

import pytest

from paretune.core.noise import SECONDS_NOISE_OF_OTHER_DATA, Z80
from paretune.estimating.architecture import well_known
from paretune.estimating.counting import Work, describe
from paretune.estimating.timing import CALIBRATION, Measurement, Prediction, TimeModel, fit
from paretune.estimating.workload import setting_of
from paretune.specification.job import JobSpec

CONSTANTS = {
    "chip": "chip:a",
    "model": "model:a",
    "stack": "stack:own",
    "cluster": "",
    "launch": "launch:g5",
    "update": "update:own",
    "link": "link",
    "network": "",
    "between": "",
    "startup": "startup",
    "packing": "",
}
ROUND = Work(
    constants=CONSTANTS,
    cluster="one",
    kind="",
    is_local=False,
    is_ahead=True,
    instances=1,
    devices=1,
    steps=100,
    tokens=1e6,
    accumulation=2,
    flops=2e10,
    moved=2e9,
    kernels=500,
    updated=2e9,
    update_kernels=40,
    bubble=0,
    micro_link=0,
    micro_network=0,
    step_link=0,
    step_network=0,
    blocking_link=0,
    blocking_network=0,
    evaluated_flops=6e12,
    saved=6e8,
    packed=0,
    before=300,
    after=30,
    arithmetic=1e12,
    memory=1e11,
    link=1e10,
    network=1e9,
    flow=1e9,
)
# By the medians of the priors: 2e10 FLOP / 1e12 + 2e9 bytes / 1e11 = 0.04 s, twice, with 500 kernels x 20 us = 0.01 s
# at the same time; and the update, twice (2e9 bytes / 1e11 + 40 x 20 us).
PASS, LAUNCHES, UPDATE = 0.04, 0.01, 2 * (0.02 + 0.0008)
AROUND = 300 + 30 + 6 + 3  # start, end, evaluation, upload of 6e8 bytes at 200 MB/s


def busy(seconds: float) -> float:
    return (seconds**3 + LAUNCHES**3) ** (1 / 3)


STEP = 2 * busy(PASS) + UPDATE


def several(**changes: object) -> Work:
    constants = CONSTANTS | {"cluster": "cluster:two", "network": "efa", "between": "between:two"}
    return replace(ROUND, **{"constants": constants, "cluster": "two", **changes})  # type: ignore[arg-type]  # fields


def tcp(**changes: object) -> Work:
    return several(constants=several().constants | {"network": "tcp"}, **changes)


def predict(work: Work, model: TimeModel | None = None) -> Prediction:
    return (model or fit()).predict([work])[0]


def exposed(exchange: float, hidden_by: float) -> float:
    return exchange**2 / (exchange + hidden_by)


ONCE = PASS / 0.95  # several devices wait for each other


def exchanging(seconds: float) -> float:
    """Return the step of several devices whose exchange takes so long and is partly hidden."""
    return 2 * busy(ONCE) + UPDATE + exposed(seconds, 2 / 3 * busy(ONCE))


def test_one_device_is_the_sum_by_hand() -> None:
    found = predict(ROUND)

    assert found.step_seconds == pytest.approx(STEP)
    assert found.startup_seconds == pytest.approx(AROUND)
    assert found.seconds == pytest.approx(AROUND + 100 * STEP)
    assert found.steps == 100


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (several(step_network=1e8), exchanging(1e8 / (1e9 * 0.5))),
        (several(step_network=1e8, step_link=4e9), exchanging(4e9 / (1e10 * 0.5))),  # the links are slower
        (tcp(step_network=1e8), exchanging(1e8 / (1e9 * 0.4))),
        (tcp(step_network=1e8, flow=4e9), exchanging(1e8 / 1e9)),  # not faster than the network of a small instance
        # What travels in every micro-batch is hidden behind that micro-batch, and counts once for each.
        (several(micro_link=7e8), 2 * (busy(ONCE) + exposed(7e8 / (1e10 * 0.5), busy(ONCE))) + UPDATE),
        # 4 stages with 4 micro-batches wait for each other, and products wait for activations of other devices.
        (several(blocking_link=1e7, bubble=0.75), 2 * 1.75 * (busy(ONCE) + 1e7 / (1e10 * 0.5)) + UPDATE),
    ],
)
def test_what_a_step_cannot_hide_of_an_exchange_is_added(work: Work, seconds: float) -> None:
    assert predict(work).step_seconds == pytest.approx(seconds)


def test_the_parts_say_what_the_seconds_go_to_and_sum_to_them() -> None:
    found = predict(several(step_network=1e8))

    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    assert found.parts["compute"] == pytest.approx(100 * 2 * 0.02 / 0.95)
    assert found.parts["memory"] == pytest.approx(100 * (2 * 0.02 / 0.95 + 2 * 0.02))
    assert found.parts["launches"] == pytest.approx(100 * (2 * (busy(ONCE) - ONCE) + 2 * 0.0008))
    assert found.parts["exchange"] == pytest.approx(100 * exposed(0.2, 2 / 3 * busy(ONCE)))
    assert found.parts["evaluation"] == pytest.approx(6 / 0.95)
    assert (found.parts["start"], found.parts["upload"]) == (pytest.approx(300), pytest.approx(33))


def test_a_processor_starts_an_operator_after_the_one_before() -> None:
    constants = CONSTANTS | {"chip": "local:a", "launch": "launch local", "update": "update local"}
    found = predict(replace(ROUND, constants=constants, is_ahead=False))

    update = 0.5 * (0.02 + 40 * 23e-6)
    assert found.step_seconds == pytest.approx(2 * (PASS / 1.8 + 500 * 23e-6) + update)


def test_a_network_without_efa_is_less_certain_and_another_shows_it_only_in_part() -> None:
    by_efa, by_tcp = (work(step_network=1e8, steps=20_000) for work in (several, tcp))
    slow = fit([Measurement(work=by_tcp, step_seconds=3.0) for _ in range(5)])
    third = replace(by_tcp, constants=by_tcp.constants | {"between": "between:three"}, cluster="three")

    def width(work: Work, model: TimeModel | None = None) -> float:
        found = predict(work, model)
        return found.seconds_high / found.seconds

    assert width(by_tcp, slow) < 1.1
    assert width(third, slow) > 1.3
    assert width(by_efa) < width(by_tcp)


def test_runs_of_others_move_the_own_code_less_than_their_own() -> None:
    others = replace(ROUND, constants=CONSTANTS | {"stack": "stack:theirs", "update": "update:theirs"})
    model = fit([Measurement(work=others, step_seconds=2 * STEP, origin="published")])

    assert STEP < predict(ROUND, model).step_seconds < predict(others, model).step_seconds


def test_a_probe_shows_that_a_batch_four_times_as_large_takes_as_long() -> None:
    short = replace(ROUND, flops=2e9, moved=4e8, kernels=1000, accumulation=1)  # 20 ms of launches, 6 ms of work
    model = fit([Measurement(work=short, step_seconds=0.065)])  # as BERT base with 16 rows on an H200; 64 took as long

    assert predict(short, model).step_seconds == pytest.approx(0.065, rel=0.1)
    assert predict(replace(short, flops=8e9, moved=1.6e9), model).step_seconds == pytest.approx(0.068, rel=0.2)


def test_a_measurement_moves_its_neighbors_less_than_itself() -> None:
    model = fit([Measurement(work=ROUND, step_seconds=2 * STEP)])

    def ratio(**constants: str) -> float:
        return predict(replace(ROUND, constants=CONSTANTS | constants), model).step_seconds / STEP

    assert 1.9 < ratio() < 2.05
    assert 1.2 < ratio(chip="chip:other") < ratio(model="model:other") < ratio()


def test_what_was_measured_has_a_narrow_interval_and_what_was_not_a_wide_one() -> None:
    long = replace(ROUND, steps=20_000)  # the steps count, not the startup
    model = fit([Measurement(work=long, seconds=6000.0) for _ in range(5)])
    known = predict(long, model)
    unknown = predict(replace(long, constants=CONSTANTS | {"chip": "chip:new", "model": "model:new"}), model)

    assert known.seconds_high / known.seconds < 1.1 < unknown.seconds_high / unknown.seconds


def test_a_job_whose_step_was_not_measured_has_a_wider_interval_than_a_repeat() -> None:
    known = [Measurement(work=ROUND, seconds=seconds) for seconds in (450, 452, 455, 449, 451, 453)]
    repeat, other = fit(known).predict([replace(ROUND, steps=120), replace(ROUND, flops=ROUND.flops * 1.5)])

    widths = [item.seconds_high / item.seconds for item in (repeat, other)]
    assert widths[1] > 1.05 * widths[0]


def test_language_models_and_well_measured_chips_have_narrower_intervals_than_the_others() -> None:
    def width(chip: str, model: str) -> float:
        work = replace(ROUND, constants=CONSTANTS | {"chip": f"chip:{chip}", "model": model})
        (item,) = fit().predict([work])
        return item.seconds_high / item.seconds

    assert width("NVIDIA A100 bf16", "decoder:a") < width("NVIDIA A100 bf16", "model:a") < width("a", "model:a")
    assert width("NVIDIA V100 fp16", "model:a") > width("NVIDIA V100 fp32", "model:a")


def spread(work: Work, measured: list[Measurement]) -> float:
    """Return the deviation of the logarithm of a job's seconds that comes from constants."""
    item = predict(work, fit(measured))
    return math.sqrt((math.log(item.seconds_high / item.seconds) / Z80) ** 2 - SECONDS_NOISE_OF_OTHER_DATA**2)


@pytest.mark.parametrize("kind", CALIBRATION)
def test_the_interval_of_steps_is_calibrated_by_the_kind_of_job(kind: str) -> None:
    steps = replace(ROUND, steps=1e7)  # so many that nothing else counts
    around = replace(ROUND, steps=0)

    assert spread(replace(steps, kind=kind), []) == pytest.approx(CALIBRATION[kind] * spread(steps, []), rel=1e-3)
    assert spread(replace(around, kind=kind), []) == pytest.approx(spread(around, []), rel=0.01)


@pytest.mark.parametrize("kind", CALIBRATION)
def test_each_measurement_narrows_a_calibrated_interval_and_makes_its_factor_matter_less(kind: str) -> None:
    asked = replace(ROUND, steps=1e7)
    other_model = Measurement(work=replace(ROUND, constants=CONSTANTS | {"model": "model:b"}), step_seconds=STEP)
    known = [[], [other_model], [other_model, Measurement(work=replace(ROUND, flops=1e10), step_seconds=STEP)]]

    calibrated = [spread(replace(asked, kind=kind), list(measured)) for measured in known]
    factors = [narrow / spread(asked, list(measured)) for narrow, measured in zip(calibrated, known, strict=True)]

    assert calibrated == sorted(calibrated, reverse=True)
    assert [abs(math.log(factor)) for factor in factors] == sorted((abs(math.log(f)) for f in factors), reverse=True)


def test_a_chip_or_a_kind_of_job_without_a_measurement_has_a_wider_interval() -> None:
    def width(instance_type: str, tokens: int) -> float:
        typed = {"instance_type": instance_type, "max_seq_length": str(tokens), "max_train_samples": str(10**8)}
        spec = JobSpec.read({"task": "causal-lm", "model": "meta-llama/Llama-3.1-8B", "dataset": "a/b", **typed})
        built = well_known(spec.model)
        assert built is not None
        setting = setting_of(spec, spec.plan(), built)
        assert setting is not None
        (item,) = fit().predict([describe(setting)])
        return item.seconds_high / item.seconds

    usual = width("ml.p5.48xlarge", 4096)

    assert width("ml.p6-b200.48xlarge", 4096) > 1.2 * usual  # nobody has published a rate when constants were chosen
    assert width("ml.p5.48xlarge", 16_384) > 1.1 * usual
    assert width("ml.p5en.48xlarge", 4096) == pytest.approx(width("ml.p5.48xlarge", 4096), rel=0.1)  # the same chip
