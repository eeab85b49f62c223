"""A quantised model with accelerate's hooks around its layers, as on several devices."""

from pathlib import Path
from typing import Any

import accelerate
import pytest

from paretune.specification.container import JobFolder
from paretune.specification.job import JobSpec
from paretune.training import model
from tests.unit.training.conftest import SPEC
from tests.unit.training.test_loop import prepared_for, report_of


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning")  # of peft, for GPT-2
def test_a_model_in_four_bits_trains_alike_with_and_without_the_hooks_of_a_device_map(
    folder: JobFolder, tmp_path: Path, tiny_causal_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "texts.txt"
    rows.write_text("the great warm film\ndull and cold story\n" * 40)
    spec = SPEC.replace(task="causal-lm", dataset=str(rows), fine_tuning="qlora", learning_rate=0.01)
    prepared_for(spec, folder, tiny_causal_model)
    load = model._load

    def load_with_hooks(job: JobSpec, *arguments: Any) -> Any:
        whole, drawn = load(job, *arguments)
        if job.strategy == "device_map":  # transformers adds none between equal devices
            parts = {name.rpartition(".weight")[0]: "cpu" for name, _ in whole.named_parameters() if ".h." not in name}
            layers = {f"transformer.h.{number}": "cpu" for number in range(whole.config.n_layer)}
            accelerate.dispatch_model(whole, device_map=parts | layers, force_hooks=True)
        return whole, drawn

    monkeypatch.setattr(model, "_load", load_with_hooks)
    plain = report_of(spec, folder).metrics["perplexity"]
    folder.report.unlink()

    assert report_of(spec.replace(strategy="device_map"), folder).metrics["perplexity"] == plain
