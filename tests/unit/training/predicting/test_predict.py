"""Rows in, the same rows with predictions out: order, cells, figures, and what is refused."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import transformers
from sklearn.metrics import f1_score

from paretune.core.errors import BadInput
from paretune.training.predicting import predict as prediction_module
from paretune.training.predicting.predict import Request, predict
from tests.conftest import sentences, write_csv

Make = Callable[..., Path]
NAMES = {0: "negative", 1: "positive"}


@pytest.fixture(scope="session")
def make_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a model folder with a random head; keywords are entries of its configuration."""

    def make(**config: Any) -> Path:
        folder = tmp_path_factory.mktemp("model")
        config = {"num_labels": 2, "id2label": NAMES} | config
        torch.manual_seed(1)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_model, **config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
        some = tokenizer([text for text, _ in sentences(40)], padding=True, return_tensors="pt")
        with torch.no_grad():  # a random head answers the same class to all
            model.classifier.weight *= 40
            model.classifier.bias -= model.eval()(**some).logits.median(dim=0).values
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def model(make_model: Make) -> Path:
    """A classifier of two named classes."""
    return make_model()


@pytest.fixture
def request_(model: Path, tmp_path: Path) -> Request:
    """Seventy rows with labels."""
    return Request(
        model=str(model),
        data=str(write_csv(tmp_path / "rows.csv", sentences(70))),
        text_column="text",
        label_column="label",
        output=str(tmp_path / "out.csv"),
        batch_size=8,
        max_seq_length=None,
    )


def said(request: Request) -> dict[str, Any]:
    """What is predicted, without telling anybody."""
    return predict(request, lambda done, total: None)


def written(request: Request) -> list[dict[str, str]]:
    """Rows of the output."""
    with Path(request.output).open(newline="") as opened:
        return list(csv.DictReader(opened))


def logits_one_by_one(folder: Path, texts: list[str]) -> list[list[float]]:
    """What transformers itself answers, a text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return [model(**tokenizer(text, return_tensors="pt")).logits[0].tolist() for text in texts]


def test_each_row_gets_the_answer_of_transformers_in_the_order_of_the_file(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_module, "_PIECE", 16)  # so that there are several
    result = said(request_)

    rows = written(request_)
    expected = [
        NAMES[row.index(max(row))] for row in logits_one_by_one(Path(request_.model), [r["text"] for r in rows])
    ]
    assert [(row["text"], row["label"]) for row in rows] == sentences(70)
    assert [row["prediction"] for row in rows] == expected
    assert len(set(expected)) == 2
    assert result["rows"] == 70
    assert result["counts"] == {name: expected.count(name) for name in sorted(set(expected), key=expected.count)[::-1]}
    truth = [row["label"] for row in rows]
    assert result["metrics"]["f1"] == pytest.approx(f1_score(truth, expected, average="macro"))


def test_the_score_is_the_softmax_probability_of_the_class(request_: Request) -> None:
    said(request_)

    row = written(request_)[0]
    ((first, other),) = logits_one_by_one(Path(request_.model), [row["text"]])
    assert float(row["score"]) == pytest.approx(1 / (1 + math.exp(-abs(first - other))), abs=1e-4)


@pytest.mark.parametrize("ending", [".tsv", ".jsonl", ".parquet"])
def test_every_kind_of_file_gives_the_predictions_of_csv(request_: Request, tmp_path: Path, ending: str) -> None:
    frame = pd.read_csv(request_.data)
    other = tmp_path / f"rows{ending}"
    if ending == ".tsv":
        frame.to_csv(other, sep="\t", index=False)
    elif ending == ".jsonl":
        frame.to_json(other, orient="records", lines=True)
    else:
        frame.to_parquet(other)

    said(request_)
    said(replace(request_, data=str(other), output=str(tmp_path / "other.jsonl")))

    lines = [json.loads(line) for line in (tmp_path / "other.jsonl").read_text().splitlines()]
    assert [{**row, "score": str(row["score"])} for row in lines] == written(request_)


def test_cells_are_written_as_they_were_read(request_: Request, tmp_path: Path) -> None:
    rows = 'id,text,label,note\n007,great film,positive,NA\n1e3,"dull, cold",negative,\n3,nan,positive,"a ""b"""\n'
    data = tmp_path / "cells.csv"
    data.write_text(rows)

    said(replace(request_, data=str(data)))

    retained = [{name: row[name] for name in ("id", "text", "label", "note")} for row in written(request_)]
    assert retained == list(csv.DictReader(rows.splitlines()))


