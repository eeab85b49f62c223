"""Metrics of users' own trainings: from printed lines, from files, and by SageMaker's metric definitions."""

import csv
import io
import json
import math
import time
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from paretune.user_code.script_metrics import (
    LONGEST_LINE,
    Point,
    PrintedNumbers,
    Source,
    is_setting,
    logged,
    logging_environment,
    numbers_in,
    read_curves,
    setting_names,
    write_curves,
    written_file,
)
from paretune.user_code.script_metrics.loggers import is_log_file

HERE = Path(__file__).parent


def printed_lines() -> list[tuple[str, dict[str, float]]]:
    """Return lines as common programs print them, escaped, with the numbers to read from each; none for settings."""
    with (HERE / "printed_lines.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(row["line"].encode("latin1").decode("unicode_escape"), json.loads(row["numbers"])) for row in rows]


@pytest.mark.parametrize(("line", "numbers"), printed_lines())
def test_a_line_of_a_common_program_gives_the_numbers_that_a_reader_sees(line: str, numbers: dict[str, float]) -> None:
    assert numbers_in(line) == pytest.approx(numbers)
    printed = PrintedNumbers()  # as in a running job whose script's text has none of these names
    printed.read(line)
    assert printed.results([], {}).metrics == pytest.approx(numbers)


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("val_f1: 0.91", {"val_f1": 0.91}),
        ("widgets=3", {"widgets": 3.0}),
        ("eval f1 = 0.91", {"eval_f1": 0.91}),
        ("{'eval_f1': 0.9, 'kpi': '2', 'epoch': 1.0}", {"eval_f1": 0.9, "kpi": 2.0}),
        ("{'accuracy': 0.9, 'macro avg': {'f1-score': 0.8}}", {"accuracy": 0.9, "macro avg/f1-score": 0.8}),
        ("Epoch 1/5 | loss: 0.41 | val acc=.9", {"loss": 0.41, "val_acc": 0.9}),
        ("step 250: train loss 1.5, val loss 2.5", {"train_loss": 1.5, "val_loss": 2.5}),
        ("[7]\ttrain-auc:0.8\tvalidation-auc:0.7", {"train-auc": 0.8, "validation-auc": 0.7}),
        ("23/23 - 0s - 2ms/step - accuracy: 0.85 - val_loss: 4e-1", {"accuracy": 0.85, "val_loss": 0.4}),
        ("epoch 0: {'accuracy': 0.7}", {"accuracy": 0.7}),
        ("Epoch 3: took 5 minutes, loss 0.4", {"loss": 0.4}),
        ("2026-11-26 10:00:00 loss: 0.3", {"loss": 0.3}),
        ("INFO eval_accuracy = 0.93, in all", {"eval_accuracy": 0.93}),
        ("widgets=3 of all that were there", {}),  # not a known metric
        ("{'loss': nan, 'f1': 0.5, 'flag': True}", {"loss": math.inf, "f1": 0.5}),
        ("loss: 1e999", {"loss": math.inf}),
        ("epoch 2: loss -inf, f1 NaN", {"loss": -math.inf, "f1": math.nan}),
        ("| End of training | test loss  6.18 | test ppl   483.63", {"test_loss": 6.18, "test_ppl": 483.63}),
        ("| end of epoch   1 | time:  1.00s | valid loss  6.18", {"valid_loss": 6.18}),  # and cells of words
    ],
)
def test_a_printed_line_gives_the_numbers_that_a_reader_sees(line: str, numbers: dict[str, float]) -> None:
    assert numbers_in(line) == pytest.approx(numbers, nan_ok=True)


def test_settings_by_name_are_no_metrics_however_they_are_printed() -> None:
    settings = setting_names(["alpha", "optimizer.beta-max", "eval-loss"])

    assert numbers_in("alpha: 0.5", settings) == {}
    assert numbers_in("{'alpha': 0.5, 'beta_max': 2, 'f1': 0.9}", settings) == {"f1": 0.9}
    assert numbers_in("eval_loss: 0.5", settings) == {
        "eval_loss": 0.5
    }  # the option selects a loss, and the line has its value


@pytest.mark.parametrize(("name", "is_one"), [("max_depth", True), ("max_depth_used", False), ("n_rows_used", False)])
def test_a_setting_that_a_script_reports_as_used_is_a_number_of_its_own(name: str, is_one: bool) -> None:
    assert is_setting(name) is is_one


@pytest.mark.parametrize(
    "last", ["best epoch: 3", "Epoch 1 finished", "Saved checkpoint at step 100", "Best model was at epoch 3"]
)
def test_a_counter_after_the_only_metric_erases_nothing(last: str) -> None:
    printed = after("val_f1: 0.88", last)

    assert printed.results([], {}).metrics == {"val_f1": 0.88}
    assert points_of(printed).get("val_f1", [(0, 0.88)]) == [(0, 0.88)]


def test_every_value_of_folds_is_a_point_and_the_passes_are_counted() -> None:
    folds = [(0.41, 0.42, 0.43), (0.51, 0.52, 0.53), (0.61, 0.62, 0.63)]
    lines = [f"epoch {step}: {{'accuracy': {value}}}" for fold in folds for step, value in enumerate(fold)]
    printed = after(*lines, "Average test metrics from all folds: {'accuracy': 0.52}")

    values = [(step, value) for fold in folds for step, value in enumerate(fold)]
    assert points_of(printed) == {"accuracy": [*values, (2, 0.52)]}
    found = printed.results([], {})
    assert found.metrics == {"accuracy": 0.52}  # the last one
    assert found.passes == {"accuracy": "10 values in 3 passes"}


