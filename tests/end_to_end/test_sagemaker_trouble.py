"""What goes wrong on SageMaker, and what the user then reads, pays and finds recorded."""

from pathlib import Path

import pytest

from tests.support.cloud import Cloud
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse, json, os, sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--per_device_train_batch_size", type=int)
parser.add_argument("--gradient_accumulation_steps", type=int)
arguments, _ = parser.parse_known_args()
{body}
Path(arguments.output_dir).mkdir(exist_ok=True)
Path(arguments.output_dir, "all_results.json").write_text(json.dumps({{"eval_f1": 0.5}}))
"""


@pytest.fixture
def script(workplace: Path) -> dict[str, object]:
    """Return a job that runs `train.py` of the current folder; `write` gives it a body."""
    return {"instance_type": "ml.m5.large", "entry_script": "train.py"}


def write(cloud: Cloud, body: str) -> None:
    (cloud.folder / "train.py").write_text(SCRIPT.format(body=body))


def test_a_failing_job_shows_the_reason_of_the_instance_that_failed_first_its_last_lines_and_where_to_look(
    cloud: Cloud, script: dict[str, object]
) -> None:
    write(
        cloud,
        "import time\n"
        "print('about to fail', flush=True)\n"
        "if os.environ['SM_CURRENT_HOST'] == 'algo-2': raise RuntimeError('no such luck')\n"
        "time.sleep(600)",
    )

    done = cloud.run(**script, instance_count=2)

    assert done.code == 3
    for part in ("RuntimeError: no such luck", "about to fail", "aws logs tail /aws/sagemaker/TrainingJobs"):
        assert part in done.text
    run = cloud.the_run()
    assert run.info.status == "FAILED"
    assert "no such luck" in tags_of(run)["paretune.failure_reason"]
    assert run.data.metrics["cost_usd"] > 0


def test_options_that_a_script_listed_when_it_was_asked_reach_it_as_it_spells_them(cloud: Cloud) -> None:
    (cloud.folder / "train.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "for name in ('hidden-size', 'learning-rate'):\n"
        "    parser.add_argument(f'--{name}', type=float, default=1.0)\n"
        "parser.add_argument('--quiet', action='store_true')\n"
        "args = parser.parse_args()\n"
        "print(f'val_f1: {args.hidden_size / 4}')\n"
        "print(f'val_loss: {args.learning_rate + args.quiet}')\n"
    )

    given = {"hidden_size": 3, "quiet": True}
    job = {"entry_script": "train.py", "instance_type": "ml.m5.large", "ask_script": True, "learning_rate": 0.5}
    done = cloud.run(**job, training_arguments=given)

    assert done.code == 0, done.text
    measured = cloud.the_run().data.metrics
    assert (measured["val_f1"], measured["val_loss"]) == (0.75, 1.5)


def test_a_script_finds_its_files_its_modules_and_its_requirements(cloud: Cloud, script: dict[str, object]) -> None:
    (cloud.folder / "rows.csv").write_text("text,label\nfine,1\n")
    (cloud.folder / "helper_of_mine.py").write_text("ANSWER = 42\n")
    (cloud.folder / "requirements.txt").write_text("numpy\n")
    write(
        cloud,
        "import helper_of_mine\n"
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--train_file')\n"
        "assert Path(parser.parse_known_args()[0].train_file).read_text().startswith('text,label')\n"
        "assert helper_of_mine.ANSWER == 42",
    )

    done = cloud.run(**script, dataset="rows.csv")

    assert done.code == 0, done.text
    assert cloud.the_run().data.metrics["f1"] == 0.5
    (request,) = cloud.created()
    assert {channel["ChannelName"] for channel in request["InputDataConfig"]} == {
        *("train", "job", "code"),
    }
