"""What a user can give: every parameter of every command, and every file that one of them names."""

import contextlib
import io
import json
import os
import random
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from unittest import mock

from paretune import cli
from tests.conftest import user_s_own
from tests.hostile.values import MARK, ODD_PATHS, broken, harmful, make_odd
from tests.hostile.watch import Gate, watching

REPOSITORY = Path(__file__).parents[2]
LONGEST_S = 30.0
"""Seconds after which an input counts as one that hangs the command."""
MOST_GIB = 4
"""Of address space, which libraries take more of than they use: what an input may add."""

_RECORDED = (REPOSITORY / "studies" / "rehearsal.csv").read_text()
_ROWS = "text,label\n" + "".join(f"a {word} film,{label}\n" for label in "01" for word in ("good", "bad") * 3)
_PROFILE = 'region = "us-east-1"\nrole = "SageMakerRole"\nspot = true\n'
_PROFILE += 'sagemaker = {subnets = ["subnet-1"], volume_size_in_gb = 50}\n'
_PROFILE += 'tags = {team = "nlp", cost = "12"}\nbudget = "team.yaml"\n'
_PRICES = "instance_type,price_usd_per_hour,region,as_of,source\nml.g5.xlarge,1.4,us-east-1,2026-10-01,mine\n"
_PROJECT = (
    "name: own\npython_env: python_env.yaml\nentry_points:\n  main:\n    parameters:\n"
    "      alpha: {type: float, default: 0.5}\n      text: {type: string, default: a}\n"
    '    command: "python train.py --alpha {alpha} --text {text}"\n'
)
_BUDGETS = (
    "budgets:\n  - {name: everything, usd_per_month: 2000}\n  - {name: nlp, usd_per_month: 500, tags: {team: nlp}}\n"
)
_LINES = (
    "identity_line_item_id,line_item_line_item_type,line_item_product_code,line_item_usage_type,line_item_resource_id,"
    "line_item_usage_start_date,line_item_usage_end_date,line_item_usage_amount,line_item_unblended_cost\n"
    "a1,Usage,AmazonSageMaker,USE1-Train:ml.g5.xlarge,"
    "arn:aws:sagemaker:us-east-1:111122223333:training-job/paretune-0123456789abcdef0123456789abcdef-1,"
    "2026-10-01T00:00:00.000Z,2026-10-01T01:00:00.000Z,0.5,0.704\n"
)
_PYTHON = "python: 3.11\ndependencies:\n  - mlflow\n"
_CONDA = "name: own\nchannels: [a]\ndependencies:\n  - python=3.11\n  - numpy=1.26\n  - pip:\n    - mlflow==3.1\n"
_MODEL = json.dumps(
    {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}
    | {"architectures": ["BertForMaskedLM"], "intermediate_size": 128, "max_position_embeddings": 64}
)