def test_every_batch_of_an_epoch_is_a_point() -> None:
    losses = [(epoch, batch, 1 / (1 + epoch * 19 + batch)) for epoch in range(2) for batch in range(19)]
    printed = after(
        *(f"[Epoch {epoch}/2] [Batch {batch}/19] [D loss: {loss:.6f}] [G loss: 0.9]" for epoch, batch, loss in losses)
    )

    points = points_of(printed)
    assert points["D_loss"] == [(epoch, round(loss, 6)) for epoch, _, loss in losses]
    assert len(points["G_loss"]) == 38
    assert printed.results([], {}).passes == {}


def test_lines_of_several_ranks_are_points_in_their_order() -> None:
    printed = after(
        *(f"[RANK{rank}] Epoch {epoch} | Eval Loss {2 - epoch + rank / 10:.2f}" for epoch in (1, 2) for rank in (0, 1))
    )

    assert points_of(printed) == {"Eval_Loss": [(1, 1.0), (1, 1.1), (2, 0.0), (2, 0.1)]}


def test_what_two_processes_print_into_one_line_are_two_values() -> None:
    line = "[RANK0] Epoch 1 | Iter 0 | Train Loss 1.5[RANK1] Epoch 1 | Iter 0 | Train Loss 2.5"

    assert points_of(after(line, "")) == {"Train_Loss": [(1, 1.5), (1, 2.5)]}


def test_the_number_of_a_mini_batch_is_a_step() -> None:
    printed = after("Loss after mini-batch     6: 2.303", "Loss after mini-batch    12: 2.171")

    assert points_of(printed) == {"Loss": [(6, 2.303), (12, 2.171)]}


def stable_baselines(step: int, reward: float) -> list[str]:
    return [
        "---------------------------------",
        "| rollout/            |         |",
        "|    ep_len_mean      | 22.5    |",
        f"|    ep_rew_mean      | {reward}    |",
        "| time/               |         |",
        "|    fps              | 1200    |",
        "|    time_elapsed     | 7       |",
        f"|    total_timesteps  | {step}    |",
        "| train/              |         |",
        "|    approx_kl        | 0.0084  |",
        "|    clip_fraction    | 0.085   |",
        "|    clip_range       | 0.2     |",
        "|    explained_variance | -0.01 |",
        "|    learning_rate    | 0.0003  |",
        "|    loss             | 6.5     |",
        "|    n_updates        | 10      |",
        "---------------------------------",
    ]


def test_each_table_of_stable_baselines3_is_a_point_at_its_timesteps() -> None:
    printed = after(*(line for step, reward in ((2048, 21.6), (4096, 29.9)) for line in stable_baselines(step, reward)))

    points = points_of(printed)
    assert points["ep_rew_mean"] == [(2048, 21.6), (4096, 29.9)]
    assert points.keys() == {
        *("ep_len_mean", "ep_rew_mean", "fps", "approx_kl", "clip_fraction", "explained_variance", "loss"),
    }


def test_a_value_before_training_is_a_point_and_no_later_one_replaces_it() -> None:
    printed = after("zero-shot accuracy: 0.31", "epoch 1 accuracy: 0.5", "epoch 2 accuracy: 0.6", "accuracy: 0.55")

    found = printed.results([], {})
    assert found.metrics == {"zero-shot_accuracy": 0.31, "accuracy": 0.55}
    assert points_of(printed) == {"accuracy": [(1, 0.5), (2, 0.6), (2, 0.55)]}  # a value alone needs no curve
    assert points_of(after("accuracy: 0.31", "epoch 1 accuracy: 0.5")) == {"accuracy": [(0, 0.31), (1, 0.5)]}


def test_a_step_printed_with_a_single_value_is_its_step() -> None:
    assert points_of(after("step 500: test loss 2.2946")) == {"test_loss": [(500, 2.2946)]}
    assert points_of(after("[20]\tvalid_0's l1: 0.25")) == {"valid_0's_l1": [(20, 0.25)]}


def test_a_report_with_fewer_digits_does_not_replace_the_number_and_an_equal_format_does() -> None:
    report = "    accuracy                           0.62        60"

    assert after("accuracy: 0.616667", report).results([], {}).metrics == {"accuracy": 0.616667}
    assert after("accuracy: 0.6167", "accuracy: 0.6200").results([], {}).metrics == {"accuracy": 0.62}
    assert after("accuracy: 0.9876", "accuracy: 1.0").results([], {}).metrics == {"accuracy": 1.0}


@pytest.mark.parametrize(
    "line", ["Overwriting n_timesteps with n=2000", "Log path: 1", "Loading hyperparameters from: 1", "value: 3"]
)
def test_what_a_script_says_that_it_has_set_is_no_metric_although_its_text_has_the_words(line: str) -> None:
    named = {"Overwriting_n_timesteps_with_n", "Log_path", "Loading_hyperparameters_from"}

    assert after(line, "val_f1: 0.5", named=named).results([], {}).metrics == {"val_f1": 0.5}


def test_a_curve_with_too_many_values_keeps_every_second_one_and_the_last_and_says_so() -> None:
    printed = after(*(f"step {step}: loss {step / 1000:.4f}" for step in range(25_001)))

    found = printed.results([], {})
    assert [*found.thinned] == ["loss"]
    assert len(found.curves["loss"]) < 10_002
    assert [point.step for point in found.curves["loss"][:3]] == [0, 4, 8]
    assert (found.curves["loss"][-1].step, found.metrics["loss"]) == (25_000, 25.0)