@pytest.mark.parametrize(("ending", "mark"), [(".csv", "'"), (".tsv", "'"), (".jsonl", "")])
def test_a_text_that_a_spreadsheet_would_compute_is_text_in_csv_and_tsv(
    request_: Request, tmp_path: Path, ending: str, mark: str
) -> None:
    data, output = tmp_path / "formulas.jsonl", tmp_path / f"out{ending}"
    row = {"text": '=HYPERLINK("x")', "label": "@a", "=1+1": "-2+3", "number": "-0.5", "sign": "-"}
    data.write_text(json.dumps(row))

    said(replace(request_, data=str(data), output=str(output)))

    lines = output.read_text().splitlines()
    result = (
        json.loads(lines[0])
        if ending == ".jsonl"
        else next(csv.DictReader(lines, delimiter="\t" if ending == ".tsv" else ","))
    )
    marked = {"text": f'{mark}=HYPERLINK("x")', "label": f"{mark}@a", f"{mark}=1+1": f"{mark}-2+3"}
    assert result | marked | {"number": "-0.5", "sign": "-"} == result


def test_rows_without_a_label_column_are_predicted_without_figures(request_: Request, tmp_path: Path) -> None:
    data = tmp_path / "texts.csv"
    data.write_text("text\n" + "\n".join(text for text, _ in sentences(5)) + "\n")

    result = said(replace(request_, data=str(data)))

    assert (result["metrics"], result["labelled_rows"], result["remarks"]) == ({}, 0, [])
    assert len(written(request_)) == 5


def test_labels_that_the_model_does_not_know_and_missing_ones_are_left_out_of_f1_and_told(
    request_: Request, tmp_path: Path
) -> None:
    reference = sentences(20)
    data = write_csv(tmp_path / "mixed.csv", [*reference, ("great film", "mixed"), ("dull film", "")])

    result = said(replace(request_, data=str(data)))

    alone = said(replace(request_, data=str(write_csv(tmp_path / "known.csv", reference))))
    assert result["metrics"] == alone["metrics"]
    assert result["labelled_rows"] == 20
    assert "1 rows have values of 'label' that the model does not know, such as 'mixed'" in result["remarks"][0]
    assert "1 rows have no 'label'" in result["remarks"][1]


def test_texts_are_cut_where_the_training_cut_them_unless_told_otherwise(request_: Request, tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "input" / "data" / "job").mkdir(parents=True)
    (job / "input" / "data" / "job" / "job.json").write_text(json.dumps({"spec": {"max_seq_length": "8"}}))
    (job / "model").symlink_to(request_.model)
    copied = job / "copy"
    copied.mkdir()
    for path in Path(request_.model).iterdir():
        (copied / path.name).write_bytes(path.read_bytes())

    assert said(replace(request_, model=str(copied)))["max_seq_length"] == 8
    assert said(request_)["max_seq_length"] == 64
    cut = said(replace(request_, max_seq_length=10))
    lengths = [len(text.split()) + 2 for text, _ in sentences(70)]
    assert (cut["max_seq_length"], cut["truncated_rows"]) == (10, sum(length > 10 for length in lengths))


