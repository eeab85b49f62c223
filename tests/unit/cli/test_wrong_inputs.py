"""Wrong inputs of every command lead to one message that says what to do, exit code 2, and nothing left behind."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.sentences import write_csv
from tests.support.typed import Run

CLICK_SCRIPT = """
import click
@click.command()
@click.option("--learning-rate", "rate", type=float, default=0.1)
@click.option("--quiet", is_flag=True)
@click.option("--data-dir", required=True)
def main(rate, quiet, data_dir): ...
main()
"""
METRIC_SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
print(f"val_f1={parser.parse_args().lr}")
"""
SIMULATED = "train --launcher simulated --instance_type ml.g5.xlarge --num_train_epochs 2 --simulation.runs"
WRONG = {  # what is typed: parts of the only message
    "train --learning_rat 1e-4": ["unknown parameter learning_rat: did you mean learning_rate"],
    "train --lr 1 --gpus 4 --fp16": [
        "3 faults",
        "did you mean learning_rate?",
        "did you mean instance_type?",
        "unknown parameter fp16: did you mean precision?",
    ],
    "train --learning-rate fast --seed": ["learning_rate must be a number", "seed needs a value: --seed VALUE"],
    "train --seed --task causal-lm": ["seed needs a value"],
    "train --max_cost_uds= --dry_run": ["unknown parameter max_cost_uds: did you mean max_cost_usd?"],
    "train --lora.rr= --dry_run": ["unknown parameter lora.rr: did you mean lora.r"],
    "study smoke --n_trails= --budget_uds=": ["n_trails: did you mean n_trials", "budget_uds: did you mean budget_usd"],
    "estimate --regoin=": ["unknown parameter regoin: did you mean region?"],
    "import --colums=": ["import needs a table"],
    "train --seed 1 --seed 2": ["seed is given twice: '1' and '2'"],
    "train --spot perhaps": ["spot must be true or false, got 'perhaps'"],
    "train --spot": ["spot is for instances that support it"],
    "train --max_cost_usd all": ["max_cost_usd must be a number at least 0, got 'all'"],
    "train --instance_type ml.g5.xlage": ["known types, got 'ml.g5.xlage': did you mean ml.g5.xlarge or"],
    "train --instance_type ml.g5.xlarge,ml.g6.xlarge": [
        "a job uses one type, and others only in fallback_instance_types"
    ],
    "train --instance_type p4d": ["did you mean ml.p4d.24xlarge?"],
    "train --dataset none.csv --model ./no_model": [
        "dataset none.csv does not exist",
        "model ./no_model does not exist",
    ],
    "train --dataset rows.csv:sst2": ["rows.csv:sst2: only a hub id can have a configuration; name rows.csv"],
    "train none.py --learning_rate fast": ["learning_rate must be", "entry_script none.py does not exist (looked in"],
    "train . ": ["entry_script must be a file, and . is a folder"],
    "train rows.csv": ["rows.csv"],
    "train missing.py": ["entry_script missing.py does not exist (looked in"],
    "train book.ipynb": [
        "book.ipynb is a notebook: convert it with `jupyter nbconvert --to python book.ipynb`, and name"
    ],
    "train metric.py --lr high": ["--lr of metric.py must be a number, got high"],
    "train metric.py --lrr 1": ["unknown parameter lrr, which metric.py does not have either: did you mean lr?"],
    "train metric.py --hidden 1": ["unknown parameter hidden, which metric.py does not have either: it has lr"],
    "train metric.py --lr 1 --training_arguments.lr 2": ["lr is given twice, also as training_arguments.lr"],
    "train metric.py fit --lr 1": ["metric.py takes no words, got fit: leave them out"],
    "train metric.py --training_arguments.hidden 1": ["metric.py has no argument hidden: it has lr"],
    "train --dataset rows.csv --text_column Body": ["'Body' is not in the train rows of rows.csv: did you mean body?"],
    "train --dataset rows.csv --text_column body": ["'body' is missing or blank in 1 of 3 train rows (row 2)"],
    **{
        f"{command} --dataset unlabelled.csv": [
            "'label' is missing or blank (such as NaN) in 2 of 5 train rows (first: rows 2, 4): fill them, or leave "
            "them out with --missing_rows drop"
        ]
        for command in ("train", "train --dry_run", "estimate", "study --budget_usd 5")
    },
    "train --dataset one.csv": ["label_column 'label' has only one class (x): there is nothing to learn"],
    "train --dataset parts.csv": [
        "must have one class per row, as text or a whole number; 1 train row has another value: row 1 has 0.5: a script"
    ],
    "train --dataset halves.csv": ["; 2 train rows have other values: row 2 has 1.5, row 4 has -2.5: a script"],
    "train --dataset parts.csv --label_column text --text_column label": ["has 3 classes in 3 rows: is it the right"],
    "train --dataset ragged.csv": [
        "ragged.csv: 1 row has three fields, the header two (line 3, such as 'good, bad,y'): quote texts that contain",
        "commas, or leave these rows out with --missing_rows drop",
    ],
    "train --dataset commas.tsv": [
        "commas.tsv: they have text,label; its columns are separated by commas: name it .csv"
    ],
    "train --dataset headless.csv": ["the first line must name the columns: put text,label above it"],
    "train --dataset nothing.csv": ["dataset nothing.csv has no rows: it is empty"],
    "train --dataset nothing": ["dataset nothing has no rows: it is empty"],
    "train --dataset sheet.xlsx": [
        "dataset must end in .csv, .tsv, .jsonl, .json, .parquet, .txt, got",
        "sheet.xlsx: save the sheet as CSV in UTF-8",
    ],
    "train --dataset lines.jsonl": [
        "lines.jsonl: line 2 is not a JSON object (Expecting ',' delimiter",
        """each line must be one, such as {"text": "a", "label": "x"}""",
    ],
    "train --dataset log.jsonl": [
        "log.jsonl: line 1 is not a JSON object (Expecting value: line 1 column 1 (char 0)): each line must be one"
    ],
    "train --task causal-lm --dataset chats.jsonl": [
        "dataset chats.jsonl: 11 of 12 train rows are not a conversation to learn: ",
        "row 2: message 1 has no role; ",
        "row 3: message 2 has the unknown role 'gpt': write assistant; ",
        "row 4: messages has no message; ",
        "row 5: no message of the assistant, so there is nothing to learn; ",
        "row 6: message 2 (assistant) calls a tool or answers it; paretune does not train calls of tools: leave ",
        "; and 6 more; correct these rows, or remove them",
    ],
    "train --task causal-lm --dataset later_chats.jsonl": [
        "row 1: message 2 is a system message, which must come first; ",
        "row 2: message 2 (assistant) has no content; ",
        "row 3: message 1 (user) must have a text as content, got [{'type': 'text', 'text': 'Hi'}]; ",
        "row 4: messages must be a list of messages, each with role and content, got 'Hi'; ",
        "row 5: message 1 must have role and content, got 'Hi'",
    ],
    "train --task causal-lm --dataset last_chats.jsonl": [
        "dataset last_chats.jsonl: 1 of 2 train rows is not a conversation",
        "row 1: message 1 has no role; from and value must be named role and content",
    ],
    "train --task causal-lm --dataset answers.jsonl": [
        "dataset answers.jsonl: 4 of 5 train rows are not a prompt with its completion to learn: ",
        "row 2: its completion is empty, so there is nothing to learn; ",
        "row 3: prompt and completion must both be texts, or both be lists of messages; ",
        "row 4: its completion must be one message of the assistant, got user: give longer conversations as messages; ",
        "row 5: the last message of its prompt is the assistant's: move it to completion",
    ],
    "train --task causal-lm --dataset prompts.jsonl": [
        "they have prompt; give each row a column completion too, or set text_column to one of them"
    ],
    "train --task causal-lm --dataset gaps.jsonl": ["'completion' is missing in 1 of 2 train rows (row 2): fill them"],
    "train --dataset last_chats.jsonl": [
        "paretune: text_column 'text' is not in the train rows of last_chats.jsonl: they have messages; set "
        "task=causal-lm to train on their conversations\n"
    ],
    "train --dataset pairs.csv --max_seq_length 100000": [
        "max_seq_length must be at most 512 for bundled:all-MiniLM-L6-v2, got 100000"
    ],
    "train --dataset pairs.csv --max_seq_length 600 --model ./short": ["max_seq_length must be at most 64 for ./short"],
    "train broken.py": ["entry_script broken.py, line 2: Python cannot read it: '(' was never closed"],
    "study metric.py --metric val_f2 --budget_usd 5": [
        "metric.py does not report val_f2: did you mean val_f1? Its text shows val_f1; if it reports val_f2, too, set "
    ],
    "train --missing_rows skip": ["missing_rows must be one of refuse, drop, got 'skip'"],
    "train --training_arguments.weight_decy 0.1": ["does not support weight_decy: did you mean"],
    "train --training_arguments.weight_decay high": ["training_arguments: weight_decay must be a number, got 'high'"],
    "train rates.py --training_arguments.leaning_rate 1": [
        "rates.py reads its options with Click: paretune reads them by running rates.py --help without network: add "
        "--ask_script true"
    ],
    "train rates.py --training_arguments.leaning_rate 1 --ask_script": [
        "rates.py has no argument leaning_rate: did you mean learning-rate?",
        "rates.py does not run without --data-dir: add --training_arguments.data-dir VALUE",
    ],
    "train rates.py --training_arguments.quiet 3 --training_arguments.data_dir d --ask_script": [
        "--quiet of rates.py is a switch and must be true or false, got 3"
    ],
    "train rates.py --training_arguments.data_dir d --ask_script perhaps": ["ask_script must be true or false"],
    "train --dataset latin.csv": [
        "latin.csv is not UTF-8 text (the byte at position 13 cannot be decoded) but probably LATIN1"
    ],
    "train --dataset binary.csv": ["binary.csv is a binary file: give a CSV, TSV, JSONL or Parquet file"],
    "train --dataset row.csv": ["dataset row.csv does not exist", "): did you mean rows.csv?"],
    "estimate train.py": ["unexpected 'train.py': a script is named by --entry_script 'train.py'"],
    "train seed=1 more": ["unexpected 'more'"],
    "train -seed 1": ["unexpected '-seed'"],
    "trian": ["unknown command 'trian': did you mean train?"],
    "study": ["study must name a study file, such as studies/smoke.yaml, or a script"],
    "study smoek": ["smoek does not exist", "did you mean smoke?"],
    "study .": ["study must name a YAML file, and . is a folder"],
    "study binary.csv": ["binary.csv is a data file, not a study: give it as dataset"],
    "study book.ipynb --metric val_f1 --budget_usd 1": ["is a notebook: convert it with `jupyter nbconvert"],
    "study nothing --metric val_f1 --budget_usd 1": ["entry_script must be a file, and nothing is a folder: name the"],
    "study broken.py --metric val_f1 --budget_usd 1": [
        "broken.py, line 2: Python cannot read it: '(' was never closed"
    ],
    "study metric.py --metric val_f1 --budget_usd 1 --hidden 1": [
        "unknown parameter hidden, which metric.py does not have either: it has lr"
    ],
    "study metric.py --metric val_thing --budget_usd 5": [
        "paretune: metric.py does not report val_thing: its text shows val_f1"
    ],
    "study metric.py --minimize val_f1 --budget_usd 5": ["val_f1 is better when it is higher: say --maximize val_f1"],
    "study wrong.yaml --n_trails 3": ["wrong.yaml:2: learning_rate: low must be less than", "did you mean n_trials?"],
    "estimate --instance_type ml.g5.xlarge,": ["instance_type must have a value before and after each comma"],
    "estimate --instance_type ml.p9.huge --instance_count 1,x": ["instance_count must be a whole number"],
    "estimate --probe true": ["probe must be one of the ", " known types, got 'true'"],
    "estimate --probe p4d": ["probe must be one of the ", " known types, got 'p4d': did you mean ml.p4d.24xlarge?"],
    "estimate --probe ml.g5.xlarge,ml.g6.xlarge": [
        "probe must be one instance type, got 'ml.g5.xlarge,ml.g6.xlarge': keep one, and name the other types of the "
        "table with --instance_type"
    ],
    "estimate --seed 1 --dataset some/reviews --text_column body": [
        "the number of rows of dataset some/reviews is not known yet",
        "train --dataset some/reviews --text_column body --dry_run true`",
    ],
    "estimate --model nobody/knows": ["model nobody/knows is not well known, and its config.json is missing"],
    "prices --region us-east": ["region must be an AWS region that has SageMaker"],
    "mcp --budget nowhere.yaml": ["budget must name a YAML file"],
    "reconcile": ["bill is missing: name an export of CUR 2.0 or FOCUS"],
    "reconcile --bill nowhere": ["bill must be an export of CUR 2.0 or FOCUS"],
    "reconcile none.csv": ["a file, a folder, or s3://BUCKET/PREFIX/, got 'none.csv': it does not exist"],
    "report --view runz": ["view must be one of runs, scaling, compare, got 'runz'; did you mean runs?"],
    "report --price_date 2026-02-30": ["price_date must be a day such as 2026-11-20, got '2026-02-30'"],
    "report --region mars --by x --price_date x": ["'mars'", "by must be", "price_date must"],
    "report --view scaling --by batch": ["by must be shape, devices or a parameter of a job"],
    "report --view compare": ["view=compare needs the setting whose values are compared, such as by="],
    "report --by strategy": ["by must be one of study,", "set view=compare"],
    "report --view scaling --region us-east-1": ["region has an effect only with view=runs"],
    "sync": ["there is no MLflow store here"],
    "sync --all": ["unknown parameter all: the only one is adopt"],
    f"{SIMULATED} runs.csv --learning_rate 1e-3": ["no completed runs on all sides"],
    f"{SIMULATED.replace('g5', 'g6')} runs.csv": ["instance_type must be a value in"],
    f"{SIMULATED.replace('epochs 2', 'epochs 3')} runs.csv": ["num_train_epochs must be a value in"],
    f"{SIMULATED} nowhere.csv": ["nowhere.csv does not exist"],
    f"{SIMULATED} negative.csv": ["line 2: billable_seconds must be greater than 0, got '-900'"],
    f"{SIMULATED} missing.csv": ["column f1 is missing"],
    SIMULATED.replace("runs", "failurerate 1"): ["did you mean simulation.failure_rate"],
    SIMULATED.replace("runs", "failure_rate 2"): ["failure_rate must be at least 0 and at most 1"],
}