def test_settings_that_a_training_prints_before_its_first_step_are_no_metrics() -> None:
    printed = PrintedNumbers()
    for line in (
        "batch_size = 64",
        "n_layer = 6",
        "Num_processes: 1",
        "alpha = 2.5",
        "step 0: train loss 4.3, val loss 4.2",
        "f1: 0.8",
    ):
        printed.read(line)

    assert printed.results([], {}).metrics == {"train_loss": 4.3, "val_loss": 4.2, "f1": 0.8}


def points_of(printed: PrintedNumbers) -> dict[str, list[tuple[int, float]]]:
    """Return step and value of each point of the curves, in their order in time."""
    curves = printed.results([], {}).curves
    assert all(before.time_ms < after.time_ms for points in curves.values() for before, after in pairwise(points))
    return {name: [(point.step, point.value) for point in points] for name, points in curves.items()}


def after(*lines: str, named: Collection[str] = (), settings: Collection[str] = ()) -> PrintedNumbers:
    """Return what was read of these lines."""
    printed = PrintedNumbers(named=named, settings=settings)
    for line in lines:
        printed.read(line)
    return printed


def test_the_last_state_of_a_progress_bar_and_the_last_line_count() -> None:
    printed = PrintedNumbers()
    for line in ("loss=0.9\n", "loss=0.5\rloss=0.25\r\n", "x" * LONGEST_LINE + " loss=0.1\n"):
        printed.read(line)

    found = printed.results([], {})
    assert found[:3] == ({"loss": 0.25}, [], "printed: loss")
    assert points_of(printed) == {"loss": [(0, 0.9), (1, 0.25)]}


def test_printed_numbers_are_curves_over_the_steps_that_were_printed() -> None:
    printed = PrintedNumbers()
    for line in ("Epoch 1/2", "loss: 0.5", "Epoch 2/2", "val acc: 50%", "loss: 0.25", "test loss: 0.3"):
        printed.read(line)

    found = printed.results([], {})

    assert points_of(printed) == {"loss": [(1, 0.5), (2, 0.25)], "val_acc": [(2, 0.5)], "test_loss": [(2, 0.3)]}
    assert found.sources == "printed: loss, test_loss; printed in percent and recorded as a share: val_acc"
    assert found.metrics["val_acc"] == 0.5


@pytest.mark.parametrize("before", ["Epoch {}: ", "[{}/2] ", "step {} - ", ""])
def test_the_step_of_a_printed_dictionary_is_the_counter_before_it_or_one_of_its_own(before: str) -> None:
    printed = PrintedNumbers()
    for step, loss in ((3, 0.5), (4, 0.25)):
        counted = {"loss": loss} if before else {"epoch": step, "loss": loss}
        printed.read(f"{before.format(step)}{counted}")

    curve = printed.results([], {}).curves["loss"]
    assert [(step, value) for step, _, value in curve] == [(3, 0.5), (4, 0.25)]


