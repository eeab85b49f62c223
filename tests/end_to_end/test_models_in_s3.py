"""A model in S3 stays there, and MLflow loads it by its registered name and by its address."""

import json
import sys
from pathlib import Path

import pytest

from paretune.tracking.models import logged_model_of
from tests.support.cloud import WITHIN_S, Cloud
from tests.support.processes import command
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow
NAME = "sentiment"
LOAD = """
import json, sys
import mlflow

name, own, text = sys.argv[1:]
labels = [mlflow.pyfunc.load_model(each).predict([{"text": text}])["label"].tolist() for each in (name, own)]
print(json.dumps([*labels, [said["label"] for said in mlflow.transformers.load_model(name)(text)]]))
"""


def test_a_model_that_a_job_has_left_in_s3_is_registered_and_loaded_by_its_name(
    tmp_path: Path, workplace: Path, tiny_job: dict[str, object]
) -> None:
    job = tiny_job | {"num_train_epochs": 4, "training_arguments": {"logging_steps": 2}, "register": NAME}
    with Emulator(tmp_path / "account") as emulator:
        cloud = Cloud(emulator, workplace)
        cloud.start_and_kill(**job)

        done = cloud.run("sync")

        assert done.code == 0, done.text
        assert f"registered as {NAME}/1, candidate" in done.text
        run = cloud.the_run()
        assert tags_of(run)["paretune.model"].endswith(f"{tags_of(run)['paretune.job_name']}/output/model/")
        assert {"report.json", "confusion_matrix.png"} <= {
            item.path for item in cloud.client.list_artifacts(run.info.run_id)
        }
        model = logged_model_of(cloud.client, run.info.run_id)
        assert model is not None
        addresses = (f"models:/{NAME}@candidate", model.model_uri)
        loading = [sys.executable, "-c", LOAD, *addresses, "a great warm film"]
        with command(loading, cwd=workplace, environment=cloud.environment) as reader:
            assert reader.wait(WITHIN_S) == 0, reader.text
        by_pyfunc, by_own_address, by_transformers = json.loads(reader.text.splitlines()[-1])
        assert by_pyfunc == by_own_address == by_transformers
        assert set(by_pyfunc) < {"negative", "positive"}
        (validation,) = (item.dataset for item in run.inputs.dataset_inputs if item.tags[0].value == "validation")
        judged = {item.key: (item.dataset_name, item.dataset_digest) for item in model.metrics or ()}
        assert judged["f1"] == (validation.name, validation.digest) == ("reviews.csv", validation.digest)
        assert model.params["learning_rate"] == run.data.params["learning_rate"]