def test_a_model_of_a_number_answers_numbers_and_is_judged_by_its_errors(
    make_model: Make, request_: Request, tmp_path: Path
) -> None:
    folder = make_model(num_labels=1, id2label={0: "LABEL_0"}, problem_type="regression")
    texts = [text for text, _ in sentences(6)]
    data = write_csv(tmp_path / "rated.csv", [(text, "1.5") for text in texts])

    result = said(replace(request_, model=str(folder), data=str(data)))

    numbers = [row[0] for row in logits_one_by_one(folder, texts)]
    assert [float(row["prediction"]) for row in written(request_)] == pytest.approx(numbers, abs=1e-4)
    assert "score" not in written(request_)[0]
    errors = [abs(number - 1.5) for number in numbers]
    assert result["metrics"]["mae"] == pytest.approx(sum(errors) / 6, abs=1e-5)
    assert result["metrics"]["rmse"] == pytest.approx((sum(error**2 for error in errors) / 6) ** 0.5, abs=1e-5)


def test_a_model_of_several_labels_answers_a_list_of_those_that_are_likely(
    make_model: Make, request_: Request, tmp_path: Path
) -> None:
    names = {0: "film", 1: "music", 2: "actor"}
    folder = make_model(num_labels=3, id2label=names, problem_type="multi_label_classification")
    texts = [text for text, _ in sentences(12)]
    likely = [[names[n] for n in range(3) if row[n] > 0] for row in logits_one_by_one(folder, texts)]
    rows = [{"text": text, "label": labels} for text, labels in zip(texts, likely, strict=True)]
    (tmp_path / "tagged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tagged.csv").write_text(
        "text,label\n" + "".join(f"{row['text']},{'|'.join(row['label'])}\n" for row in rows if row["label"])
    )

    result = said(replace(request_, model=str(folder), data=str(tmp_path / "tagged.jsonl")))
    assert [json.loads(row["prediction"]) for row in written(request_)] == likely
    assert result["metrics"]["f1"] == 1.0
    assert said(replace(request_, model=str(folder), data=str(tmp_path / "tagged.csv")))["metrics"]["f1"] == 1.0


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft 0.21
def test_adapters_answer_as_beside_their_base(model: Path, request_: Request, tmp_path: Path) -> None:
    from peft import LoraConfig, TaskType, get_peft_model

    base = transformers.AutoModelForSequenceClassification.from_pretrained(model)
    torch.manual_seed(2)
    adapters = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["query"], init_lora_weights=False)
    adapted = get_peft_model(base, adapters).eval()
    folder = tmp_path / "adapters"
    adapted.save_pretrained(folder)
    for path in Path(model).iterdir():
        if path.suffix == ".json":
            (folder / path.name).write_bytes(path.read_bytes())

    said(replace(request_, model=str(folder)))

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    rows = written(request_)
    with torch.inference_mode():
        logits = [adapted(**tokenizer(row["text"], return_tensors="pt")).logits[0] for row in rows]
    assert [row["prediction"] for row in rows] == [NAMES[int(row.argmax())] for row in logits]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such column": (
        {"text_column": "txt"},
        r"text_column 'txt' is not in .*rows.csv: it has text, label; ",
    ),
    "empty file": ({"data": "text"}, "data .* is empty"),
    "only a header": ({"data": "text\ntext,label\n"}, "has no rows"),
    "a missing text": (
        {"data": "text,label\ngreat,positive\n,negative\n,positive\n"},
        r"'text' is missing in 2 of 3 rows of .* \(first: rows 2, 3\): fill or drop them",
    ),
    "a broken line": ({"data": "text,label\na,b\nc,d,e\n"}, "data .* cannot be loaded: .*line 3"),
    "predicted before": ({"data": "text,prediction\na,b\n"}, "has a column 'prediction' already"),
    "numbers as texts": ({"data": '{"text": 3}\n', "name": "n.jsonl"}, "must hold text, and holds int"),
    "too long": ({"max_seq_length": 65}, "max_seq_length must be at most 64 for .*, got 65"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_predicted_is_refused_in_one_sentence_and_an_older_output_is_kept(
    request_: Request, tmp_path: Path, case: str
) -> None:
    changes, sentence = REFUSED[case]
    if "data" in changes:
        data = tmp_path / changes.get("name", "broken.csv")
        data.write_text("" if case == "empty file" else changes["data"].removeprefix("text\n"))
        changes = {"data": str(data)}
    Path(request_.output).write_text("before")

    with pytest.raises(BadInput, match=sentence) as raised:
        said(replace(request_, **changes))

    assert len(raised.value.faults) == 1
    assert Path(request_.output).read_text() == "before"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_models_that_do_not_classify_with_names_are_refused(
    request_: Request, make_model: Make, tiny_model: Path, tmp_path: Path
) -> None:
    cases = {
        make_model(id2label={0: "LABEL_0", 1: "LABEL_1"}): "has no class names",
        tiny_model: "is not a classification model .its config.json says BertForMaskedLM.",
        tmp_path: "is no Hugging Face model: it has no config.json",
    }
    for folder, sentence in cases.items():
        with pytest.raises(BadInput, match=sentence):
            said(replace(request_, model=str(folder)))
    assert not Path(request_.output).exists()


def test_a_model_of_words_answers_a_label_for_each(tiny_model: Path, request_: Request, tmp_path: Path) -> None:
    torch.manual_seed(0)
    names = {0: "O", 1: "B-X"}
    tagger = transformers.AutoModelForTokenClassification.from_pretrained(tiny_model, num_labels=2, id2label=names)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    for part in (tagger, tokenizer):
        part.save_pretrained(tmp_path / "tagger")
    texts = ["the film", "great  warm film", "dull cold"]
    (tmp_path / "words.csv").write_text(
        "text,label\n" + "".join(f"{text},{'O ' * len(text.split())}\n" for text in texts)
    )
    request = replace(request_, model=str(tmp_path / "tagger"), data=str(tmp_path / "words.csv"))

    document = said(request)
    rows = written(request)
    with torch.no_grad():
        encoded = tokenizer("great warm film", return_offsets_mapping=True, return_tensors="pt")
        places = [
            row for row, (start, end) in enumerate(encoded.pop("offset_mapping")[0]) if start in (0, 6, 11) and end
        ]
        expected = tagger.eval()(**encoded).logits[0, places].argmax(-1)

    assert rows[1]["prediction"] == " ".join(names[int(number)] for number in expected)
    assert [len(row["prediction"].split()) for row in rows] == [2, 3, 2]
    right = sum(row["prediction"].split().count("O") for row in rows)
    assert document["metrics"]["accuracy"] == pytest.approx(right / 7)


def test_texts_are_written_in_the_order_of_the_rows_and_compared_with_references(
    tiny_seq2seq_models: dict[str, Path], tmp_path: Path
) -> None:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tiny_seq2seq_models["t5"])
    model.generation_config.max_new_tokens = 4
    model.save_pretrained(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_seq2seq_models["t5"])
    tokenizer.save_pretrained(tmp_path / "model")
    data = write_csv(tmp_path / "rows.csv", [("great film", "great film"), ("cold dull the film", "")])
    request = Request(
        model=str(tmp_path / "model"),
        data=str(data),
        text_column="text",
        label_column="label",
        output=str(tmp_path / "out.csv"),
        batch_size=1,
        max_seq_length=None,
    )

    answer = predict(request, lambda done, total: None)

    texts = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)["prediction"].tolist()
    alone = [
        tokenizer.decode(model.generate(tokenizer(text, return_tensors="pt")["input_ids"])[0], skip_special_tokens=True)
        for text in ("great film", "cold dull the film")
    ]
    assert texts == alone
    assert answer["kind"] == "seq2seq"
    assert set(answer["metrics"]) == {"rouge_l"}
    assert (answer["labelled_rows"], answer["counts"]) == (1, {})