@pytest.mark.parametrize(
    ("head", "row", "numbers"),
    [
        (
            "split  model  loss  f1",
            "val    bert   0.5  0.25",
            {"loss": 0.5, "f1": 0.25},
        ),  # half of the cells are numbers
        ("split  model  name  loss", "val    bert   x  0.5", {}),
        (f"epoch  {'x' * 39}  loss", "1      0.75   0.5", {"x" * 39: 0.75, "loss": 0.5}),
        (f"epoch  {'x' * 40}  loss", "1      0.75   0.5", {}),  # the cell is a sentence, and the line no head
    ],
)
def test_a_table_has_short_names_and_at_least_half_of_its_cells_are_numbers(
    head: str, row: str, numbers: dict[str, float]
) -> None:
    printed = PrintedNumbers()
    for line in (head, row):
        printed.read(line)

    assert printed.results([], {}).metrics == numbers


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        (
            [
                "epoch     train_loss  valid_loss  accuracy  time    ",
                "0         0.51      0.41      0.87      00:05     ",
            ],
            {"train_loss": 0.51, "valid_loss": 0.41, "accuracy": 0.87},
        ),
        (
            [
                "E    #       LOSS NER  ENTS_F  SCORE ",
                "---  ------  --------  ------  ------",
                "  1     200     45.06    87.0    0.87",
            ],
            {"LOSS_NER": 45.06, "ENTS_F": 87.0, "SCORE": 0.87},
        ),
        (
            ["   epoch  val_loss    val_f1", "0      0    0.8412  0.612300", "1      1    0.5812  0.812300"],
            {"val_loss": 0.5812, "val_f1": 0.8123},
        ),
        (
            [
                "               classes   top1_acc   top5_acc: 100%|\u2588\u2588| 4/4 [00:01<00:00, 2.3it/s]",
                "  all   0.913   0.998",
            ],
            {"top1_acc": 0.913, "top5_acc": 0.998},
        ),
        (
            ["         Training |  Validation", "accuracy |  0.912  |  0.843"],
            {"Training_accuracy": 0.912, "Validation_accuracy": 0.843},
        ),
        (  # as rich draws a table with a metric in each row
            [
                "┃ metric      ┃ value    ┃",
                "┡━━━━━━━━━━━━━╇━━━━━━━━━━┩",
                "│ final_mse   │ 0.014934 │",
                "│ accuracy    │ 87%  │",
            ],
            {"final_mse": 0.014934, "accuracy": 0.87},
        ),
        (
            ["Metric     Train   Valid", "f1         0.91    0.88", "log_loss   0.21    0.34"],
            {"Train_f1": 0.91, "Valid_f1": 0.88, "Train_log_loss": 0.21, "Valid_log_loss": 0.34},
        ),
        (["| epoch | loss | acc |", "|---|---|---|", "| 3 | 0.41 | 87% |"], {"loss": 0.41, "acc": 0.87}),
        (
            ["epoch,lr,train_loss,val_loss", "1,0.01,0.51,0.42", "2,0.01,0.41,0.32"],
            {"train_loss": 0.41, "val_loss": 0.32},
        ),
        (
            [
                "  Class  Images  Instances    Box(P       R      mAP50  mAP50-95): 100%|\u2588| 4/4 [00:03<00:00]",
                "        all        128        929       0.64      0.537      0.605      0.446",
            ],
            {"Box_P": 0.64, "R": 0.537, "mAP50": 0.605, "mAP50-95": 0.446},
        ),
        (  # the progress bar that Ultralytics draws itself
            [
                "   Epoch  GPU_mem  box_loss  cls_loss  dfl_loss  Instances  Size",
                "     1/3    2.31G     1.211    0.8312     1.102     12  640: 50% ━━━━━━╸───── 4/8 2.1it/s 1.9s<1.9s",
                "     1/3    2.31G     1.211    0.8312     1.102     12  640: 100% ━━━━━━━━━━━━ 8/8 2.1it/s 3.8s",
                "   Class   Images  Instances  Box(P     R  mAP50  mAP50-95): 100% ━━━━━━━━━━━━ 1/1 9.9it/s 1:01",
                "     all        4         17    0.612   0.834     0.888     0.632",
            ],
            {"Box_P": 0.612, "R": 0.834, "mAP50": 0.888, "mAP50-95": 0.632},
        ),
    ],
)
def test_rows_of_a_printed_table_have_the_names_of_its_head(lines: list[str], numbers: dict[str, float]) -> None:
    printed = PrintedNumbers()
    for line in lines:
        printed.read(line)

    assert printed.results([], {}).metrics == numbers


class Wrapping(ProgressColumn):
    """A column as Lightning's, whose text rich wraps if the terminal is too narrow."""

    def __init__(self, text: str) -> None:
        self._text = text
        super().__init__()

    def render(self, task: Task) -> Text:
        return Text(self._text)


def rich_bar(width: int) -> list[str]:
    """Return the lines of a progress bar of Lightning, drawn by rich for a terminal of this width."""
    metrics = "v_num: 0.000 val/loss: 0.001 val/acc: 1.000 val/acc_best: 1.000 train/loss: 0.011 train/acc: 0.998"
    stream = io.StringIO()
    columns = [TextColumn(text) for text in ("16/16", "0:00:01 • 0:00:00", "25.3it/s")]
    console = Console(file=stream, width=width)
    bar = Progress(TextColumn("Epoch 1/2"), BarColumn(40), *columns, Wrapping(metrics), console=console)
    with bar:
        bar.add_task("", total=1, completed=1)
    return stream.getvalue().splitlines()


def test_a_progress_bar_of_rich_gives_each_value_its_own_name_or_nothing() -> None:
    whole, cut = PrintedNumbers(), PrintedNumbers()
    for line in rich_bar(400):
        whole.read(line)
    for line in [*rich_bar(80), "test/acc: 0.75"]:
        cut.read(line)

    values = {"val/loss": 0.001, "val/acc": 1.0, "val/acc_best": 1.0, "train/loss": 0.011, "train/acc": 0.998}
    assert whole.results([], {}).metrics == values
    assert len(rich_bar(80)) > 3  # it was wrapped
    assert cut.results([], {}).metrics == {"test/acc": 0.75}


@pytest.mark.parametrize(("width", "numbers"), [(80, {"test/a_score": 0.5, "test/b_score": 0.25}), (24, {})])
def test_a_table_of_rich_whose_cells_are_wrapped_gives_no_number(width: int, numbers: dict[str, float]) -> None:
    stream, table = io.StringIO(), Table("Test metric", "DataLoader 0")
    for name, value in (("test/a_score", "0.5"), ("test/b_score", "0.25")):
        table.add_row(name, value)
    Console(file=stream, width=width).print(table)
    printed = PrintedNumbers()
    for line in stream.getvalue().splitlines():
        printed.read(line)

    assert printed.results([], {}).metrics == numbers


@pytest.mark.parametrize(
    "line",
    [
        "/home/me/train.py:12: UserWarning: loss is nan",
        "/usr/lib/python3.11/site-packages/sklearn/metrics/accuracy.py:31: UserWarning: accuracy 0.5 is low",
        "  File /tmp/x/torch/cuda/amp/grad_scaler.py: 31",
        "[LightGBM] [Info] Start training from score 0.503817",
        "1.000000 1.000000            1            1.0     1.0000   0.0000       51",
        "2026-11-28 11:41:29,957 (trainer:276) INFO: 3epoch:train:4126-4500batch: iter_time=1.2e-04, optim0_lr0=0.1",
        "power_t = 0.5",
        "initial_t = 0",
        "widgets=3",
        "lrcriterion=0.006",
        "iter 0: time 512.00ms, mfu -100.00%",
    ],
)
def test_a_printed_number_without_evidence_is_no_metric(line: str) -> None:
    printed = PrintedNumbers()
    printed.read("step 1: loss 0.5")
    printed.read(line)

    assert printed.results([], {}).metrics == {"loss": 0.5}


