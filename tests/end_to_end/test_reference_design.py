"""The published benchmark rebuilt: its design on the simulated launcher, then every view of `report`."""

import re
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core.result import Row, read_rows
from tests.end_to_end.cloud import REPOSITORY


def report(client: MlflowClient, words: str, folder: Path) -> tuple[list[Row], dict[str, str]]:
    """Rows of report.csv, and the texts of report.md and report.html by their endings."""
    assert main(["report", *words.split()]) == 0
    newest = client.search_runs(["0"], "tags.`paretune.kind` = 'report'", order_by=["attributes.start_time DESC"])[0]
    workspace = Path(client.download_artifacts(newest.info.run_id, "", str(folder)))
    texts = {ending: (workspace / f"report.{ending}").read_text() for ending in ("md", "html")}
    return read_rows((workspace / "report.csv").read_text()), texts


def titles(page: str) -> list[str]:
    """Titles of the charts of a page."""
    return re.findall("<h3>(.*)</h3>", page)


@pytest.mark.slow
def test_two_commands_give_the_table_and_every_figure_of_the_simulated_benchmark(
    workplace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "studies").symlink_to(REPOSITORY / "studies")
    monkeypatch.setenv("PARETUNE_PRICES", "studies/polarity_prices.csv")
    client = MlflowClient()
    for name in ("polarity_scaling", "polarity_scaling_more"):
        assert main(["study", f"studies/{name}.yaml", "--launcher", "simulated"]) == 0

    rows, texts = report(client, "--view scaling", tmp_path_factory.mktemp("scaling"))
    simulated = [row for row in rows if row["origin"] == "simulated"]
    assert [(row["devices"], row["n"]) for row in simulated] == [(1, 5), (4, 6), (8, 6), (16, 5), (32, 5)]
    assert all(row["speed_up"] and row["efficiency"] and row["cost_usd_mean"] and row["f1_mean"] for row in simulated)
    assert re.search(
        "## Simulated: distilbert-base-uncased on fancyzhx/amazon_polarity, .* rows x epochs, by shape", texts["md"]
    )
    assert "f1 ~ log2(devices) * log2(data_size)" in texts["md"]
    assert titles(texts["html"]) == [
        "Time over devices (simulated)",
        "F1 over devices (simulated)",
        "Scaled against fixed learning rate (simulated)",
    ]

    rows, texts = report(client, "--view compare --by learning_rate_scaling", tmp_path_factory.mktemp("compare"))
    assert [row["level"] for row in rows] == ["none", "sqrt"] * 2

    rows, texts = report(client, "", tmp_path_factory.mktemp("runs"))
    assert len(rows) == 27
    assert {row["origin"] for row in rows} == {"simulated"}
    assert "polarity scaling, more" in texts["md"]
