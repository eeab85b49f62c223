"""The chart of a study in a notebook, with a real kernel."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

PLOTLY = "application/vnd.plotly.v1+json"
STUDY = """
import paretune
study = paretune.study(
    "types",
    {"instance_type": ["ml.g5.xlarge", "ml.g5.12xlarge", "ml.g6.xlarge"]},
    job=paretune.JobSpec(launcher="simulated", max_train_samples=4000, global_batch_size=32),
    objectives={"cost_usd": "minimize", "job_seconds": "minimize"},
    n_trials=3,
)
study.front
"""


@pytest.mark.slow  # it starts a kernel
def test_the_chart_is_shown_once_and_renewed_after_each_trial(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(workplace / "user"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(STUDY)])
    seen: list[str] = []

    class Watching(NotebookClient):
        def process_message(self, msg: dict, cell: nbformat.NotebookNode, index: int) -> object:  # type: ignore[type-arg]
            data = msg["content"].get("data", {})
            if PLOTLY in data:
                seen.append(data["text/plain"])
            return super().process_message(msg, cell, index)

    Watching(notebook, timeout=120, resources={"metadata": {"path": str(workplace)}}).execute()

    assert [text.partition(",")[0] for text in seen] == [
        "Running: 1 of 3 trials",
        "Running: 2 of 3 trials",
        "Running: 3 of 3 trials",
        "Ended: 3 trials",
    ]
    outputs = notebook.cells[0].outputs
    (drawn,) = [output["data"][PLOTLY] for output in outputs if PLOTLY in output.get("data", {})]
    assert drawn["layout"]["title"]["text"].startswith("Ended: 3 trials")
    marks = [trace for trace in drawn["data"] if trace.get("hovertext") and trace["mode"] == "markers"]
    assert sum(len(trace["hovertext"]) for trace in marks) == 3
    assert "pareto_rank" in outputs[-1]["data"]["text/html"]