def test_a_name_in_the_script_s_own_text_is_evidence_and_so_is_a_dictionary_with_a_metric() -> None:
    printed = PrintedNumbers(named=["widgets"])
    for line in ("widgets=3", "gadgets=4", "{'eval_f1': 0.5, 'logps': -12.5}", "{'gears': 5}"):
        printed.read(line)

    assert printed.results([], {}).metrics == {"widgets": 3.0, "eval_f1": 0.5, "logps": -12.5}


def raised(prefix: str, then: str) -> list[str]:
    """Return the lines of a log with a traceback, each line of which begins with `prefix`."""
    lines = ["Traceback (most recent call last):", '  File "/home/me/train.py", line 7, in <module>']
    lines += ["    main(loss=3, widgets={'kept': 5})", "    ~~~~^^^^^^^", "ValueError: loss: 7 is too high"]
    return ["epoch 1: loss: 0.5, widgets: 2", *(prefix + line for line in lines), then]


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
@pytest.mark.parametrize(("then", "loss"), [("", 0.5), ("epoch 2: loss: 0.4", 0.4)])
def test_a_traceback_repeats_lines_of_the_script_and_has_no_metrics(prefix: str, then: str, loss: float) -> None:
    printed = PrintedNumbers(named=["loss", "widgets", "kept", "line"])
    for line in raised(prefix, then):
        printed.read(line)

    assert printed.results([], {}).metrics == {"loss": loss, "widgets": 2.0}


def test_a_library_that_prints_a_traceback_and_goes_on_hides_no_line_after_it() -> None:
    printed = PrintedNumbers()
    for line in [*raised("", ""), "During handling of the above exception, another exception occurred:", ""]:
        printed.read(line)
    for line in raised("", "epoch 3: val_f1: 0.9")[1:]:
        printed.read(line)

    assert printed.results([], {}).metrics == {"loss": 0.5, "val_f1": 0.9}


def test_the_table_of_a_model_s_layers_that_rich_has_drawn_gives_no_metric() -> None:
    stream, table = io.StringIO(), Table("", "Name", "Type", "Params", "Mode")
    table.add_row("0", "criterion", "CrossEntropyLoss", "0", "train")
    table.add_row("1", "train_acc", "MulticlassAccuracy", "0", "train")
    Console(file=stream, width=100).print(table)
    printed = PrintedNumbers()
    for line in [*stream.getvalue().splitlines(), "Trainable params: 122", "val_acc: 0.5"]:
        printed.read(line)

    assert printed.results([], {}).metrics == {"val_acc": 0.5}


def test_the_table_of_a_model_s_layers_gives_no_metric() -> None:
    printed = PrintedNumbers()
    for line in (
        "   | Name      | Type               | Params | Mode ",
        "------------------------------------------------------",
        "0  | criterion | CrossEntropyLoss   | 0      | train",
        "13 | train_acc | MulticlassAccuracy | 0      | train",
        "------------------------------------------------------",
        "68.0 K    Trainable params",
        "val_acc: 0.5",
    ):
        printed.read(line)

    assert printed.results([], {}).metrics == {"val_acc": 0.5}


def test_losses_of_two_splits_after_one_name_are_read_with_the_iteration() -> None:
    printed = PrintedNumbers()
    for iteration in (10, 20):  # as litgpt prints them
        printed.read(
            f"Epoch 1 | iter {iteration} step {iteration // 2} | loss train: 1.18{iteration}, val: 1.05{iteration}"
        )

    curves = printed.results([], {}).curves
    assert {name: [(point.step, point.value) for point in points] for name, points in curves.items()} == {
        "loss_train": [(10, 1.181), (20, 1.182)],
        "loss_val": [(10, 1.051), (20, 1.052)],
    }


def test_the_steps_of_fastai_s_table_are_its_first_column() -> None:
    printed = PrintedNumbers()
    for line in (
        "epoch     train_loss  valid_loss  accuracy  time    ",
        "0  0.51  0.42  0.8  00:03",
        "1  0.41  0.32  0.9  00:03",
    ):
        printed.read(line)

    assert [(point.step, point.value) for point in printed.results([], {}).curves["valid_loss"]] == [
        (0, 0.42),
        (1, 0.32),
    ]


def test_the_steps_of_spacy_s_table_and_of_timm_s_summary_are_those_of_the_curves(tmp_path: Path) -> None:
    printed = PrintedNumbers()
    for line in ("E    #       LOSS TEXTCAT  CATS_SCORE  SCORE ", "---  ------  ------------  ----------  ------"):
        printed.read(line)
    for step in (0, 50, 100, 150):
        printed.read(f"  {step // 100}      {step:>3}          0.25       5{step // 50}.00    0.5{step // 50}")
    (tmp_path / "summary.csv").write_text("epoch,train_loss,eval_loss,eval_top1\n0,2.0,1.9,30.5\n1,1.5,1.4,41.25\n")

    curves = printed.results(logged(tmp_path, [], time.time()), {}).curves
    assert [(point.step, point.value) for point in curves["SCORE"]] == [(0, 0.5), (50, 0.51), (100, 0.52), (150, 0.53)]
    assert [(point.step, point.value) for point in curves["eval_top1"]] == [(0, 30.5), (1, 41.25)]


