"""A user's own script, read without running it."""

import time
from pathlib import Path

import pytest

from paretune.user_code.arguments import Argument
from paretune.user_code.script import Script

PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def test_arguments_are_those_that_argparse_would_list(script: Path) -> None:
    script.write_text(
        "import argparse\n"
        "p = argparse.ArgumentParser()\n"
        "p.add_argument('rows')\n"
        "p.add_argument('-l', '--lr', '--learning-rate', type=float)\n"
        "g = p.add_argument_group('more')\n"
        "g.add_argument('--quiet', action='store_true')\n"
        "g.add_argument('--shuffle', action=argparse.BooleanOptionalAction)\n"
    )

    own = Script.read(script)

    assert own.arguments == (
        Argument(names=("rows",), is_positional=True, is_required=True),
        Argument(names=("lr", "learning-rate"), type="float"),
        Argument(names=("quiet",), switch=True),
        Argument(names=("shuffle",), switch=True, off="no-shuffle"),
    )
    assert own.names == ["lr", "learning-rate", "quiet", "shuffle", "no-shuffle"]
    assert own.is_complete
    assert not own.reads_anything
    assert own.argument("learning_rate") == "learning-rate"
    assert own.argument("rate") is None


def test_a_module_of_a_package_next_to_it_may_declare_the_arguments(script: Path) -> None:
    (script.parent / "utils").mkdir()
    (script.parent / "utils" / "__init__.py").write_text("from .options import parser\n")
    (script.parent / "utils" / "options.py").write_text(
        "import argparse\nparser.add_argument('--depth', required=True)\n"
    )
    for text in ("from utils import parser\n", "import utils.options\n", "from utils.options import parser\n"):
        script.write_text(text)
        own = Script.read(script)
        assert (own.arguments, own.is_complete) == ((Argument(names=("depth",)),), True)


def test_its_own_functions_that_get_the_parser_hide_no_argument_nor_does_another_variable_of_that_name(
    script: Path,
) -> None:
    more = "def add_more_args(p):\n    p.add_argument('--depth')\n"
    script.write_text(f"{more}{PARSER}add_more_args(p)\nfor p in model.parameters():\n    print(torch.argmax(p))\n")

    own = Script.read(script)

    assert (sorted(own.names), own.is_complete) == (["depth", "lr"], True)


@pytest.mark.parametrize(
    ("text", "reads_anything"),
    [
        ("not python at all: -\n", True),
        ("import click\n", False),
        ("for name in names:\n    p.add_argument(f'--{name}')\np.add_argument('--lr')\n", False),
        (f"import deepspeed\n{PARSER}p = deepspeed.add_config_arguments(p)\n", False),
        (f"from library import add_args\n{PARSER}add_args(parser=p)\n", False),
        (
            "import library\nclass Main:\n    def __init__(self):\n        self.parser = argparse.ArgumentParser()\n"
            "        self.parser.add_argument('--lr')\n        library.add_args(self.parser)\n",
            False,
        ),
        (
            "import library\np = argparse.ArgumentParser(parents=[library.parser()])\np.add_argument('--lr')\n",
            False,
        ),
    ],
)
def test_a_script_whose_arguments_its_text_does_not_show_is_not_complete(
    script: Path, text: str, reads_anything: bool
) -> None:
    script.write_text(text)

    own = Script.read(script)

    assert not own.is_complete
    assert own.reads_anything is reads_anything


def test_the_numbers_that_its_text_shows_it_to_report_are_expected(script: Path) -> None:
    script.write_text(
        "def compute_metrics(p):\n    return {'f1': 1, 'recall': 2}\n"
        "trainer.save_metrics('eval', metrics)\nmetrics['perplexity'] = 3\n"
        "print(f'Epoch {epoch}/{n} | loss: {loss:.3f}, val acc: {acc}')\nprint('rmse:', rmse)\nprint({'ndcg': value})\n"
        "mlflow.log_metric('r2', 1)\njson.dump({'mae': 2}, file)\nprint(f'{name}: {value}')\n"
    )

    names = {"eval_f1", "eval_recall", "eval_loss", "perplexity", "loss", "val_acc", "rmse", "ndcg", "r2", "mae"}
    assert set(Script.read(script).reported.metrics) == names


def test_metrics_are_found_in_the_calls_of_every_usual_logger_and_settings_are_none(script: Path) -> None:
    script.write_text(
        "import argparse, mlflow, wandb\nfrom torch.utils.tensorboard import SummaryWriter\n"
        "parser.add_argument('--batch-size')\nwidth = 3\ncount = 0\ncount += 1\n"
        "mlflow.log_metric('valid_f1', 1)\nwandb.log({'val/acc': 1, 'lr': lr})\nrun.summary['best_acc'] = 1\n"
        "writer.add_scalar('loss/train', 1, 2)\nself.log('test_acc', 1)\nlogger.info('epoch %d: val loss %.3f', 1, 2)\n"
        "print('Val F1: {:.3f}'.format(f1))\nprint('dice: %.2f' % dice)\nbar.set_postfix(iou=1)\n"
        "print(f'batch_size: {b}')\nprint(f'width: {width}, count: {count}, depth: {d}')\n"
    )
    (script.parent / "conf").mkdir()
    (script.parent / "conf" / "config.yaml").write_text("optimizer:\n  momentum: 0.9\nname: x\ndepth: 4  # layers\n")

    own = Script.read(script)

    names = {"valid_f1", "val/acc", "best_acc", "loss/train", "test_acc", "val_loss", "Val_F1", "dice", "iou", "count"}
    assert set(own.reported.metrics) == names
    assert own.reported.loggers == ("MLflow", "W&B", "TensorBoard")
    assert own.reported.settings == {"batch_size", "width", "momentum", "depth"}
    assert not own.sets_tracking


@pytest.mark.parametrize(
    ("text", "loggers"),
    [
        ("from transformers import AutoModel, Trainer", ("Hugging Face's Trainer",)),
        ("from transformers import (\n    AutoModel,\n    Seq2SeqTrainer,\n)", ("Hugging Face's Trainer",)),
        ("import trl\ntrl.SFTTrainer(model)", ("Hugging Face's Trainer",)),
        ("from transformers import AutoModel, TrainerCallback", ()),
        ("from transformers import AutoTokenizer\nclass Trainer: pass\nTrainer()", ()),
        (
            "from transformers import AutoModel\nimport lightning as L\nL.Trainer()",
            ("Lightning's CSV or TensorBoard",),
        ),
    ],
)
def test_a_script_that_imports_a_library_without_its_trainer_does_not_log_with_it(
    script: Path, text: str, loggers: tuple[str, ...]
) -> None:
    script.write_text(text)

    assert Script.read(script).reported.loggers == loggers


@pytest.mark.parametrize(("name", "line"), [("conf.yaml", "\n"), ("train.py", "x{} = 1\n")])
def test_the_time_to_read_a_script_grows_with_its_length(tmp_path: Path, name: str, line: str) -> None:
    def seconds(count: int) -> float:
        (tmp_path / "train.py").write_text("print('loss: 1')\n")
        (tmp_path / name).write_text("".join(line.format(number) for number in range(count)))
        began = time.process_time()
        Script.read(tmp_path / "train.py")
        return time.process_time() - began

    seconds(10)
    assert seconds(8000) < 30 * max(min(seconds(1000) for _ in range(3)), 0.01)