ASKS, ANSWERS = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add"}}]}
CHATS: dict[str, list[dict[str, Any]]] = {
    "chats": [
        {"messages": [ASKS, ANSWERS]},
        {"messages": [{"content": "Hi"}, ANSWERS]},
        {"messages": [ASKS, ANSWERS | {"role": "gpt"}]},
        {"messages": []},
        {"messages": [ASKS]},
        {"messages": [ASKS, CALLS]},
        *([{"messages": [ASKS, {"role": "tool", "content": "4"}]}] * 6),
    ],
    "later_chats": [
        {"messages": [ASKS, {"role": "system", "content": "Be brief."}, ANSWERS]},
        {"messages": [ASKS, {"role": "assistant"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, ANSWERS]},
        {"messages": "Hi"},
        {"messages": ["Hi"]},
    ],
    "last_chats": [
        {"messages": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        {"messages": [ASKS, ANSWERS]},
    ],
    "answers": [
        {"prompt": "Hi", "completion": "Hello"},
        {"prompt": "Hi", "completion": " "},
        {"prompt": "Hi", "completion": [ANSWERS]},
        {"prompt": [ASKS], "completion": [ASKS]},
        {"prompt": [ASKS, ANSWERS], "completion": [ANSWERS]},
    ],
    "prompts": [{"prompt": "Hi"}],
    "gaps": [{"prompt": "Hi", "completion": "Hello"}, {"prompt": "Hi"}],
}
"""Rows of conversations, by the names of their files."""


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=pytest.mark.linux if line.endswith(" --ask_script") else ()) for line in WRONG]
)
def test_a_wrong_input_ends_with_2_and_one_message_and_leaves_nothing(
    line: str, run: Run, workplace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(without_torch(tmp_path_factory.mktemp("path"))))
    write_csv(workplace / "rows.csv", [("a", "x"), (" ", "y"), ("b", "x")], header="body,label")
    (workplace / "latin.csv").write_bytes(b"text,label\nca\xe9,a\n")
    (workplace / "binary.csv").write_bytes(b"\x80PNG\x00\x01\xff")
    (workplace / "wrong.yaml").write_text("name: x\nsearch: {learning_rate: {low: 1e-4, high: 1e-5}}\nn_trials: 2\n")
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds"
    for name, column, values in (("runs", ",f1", "900,0.8"), ("negative", ",f1", "-900,0.8"), ("missing", "", "900")):
        (workplace / f"{name}.csv").write_text(f"{header}{column}\nml.g5.xlarge,1,16,5e-5,2,{values}\n")
    (workplace / "one.csv").write_text("text,label\na,x\nb,x\nc,x\n")
    (workplace / "unlabelled.csv").write_text("text,label\na,x\nb,NaN\nc,y\nd,nan\ne,x\n")
    (workplace / "parts.csv").write_text("text,label\na,0.5\nb,1\nc,2\n")
    (workplace / "halves.csv").write_text("text,label\na,1\nb,1.5\nc,2.0\nd,-2.5\n")
    (workplace / "ragged.csv").write_text("text,label\na,x\ngood, bad,y\n")
    (workplace / "commas.tsv").write_text("text,label\na,x\nb,y\n")
    (workplace / "headless.csv").write_text("a film,good\nb film,good\nc film,bad\n")
    (workplace / "pairs.csv").write_text("text,label\na,x\nb,y\nc,x\nd,y\n")
    (workplace / "nothing.csv").touch()
    (workplace / "nothing").mkdir()
    (workplace / "sheet.xlsx").write_bytes(b"PK\x03\x04")
    (workplace / "lines.jsonl").write_text('{"text": "a", "label": "x"}\n{"text": "b" "label": "y"}\n')
    (workplace / "log.jsonl").write_text('epoch 1\n{"text": "b", "label": "y"}\n')
    for name, chats in CHATS.items():
        (workplace / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in chats))
    (workplace / "short").mkdir()
    (workplace / "short" / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 64}')
    (workplace / "broken.py").write_text("import argparse\nprint('x'\n")
    (workplace / "metric.py").write_text(METRIC_SCRIPT)
    (workplace / "book.ipynb").write_text('{"cells": [], "nbformat": 4}')
    (workplace / "rates.py").write_text(CLICK_SCRIPT)
    before = {path.name for path in workplace.iterdir()}

    code, out, err = run(*line.split())

    assert (code, out) == (2, "")
    assert err.count("paretune: ") == 1
    assert "Traceback" not in err
    assert [text for text in WRONG[line] if text not in err] == []
    homes = {".paretune"} if line.startswith(SIMULATED[:26]) else set()  # where a simulated job would be kept
    assert {path.name for path in workplace.iterdir()} - homes == before  # not even an MLflow store


def without_torch(folder: Path) -> Path:
    """Put a module into the folder that replaces torch and cannot be imported."""
    (folder / "torch.py").write_text("raise RuntimeError('a wrong input must be refused before torch is imported')\n")
    return folder


ADDRESS = "postgresql://ann:hunter2@db/studies"


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        *(f"train --storge {ADDRESS}", f"train --seed {ADDRESS}", f"train --model {ADDRESS}", f"train {ADDRESS}"),
        *(f"study {ADDRESS}", "study wrong.yaml", "train --pasword a hunter2", ADDRESS),
        "train --password hunter2 --password hunter2",
        'train --training_arguments {"hub_token":"hf_hunter2hunter2hunter2"}',
    ],
)
def test_a_password_in_the_wrong_place_is_not_shown(line: str, as_json: bool, run: Run, workplace: Path) -> None:
    (workplace / "wrong.yaml").write_text(
        f"name: x\nstorge: {ADDRESS}\njob: {{password: hunter2, seed: '{ADDRESS}'}}\nsearch: {{seed: {ADDRESS}}}\n"
    )
    code, out, err = run(*line.split(), *["--json"] * as_json)

    assert code == 2
    assert "hunter2" not in out + err
    assert err