def test_keras_counts_false_negatives_and_a_loss_function_is_no_metric() -> None:
    line = "1/1 - 0s - fn: 12.0000 - fp: 3.0000 - tn: 80.0000 - tp: 5.0000 - val_fn: 4.0000 - loss_fn: 2"

    counts = {"fn": 12.0, "fp": 3.0, "tn": 80.0, "tp": 5.0, "val_fn": 4.0}
    printed = PrintedNumbers()
    printed.read(line)
    assert printed.results([], {}).metrics == counts


def test_a_metric_whose_last_value_is_not_finite_is_named_instead_of_recorded() -> None:
    printed = PrintedNumbers([{"Name": "own", "Regex": r"own (\S+)"}])
    for line in ("f1: 0.5", "auc: nan", "own 0.5", "own nan", "own none", "{'eval_f1': nan}", "f1: inf", "auc: 0.75"):
        printed.read(line)

    renamed = {"eval_f1": "validation_f1"}
    assert printed.results([Source({"loss": (math.nan, "MLflow")}, {})], renamed)[:3] == (
        {"auc": 0.75},
        ["eval_f1", "f1", "loss", "own", "validation_f1"],
        "printed: auc",
    )


def test_metric_definitions_are_read_as_sagemaker_reads_them() -> None:
    printed = PrintedNumbers(
        [
            {"Name": "train:error", "Regex": r"Train_error=(.*?);"},
            {"Name": "absent", "Regex": "nothing: ([0-9.]+)"},
            {"Name": "word", "Regex": "(hello)"},
        ]
    )
    for line in ("Train_error=0.5;", "hello", "Train_error=0.25;  rows 3;", "Train_error=broken;"):
        printed.read(line)

    assert printed.results([], {}).metrics == {"train:error": 0.25, "Train_error": 0.25}


def test_files_of_hugging_face_scripts_are_read_with_the_most_reliable_last(tmp_path: Path) -> None:
    state = {"log_history": [{"eval_f1": 0.1, "loss": 2.0, "epoch": 1}, {"loss": 1.0, "epoch": 2, "step": 9}]}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "eval_results.json").write_text('{"eval_f1": 0.2, "eval_loss": 0.7, "name": "x"}')
    (tmp_path / "out" / "all_results.json").write_text('{"eval_f1": 0.3, "train_runtime": "4.5", "ok": true}')
    (tmp_path / "metrics.json").write_text("[not a dictionary")
    (tmp_path / "eval_results.txt").write_text("eval_accuracy = 0.8\nepoch = 3\n")
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "metrics.json").write_text('{"eval_f1": 9}')

    sources = logged(tmp_path, [tmp_path / "out"], time.time())

    values = {name: value for source in sources for name, value in source.values.items()}
    assert values == {
        "loss": (1.0, "out/trainer_state.json"),
        "eval_loss": (0.7, "eval_results.json"),
        "eval_f1": (0.3, "out/all_results.json"),
        "train_runtime": (4.5, "out/all_results.json"),
        "eval_accuracy": (0.8, "eval_results.txt"),
    }
    assert not any(source.values for source in logged(tmp_path, [], time.time() + 60))
    found = PrintedNumbers().results([*sources, Source({"loss": (3.0, "MLflow")}, {})], {"eval_f1": "f1"})
    assert found[:3] == (
        {"f1": 0.3, "loss": 3.0, "eval_loss": 0.7, "eval_f1": 0.3, "train_runtime": 4.5, "eval_accuracy": 0.8},
        [],
        "eval_results.txt: eval_accuracy; out/all_results.json: f1, train_runtime; "
        "eval_results.json: eval_loss; MLflow: loss",
    )


def test_the_clock_of_a_progress_bar_is_no_step() -> None:
    printed = PrintedNumbers()
    for epoch, f1 in enumerate((0.5, 0.6), start=1):
        printed.read(f"Epoch {epoch}/2")
        printed.read("\r 45%|####5     | 9/20 [00:07<00:09, 3.2it/s]\r100%|##########| 20/20 [00:16<00:00, 3.2it/s]")
        printed.read(f"100%|##########| 20/20 [01:16<00:00, 3.2it/s]{{'eval_f1': {f1}}}")  # Hugging Face's Trainer
        printed.read(f"val_f1: {f1}")

    curves = printed.results([], {}).curves
    for name in ("eval_f1", "val_f1"):
        assert [(point.step, point.value) for point in curves[name]] == [(1, 0.5), (2, 0.6)]


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("00:07 val_loss 0.5", {"val_loss": 0.5}),
        ("[00:07] val_loss 0.5", {"val_loss": 0.5}),
        ("1:02 acc 0.9 f1 0.8", {"acc": 0.9, "f1": 0.8}),
        (" 45%|####      | 9/20 [00:07<00:09, 3.2it/s, loss 0.412 (0.512)]", {"loss": 0.512}),  # the average
    ],
)
def test_the_clock_that_begins_a_line_changes_no_metric_after_it(line: str, numbers: dict[str, float]) -> None:
    assert numbers_in(line) == numbers


@pytest.mark.parametrize("line", ["12 files read", "2026", " 500 samples in 3 batches", "2 GPUs: batch_size=32"])
def test_a_number_that_begins_a_line_without_metrics_is_no_step(line: str) -> None:
    printed = PrintedNumbers()
    for text in ("Epoch 1/2", line, "val_f1: 0.5", "Epoch 2/2", line, "val_f1: 0.6"):
        printed.read(text)

    assert [(point.step, point.value) for point in printed.results([], {}).curves["val_f1"]] == [(1, 0.5), (2, 0.6)]


