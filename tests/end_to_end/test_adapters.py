"""Adapters trained through the product: on 4-bit weights, in one process and in two, stopped, resumed and loaded."""

from pathlib import Path

import pytest

from paretune.specification.job import JobSpec
from tests.conftest import sentences, write_csv
from tests.end_to_end.instances import curves, make_job, run
from tests.end_to_end.test_strategies import model_without_dropout, on_two_processes

pytestmark = [
    pytest.mark.slow,
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


@pytest.fixture(scope="module")
def quantised(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    """Forty-two steps in one process, an evaluation after every third, of a model without dropout."""
    folder = tmp_path_factory.mktemp("inputs")
    return JobSpec(
        model=str(model_without_dropout(tiny_model, folder / "sober")),
        dataset=str(write_csv(folder / "reviews.csv", sentences(120))),
        max_seq_length=32,
        num_train_epochs=6.0,
        learning_rate=5e-3,
        global_batch_size=16,
        precision="fp32",
        fine_tuning="qlora",
        lora={"r": 4},
        training_arguments={"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 3},
    )


@pytest.fixture(scope="module")
def undisturbed(quantised: JobSpec, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], float]:
    """What is recorded of that job."""
    job = make_job(tmp_path_factory.mktemp("alone") / "job", quantised)
    run([job])
    result = curves(job)
    losses = [value for (_, name), value in result.items() if name == "train/loss"]
    assert len(losses) == 42
    assert max(losses) - min(losses) > 0.01  # something is learnt
    return result


def test_two_processes_train_four_bit_weights_to_the_losses_of_one(
    quantised: JobSpec, undisturbed: dict[tuple[int, str], float], tmp_path: Path
) -> None:
    together = make_job(tmp_path / "job", on_two_processes(quantised))

    run([together], environment={"GLOO_SOCKET_IFNAME": "lo"})

    assert curves(together) == pytest.approx(undisturbed, rel=1e-3, abs=1e-5)
