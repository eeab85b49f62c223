"""The pages of docs/reference contain what the code contains."""

import json
import re
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core import errors
from paretune.specification.profile import SETTABLE
from tests.support.tags import tags_of

ROOT = Path(__file__).parents[2]
CODE = "\n".join(path.read_text() for path in (ROOT / "src" / "paretune").rglob("*.py"))
OF_OUR_OWN = {
    *("PARETUNE_STARTED_AT", "PARETUNE_RUN", "PARETUNE_LAUNCHED_BY", "PARETUNE_STARTER", "PARETUNE_COMPLETE"),
    *("PARETUNE_ENDING", "PARETUNE_WRITTEN", "PARETUNE_RUNNER"),
}
"""Variables that one process of paretune, or a shell, sets for another process."""


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reference

    return reference


@pytest.mark.skipif(
    f"pydantic=={version('pydantic')}\n" not in (ROOT / "constraints.txt").read_text(),
    reason="each release of pydantic writes schemas a little differently: install with -c constraints.txt",
)
def test_the_committed_pages_are_what_the_code_says_and_explain_everything(reference: ModuleType) -> None:
    made = reference.pages()

    assert {path: (ROOT / path).read_text() for path in made} == made, (
        "run `python docs/reference.py`, which writes docs/reference from the code"
    )
    assert not re.findall(r"^- `[^`]+`(?: \(.*\))?: *$", "\n".join(made.values()), re.MULTILINE)


def test_editors_find_no_fault_in_a_shipped_study_or_one_of_the_pages_and_find_a_wrong_word() -> None:
    shipped = [path.read_text() for path in (ROOT / "studies").glob("*.yaml")]
    foreign = [path.read_text() for path in (ROOT / "tests" / "foreign").glob("*/study.yaml")]
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    blocks = [
        block for block in re.findall(r"^```yaml\n(.*?)^```", pages, re.MULTILINE | re.DOTALL) if "\nsearch:" in block
    ]
    editor = jsonschema.Draft202012Validator(json.loads((ROOT / "studies" / "study.schema.json").read_text()))

    for text in [*shipped, *foreign, *blocks]:
        editor.validate(yaml.safe_load(text))  # this reads 5e-5 as a string, as some editors do
    assert {text.partition("\n")[0] for text in shipped} == {"# yaml-language-server: $schema=study.schema.json"}
    with pytest.raises(jsonschema.ValidationError, match="n_trial"):
        editor.validate({"name": "x", "search": {"seed": {"choices": [1]}}, "n_trial": 2})


def test_the_pages_written_by_hand_are_complete() -> None:
    page = (ROOT / "docs" / "reference" / "files.md").read_text()
    codes = re.findall(r"[├└]── (\w+) +(\d+) +(.+)", errors.__doc__ or "")
    folders = set(re.findall(r"\bhome / \"([\w.-]+)\"", CODE))

    assert set(re.findall(r"\bPARETUNE_[A-Z_]+", CODE)) - OF_OUR_OWN == set(re.findall(r"^- `(PAR\w+)`", page, re.M))
    assert [
        f"| {code} | `{name}` | {text} |" for name, code, text in codes if f"| `{name}` | {text} |" not in page
    ] == []
    assert {name for name in {*folders, *SETTABLE} if f"`{name}`" not in page} == set()


def test_every_metric_and_tag_of_a_job_has_an_entry(
    reference: ModuleType, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000"]
    assert main(["train", *words]) == 0
    capsys.readouterr()

    page = reference.pages()["docs/reference/recorded.md"]
    entries = set(re.findall(r"^- `([^`]+)`: ", page, re.MULTILINE))
    entries |= set(re.findall(r"`([^`]+)`", page.rpartition("or serve paretune itself: ")[2]))
    runs = MlflowClient().search_runs(["0"])
    metrics = {name for run in runs for name in run.data.metrics if "/" not in name}
    tags = {name for run in runs for name in tags_of(run) if name.startswith("paretune.")}
    assert len(metrics) > 8
    assert len(tags) > 20
    assert {re.sub("_(low|high|best)$", "", name) for name in metrics | tags} - entries == set()


def test_every_tag_and_metric_of_the_page_is_used_by_the_code() -> None:
    uses = Counter(re.findall(r"\b[A-Z_0-9]+\b", CODE))
    for path in ("tracking/schema.py", "specification/metrics.py"):
        text = (ROOT / "src" / "paretune" / path).read_text()
        names = re.findall(r'^([A-Z_0-9]+) = "([^"]+)"', text, re.MULTILINE)
        unused = [name for constant, name in names if uses[constant] < 2]

        assert len(names) > 20
        assert [name for name in unused if not name.startswith("paretune.used_")] == []  # their endings are in a report