@pytest.mark.parametrize(
    ("lines", "curve"),
    [
        (["8", "0", "val_f1: 0.5", "1", "812", "val_f1: 0.6"], [(0, 0.5), (1, 0.6)]),
        (["1", "val_f1: 0.5", "2", "val_f1: 0.6"], [(1, 0.5), (2, 0.6)]),
        (["Epoch 4", "1", "val_f1: 0.5", "Epoch 5", "2", "val_f1: 0.6"], [(4, 0.5), (5, 0.6)]),
        (["100", "val_f1: 0.5", "200", "val_f1: 0.6"], [(0, 0.5), (1, 0.6)]),  # they count the values
        (["0", "val_f1: 0.5", "100", "val_f1: 0.6"], [(0, 0.5), (0, 0.6)]),
    ],
)
def test_numbers_alone_on_a_line_are_steps_if_they_count_and_no_line_names_its_step(
    lines: list[str], curve: list[tuple[int, float]]
) -> None:
    printed = PrintedNumbers()
    for line in lines:
        printed.read(line)

    found = printed.results([], {})
    assert found.metrics == {"val_f1": 0.6}
    assert [(point.step, point.value) for point in found.curves.get("val_f1", [])] == curve


def test_a_log_that_a_training_has_continued_has_the_points_of_one_training(tmp_path: Path) -> None:
    steps = [(1, 9.0), (2, 9.0), (3, 9.0), (4, 9.0), (3, 0.3), (4, 0.2), (5, 0.1)]  # resumed after step 2
    lines = [json.dumps({"iteration": step, "total_loss": loss}) for step, loss in steps]
    (tmp_path / "metrics.json").write_text("\n".join([*lines, '{"iteration": 6, "total_']))

    found = PrintedNumbers().results(logged(tmp_path, [], time.time()), {})

    assert found.metrics == {"total_loss": 0.1}
    points = [(point.step, point.value) for point in found.curves["total_loss"]]
    assert points == [(1, 9.0), (2, 9.0), (3, 0.3), (4, 0.2), (5, 0.1)]


def test_a_list_of_records_has_curves_and_nested_numbers_need_evidence(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps([{"epoch": 1, "f1": 0.5}, {"epoch": 2, "f1": 0.75}]))
    report = {"0": {"precision": 0.5, "support": 20}, "accuracy": 0.8}
    settings = {"args": {"error": 3}, "data": {"rows": 9}, "metrics": {"kpi": 2, "seed": 1}}
    (tmp_path / "results.json").write_text(json.dumps({"report": report, **settings}))

    found = PrintedNumbers().results(logged(tmp_path, [], time.time()), {})

    values = {"f1": 0.75, "report/0/precision": 0.5, "report/accuracy": 0.8, "metrics/kpi": 2.0}
    assert found.metrics == values
    assert [(point.step, point.value) for point in found.curves["f1"]] == [(1, 0.5), (2, 0.75)]


def test_a_curve_that_several_checkpoints_repeat_has_each_point_once(tmp_path: Path) -> None:
    log = [{"loss": 1 / step, "step": step} for step in (1, 2, 3, 4)]
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"log_history": log[:step]}))

    found = PrintedNumbers().results(logged(tmp_path, [], time.time()), {})

    assert [(point.step, point.value) for point in found.curves["loss"]] == [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)]


NESTED = {
    "avg_prec": {"train": 0.9, "test": 0.5},
    "roc_auc": {"train": 0.75, "test": 0.25},
    "data": {"rows": 9, "test": 3},
    "loss": {"weight": 2, "gamma": 3},
}


@pytest.mark.parametrize(("name", "write"), [("eval/metrics.json", json.dumps), ("metrics.yaml", yaml.safe_dump)])
def test_a_metric_word_anywhere_in_the_path_of_a_nested_number_is_evidence(
    tmp_path: Path, name: str, write: Callable[[object], str]
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(write(NESTED))  # the first two as DVC's example writes them

    files, *_ = logged(tmp_path, [], time.time())

    assert {key: value for key, (value, _) in files.values.items()} == {
        "avg_prec/train": 0.9,
        "avg_prec/test": 0.5,
        "roc_auc/train": 0.75,
        "roc_auc/test": 0.25,
    }


def test_of_equal_names_the_logger_counts_before_the_file_and_the_file_before_the_printed_line(tmp_path: Path) -> None:
    printed = PrintedNumbers(named=["a", "b", "c"])
    for line in ("epoch 1: a=1 b=1 c=1", "epoch 2: a=2 b=2 c=2"):
        printed.read(line)
    (tmp_path / "metrics.json").write_text('{"b": 3, "c": 3, "lr": 0.1}')
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "metrics.csv").write_text("epoch,step,c,lr\n0,10,4,0.1\n0,20,,0.1\n1,30,5,0.1\n")

    found = printed.results(logged(tmp_path, [], time.time()), {})

    assert found.metrics == {"a": 2.0, "b": 3.0, "c": 5.0}  # the rate never changes: it is a setting
    assert found.sources == "printed: a; metrics.json: b; logs/metrics.csv: c"
    assert [(point.step, point.value) for point in found.curves["c"]] == [(10, 4.0), (30, 5.0)]
    assert found.curves.keys() == {"a", "c"}