@dataclass(frozen=True, kw_only=True)
class HostileInput:
    """One command with what it is given.

    Attributes:
        words: its command line.
        files: path below the user's folder to content.
        odd: path below the user's folder to the one of ODD_PATHS that it is.
        environment: variables of the user's shell.
    """

    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = " ".join(repr(word if len(word) < 120 else f"{word[:120]}... ({len(word)})") for word in self.words)
        files = {name: content[:400] for name, content in self.files.items()}
        return f"{text} {files} {self.environment} {self.odd}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of it.

    Attributes:
        code: exit code; None where the command was about to start a process or to call a server.
        wrong: what must not happen, a sentence each.
        seconds: it took.
        grown_mib: by which the largest memory of this process has grown.
    """

    code: int | None
    wrong: tuple[str, ...]
    seconds: float
    grown_mib: float


def an_input(source: random.Random) -> HostileInput:
    """A command with a harmful parameter or a broken file, sometimes both."""
    made = source.choice(_KINDS)(source)
    if made.odd or (source.random() < 0.7 and made.files):
        return made
    names = _parameters_of(made.words[0])
    chosen = source.sample(names, k=min(len(names), source.choice((1, 1, 2, 4))))
    typed = tuple(word for name in chosen for word in (f"--{name}", harmful(source)))
    retained = tuple(
        word
        for name, text in zip(made.words[1::2], made.words[2::2], strict=True)
        if name.removeprefix("--") not in chosen
        for word in (name, text)
    )
    return HostileInput(words=(made.words[0], *retained, *typed), files=made.files, environment=made.environment)


def _parameters_of(command: str) -> list[str]:
    """What the command can be given; whether it is a dry run is ours to say."""
    return sorted(cli.command_named(command).models().keys() - {"dry_run"})


def _job(source: random.Random) -> HostileInput:
    words, files = ["train", "--dry_run", "true"], dict[str, bytes]()
    if source.random() < 0.5:
        words += ["--instance_type", "ml.g5.xlarge"]
    if source.random() < 0.5:
        name = f"rows{source.choice(('.csv', '.jsonl', '.txt', '.parquet', ''))}"
        files[name] = broken(_ROWS, source)
        words += ["--dataset", name]
    return HostileInput(words=tuple(words), files=files)


def _with_profile(source: random.Random) -> HostileInput:
    words = ("train", "--dry_run", "true", "--instance_type", "ml.g5.xlarge")
    files = {"paretune.toml": broken(_PROFILE, source), "team.yaml": _BUDGETS.encode()}
    return HostileInput(words=words, files=files)


def _with_prices(source: random.Random) -> HostileInput:
    files = {"prices.csv": broken(_PRICES, source)}
    return HostileInput(words=("prices",), files=files, environment={"PARETUNE_PRICES": "prices.csv"})


def _project(source: random.Random) -> HostileInput:
    has_conda = source.random() < 0.5
    environment, listed = ("conda.yaml", _CONDA) if has_conda else ("python_env.yaml", _PYTHON)
    project = _PROJECT.replace("python_env: python_env.yaml", "conda_env: conda.yaml") if has_conda else _PROJECT
    texts = {"own/MLproject": project, f"own/{environment}": listed, "own/train.py": "print(1)\n"}
    files = {name: text.encode() for name, text in texts.items()}
    name = source.choice(list(files)[:2])
    files[name] = broken(texts[name], source)
    words: tuple[str, ...] = ("train", "--dry_run", "true", "--project", "own")
    if source.random() < 0.7:  # a job on this machine reads no environment file
        words += ("--instance_type", "ml.g5.xlarge", "--role", "SageMakerRole", "--region", "us-east-1")
    if source.random() < 0.5:
        words += ("--project_parameters", json.dumps({"text": harmful(source), "alpha": "1"}))
    return HostileInput(words=words, files=files)


def _estimate(source: random.Random) -> HostileInput:
    files = {"model/config.json": broken(_MODEL, source)}
    return HostileInput(words=("estimate", "--instance_type", "ml.g5.xlarge,local", "--model", "model"), files=files)


def _study(source: random.Random) -> HostileInput:
    path = source.choice(_files_with("name:"))
    words = ("study", "--study", "study.yaml")
    return HostileInput(words=words, files=_beside() | {"study.yaml": broken(path.read_text(), source)})


def _rehearsed(source: random.Random) -> HostileInput:
    files = {"runs.csv": broken(_RECORDED, source)}
    words = ("train", "--dry_run", "true", "--launcher", "simulated", "--simulation.runs", "runs.csv")
    return HostileInput(words=(*words, "--instance_type", "ml.g5.xlarge"), files=files)


def _import(source: random.Random) -> HostileInput:
    return HostileInput(words=("import", "--recorded_runs", "runs.csv"), files={"runs.csv": broken(_RECORDED, source)})


def _bill(source: random.Random) -> HostileInput:
    name = source.choice(("bill.csv", "bill.parquet", "bill.csv.gz", "bill"))
    return HostileInput(words=("reconcile", "--bill", name), files={name: broken(_LINES, source)})


def _budget(source: random.Random) -> HostileInput:
    words = ("train", "--dry_run", "true", "--launcher", "simulated", "--instance_type", "ml.g5.xlarge")
    return HostileInput(words=(*words, "--budget", "team.yaml"), files={"team.yaml": broken(_BUDGETS, source)})


def _bare(source: random.Random) -> HostileInput:
    return HostileInput(words=(source.choice(("prices", "report", "doctor", "sync")),))


def _odd(source: random.Random) -> HostileInput:
    """A file that a command reads is no file, or is called by a path that leads to none."""
    made = source.choice(_OF_FILES)(source)
    named = [name for name in made.files if name in {*made.words, *made.environment.values()}]
    odd = source.choice(ODD_PATHS)
    if named and source.random() < 0.5:
        name = source.choice(named)
        words = tuple(odd if word == name else word for word in made.words)
        environment = {key: odd if text == name else text for key, text in made.environment.items()}
        return replace(made, words=words, environment=environment, odd={odd: odd} if odd.startswith("a_") else {})
    name = source.choice(sorted(made.files))
    retained = {other: content for other, content in made.files.items() if other != name}
    return replace(made, files=retained, odd={name: odd})


def _beside() -> dict[str, bytes]:
    """The tables that the shipped studies name."""
    tables = (path for path in (REPOSITORY / "studies").glob("*.csv"))
    return {path.name: path.read_bytes() for path in tables}


def _files_with(key: str) -> list[Path]:
    return [path for path in sorted((REPOSITORY / "studies").glob("*.yaml")) if key in path.read_text()]


_OF_FILES = (
    *(_study, _with_profile, _with_prices, _project, _estimate, _rehearsed, _import),
    *(_bill, _budget),
)
"""Kinds whose commands read a file."""
_KINDS = (*(_job,) * 3, *(_study, _odd) * 2, *_OF_FILES[1:], _bare)


class Hangs(BaseException):
    """The command did not end within LONGEST_S."""


@contextlib.contextmanager
def _little_memory() -> Iterator[None]:
    """MemoryError in the block for what needs MOST_GIB more than there is, so that it cannot end this machine."""
    statm = Path("/proc/self/statm")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_GIB * 2**30, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _alarm(_: int, frame: FrameType | None) -> None:
    raise Hangs("".join(traceback.format_stack(frame)[-3:]))


def store_in(folder: Path) -> str:
    """Address of a new MLflow store in a folder of its own, where the artifacts of all its experiments lie too."""
    from mlflow import MlflowClient

    address = f"sqlite:///{folder / 'mlflow.db'}"
    with contextlib.chdir(folder):  # MLflow keeps artifacts below the folder in which a store is first used
        MlflowClient(address).search_experiments()
    return address


def give(hostile: HostileInput, folder: Path, store: str) -> Outcome:
    """Run the command in this process, in an empty `folder`, with the MLflow store at the address `store`."""
    for name, content in hostile.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, odd in hostile.odd.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        make_odd(odd, folder / name)
    custom = user_s_own(folder) | {"MLFLOW_TRACKING_URI": store, "HOME": str(folder)} | hostile.environment
    wrong: list[str] = []
    code: int | None = None
    before, started = _largest_mib(), time.perf_counter()
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, custom),
        mock.patch.object(tempfile, "tempdir", str(folder)),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        _little_memory(),
        watching(folder, Path(store.removeprefix("sqlite:///")).parent, REPOSITORY / ".hypothesis") as seen,
        mock.patch("paretune.studies.run.drive", side_effect=Gate("study")),
    ):
        signal.signal(signal.SIGALRM, _alarm)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            code = cli.main(hostile.words)
        except Gate:
            code = None
        except SystemExit as end:  # of argparse
            code = end.code if isinstance(end.code, int) else 1
        except Hangs as location:
            wrong.append(f"it hangs: {location}")
        except BaseException:
            wrong.append(f"a traceback: {traceback.format_exc()[-3_000:]}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.perf_counter() - started
    if "Traceback (most recent call last)" in printed.getvalue():
        wrong.append(f"a traceback is printed: {printed.getvalue()[-3_000:]}")
    if code not in (None, 0, 2, 3, 4):
        wrong.append(f"exit code {code}: {printed.getvalue()[-1_000:]}")
    if code == 2 and not printed.getvalue().strip():
        wrong.append("it is refused without a word")
    wrong += [f"it writes to {path}" for path in seen.written]
    wrong += [f"something ran it: {path}" for path in folder.rglob(f"*{MARK}*") if path.is_file()]
    wrong += [f"it is part of a command: {words[:300]}" for words in seen.begun if MARK in words]
    return Outcome(code=code, wrong=tuple(wrong), seconds=seconds, grown_mib=_largest_mib() - before)


def _largest_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