def test_tensorboard_s_scalars_are_read_with_their_steps(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("tensorboard.summary", reason="needs tensorboard: `.ci/full foreign` has it")
    for part in ("train", "validation"):
        log = tensorboard.Writer(str(tmp_path / part))
        for step in range(3):
            log.add_scalar("acc", step / 4, step)
        log.add_scalar("only" + part, 0.5, 7)
        log.close()

    found = PrintedNumbers().results(logged(tmp_path, [], time.time()), {})

    assert found.metrics == {"train/acc": 0.5, "validation/acc": 0.5, "onlytrain": 0.5, "onlyvalidation": 0.5}
    assert [(point.step, point.value) for point in found.curves["validation/acc"]] == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert found.sources.startswith("TensorBoard: onlytrain")


def test_curves_are_read_as_they_were_written_and_other_files_are_refused(tmp_path: Path) -> None:
    curves = {"val/f1": [Point(1, 1000, 0.5), Point(2, 2000, 0.75)]}

    write_curves(curves, tmp_path / "store")

    assert read_curves(tmp_path / "store") == curves
    assert read_curves(tmp_path) == {}
    (tmp_path / "curves.jsonl").write_text('{"name": "x"}\n')
    with pytest.raises(ValueError, match="not as paretune writes it"):
        read_curves(tmp_path)


def test_a_logger_that_the_user_has_directed_elsewhere_stays_there(tmp_path: Path) -> None:
    given = {"MLFLOW_TRACKING_URI": "https://mine", "WANDB_MODE": "online"}

    assert {"WANDB_DIR": str(tmp_path)}.items() <= logging_environment(tmp_path, given).items()
    assert not given.keys() & logging_environment(tmp_path, given).keys()
    assert logging_environment(tmp_path, {})["WANDB_MODE"] == "offline"


def test_a_file_is_noticed_when_it_is_written_under_whatever_form_of_its_name() -> None:
    written = written_file("open", (b"/x/events.out.tfevents.1.host", "ab", 0))  # as TensorBoard opens it

    assert written == "/x/events.out.tfevents.1.host"
    assert written_file("os.rename", ("/x/draft", "/x/metrics.csv", -1, -1)) == "/x/metrics.csv"
    assert written_file("open", ("/x/metrics.csv", "r", 0)) is None
    assert written_file("open", (3, "w", 0)) is None
    assert [is_log_file(f"/x/{name}") for name in ("metrics.csv", "model.pt")] == [True, False]


LONG = {
    "digits": "1" * 64_000,
    "words and numbers": "a 1 " * 500,
    "redrawn": ("a 1 " * 100 + "\r") * 200,
    "bar": "\u2501" * 2000 + "a",
    "tabs after a number": "a.b 1" + "\t" * LONGEST_LINE,
    "tabs before a dictionary": "\t" * LONGEST_LINE + "{'a': 1,",
    "tabs in a bar": "1%|" + "\t" * LONGEST_LINE,
    "parentheses": "0/1" + ")" * LONGEST_LINE,
    "parentheses and spaces": "x=1, " + "( " * LONGEST_LINE,
    "spaces and tabs": "loss: 1" + " \t" * LONGEST_LINE + "~",
    "counters": "epoch 1 " * 250,
    "colors": "\x1b[0m" * 15_000,
    "pairs": "|a|1" * 500,
}


@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
def test_a_long_line_takes_at_most_as_long_as_a_hundred_usual_ones(line: str) -> None:
    def seconds(lines: Sequence[str]) -> float:
        numbers = PrintedNumbers()
        numbers.read("epoch  loss")
        began = time.process_time()
        for each in lines:
            numbers.read(each)
        numbers.results([], {})
        return time.process_time() - began

    usual = min(seconds([f"step {step}: loss 0.5, acc 0.{step}" for step in range(100)]) for _ in range(3))
    assert min(seconds([line]) for _ in range(3)) < usual


def test_the_end_of_a_line_that_is_too_long_gives_no_number_that_is_cut() -> None:
    line = "loss: 0.5 " + "x " * 215 + "acc: 0.123456789"

    assert numbers_in(line).get("acc") in (None, 0.123456789)


def test_with_very_many_printed_names_those_of_classes_and_layers_are_left_out_and_counted() -> None:
    printed = PrintedNumbers([{"Name": "own", "Regex": r"mine=(\d+)"}], named={"goodness", "mine"})
    for number in range(400):
        printed.read(f"class_{number}_f1: 0.5")
    printed.read("val_f1: 0.9")
    printed.read("goodness: 3.5")
    printed.read("mine=7")

    gathered = printed.results([], {})

    assert gathered.metrics["val_f1"] == 0.9
    assert gathered.metrics["goodness"] == 3.5
    assert gathered.metrics["own"] == 7
    assert len(gathered.metrics) == 301
    assert gathered.left_out == 103  # one of them is "mine", which the definition records


def test_no_name_is_left_out_of_300_and_the_numbers_of_a_million_names_need_little_memory() -> None:
    few, many = PrintedNumbers(), PrintedNumbers()
    for number in range(300):
        few.read(f"class_{number}_f1: 0.5")
    for number in range(21_000):
        many.read(f"class_{number}_f1: 0.5")
    many.read("val_f1: 0.9")

    assert few.results([], {}).left_out == 0
    assert many.results([], {}).left_out == 20_701
