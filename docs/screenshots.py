"""Retake the screenshots in README and docs: rehearse a study, open MLflow's UI, and capture what it shows.

    python docs/screenshots.py                     # studies/demo.yaml, into docs/pictures
    python docs/screenshots.py OTHER.yaml FOLDER

This needs Debian's Chromium (`apt-get install chromium`) and Playwright, which is in the extra `test`. The rehearsal
takes a minute. Nothing is billed, and all of it happens in a folder that is removed afterwards.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

CHROMIUM = Path("/usr/bin/chromium")
_HOUSE = Path(__file__).resolve().parents[1]
_SERVER_PATIENCE_S = 120.0
_PAGE_PATIENCE_MS = 90_000.0
_WIDTH, _HEIGHT = 1440, 900
_NO_ASSISTANT = """
localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
"""
"""On the first visit, MLflow 3.17 opens a chat next to everything; this closes it, as a visitor would."""


@contextmanager
def mlflow_ui(store: str, folder: Path) -> Iterator[str]:
    """Yield the address of an `mlflow ui` of this store, on a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store, "--port", str(port), "--workers", "1"]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "mlflow-ui.log").open("wb") as log:
        server = subprocess.Popen(
            words, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **quiet}, cwd=folder
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server, folder / "mlflow-ui.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_for(address: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _SERVER_PATIENCE_S
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(address, timeout=5):  # noqa: S310
            return
        time.sleep(0.2)
    raise RuntimeError(f"mlflow ui does not answer at {address}: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a page of a headless Chromium in light colors, without MLflow's chat."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        context = chromium.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        context.set_default_timeout(_PAGE_PATIENCE_MS)
        context.add_init_script(_NO_ASSISTANT)
        yield context.new_page()
        chromium.close()


def photograph_page(page: Any, client: MlflowClient, run_id: str, path: Path) -> None:
    """Take a picture of a study's page."""
    with tempfile.TemporaryDirectory() as target:
        page.goto(Path(client.download_artifacts(run_id, "pareto.html", target)).as_uri())
        page.set_viewport_size({"width": 940, "height": 828})
        page.wait_for_timeout(1000)  # until the chart has its size
        page.screenshot(path=path)
        page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})


def photograph_run(page: Any, address: str, run_id: str, path: Path) -> None:
    """Take a picture of a run in MLflow's UI, with its whole note."""
    page.goto(f"{address}/#/experiments/0/runs/{run_id}?workflowType=machine_learning", wait_until="domcontentloaded")
    page.wait_for_selector("text=About this run")
    page.get_by_text("Show more", exact=True).first.click()
    page.wait_for_timeout(1000)  # until the note shows its picture
    page.screenshot(path=path)


def photograph_trials(page: Any, address: str, run_id: str, path: Path) -> None:
    """Take a picture of MLflow's table of a study's trials, at the address that the study prints."""
    view = f"viewStateShareKey={run_id}&workflowType=machine_learning"
    page.goto(f"{address}/#/experiments/0/runs?{view}", wait_until="domcontentloaded")
    page.wait_for_selector("text=trial 1")
    page.wait_for_timeout(3000)  # until the columns have their widths
    page.screenshot(path=path)


def main(study: Path, folder: Path) -> None:
    """Rehearse the study, and take screenshots of its page, its run and its trials in MLflow."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [folder / "pareto.png", folder / "study-run.png", folder / "mlflow-runs.png"]
    with tempfile.TemporaryDirectory(prefix="paretune-pictures-") as name:
        workspace, store = Path(name), f"sqlite:///{Path(name) / 'mlflow.db'}"
        (workspace / "studies").symlink_to(study.parent)  # so that the pictures show paths as a user types them
        os.environ |= {"MLFLOW_TRACKING_URI": store, "PARETUNE_HOME": str(workspace / ".paretune")}
        os.environ["PARETUNE_PRICES"] = str(_HOUSE / "studies" / "polarity_prices.csv")  # of the demo's machines
        command = [sys.executable, "-m", "paretune", "study", "--study", f"studies/{study.name}"]
        subprocess.run(command, cwd=workspace, check=True)
        client = MlflowClient(store)
        (run,) = client.search_runs(["0"], "tags.`paretune.kind` = 'study'")
        with mlflow_ui(store, workspace) as address, browser() as page:
            photograph_page(page, client, run.info.run_id, pictures[0])
            photograph_run(page, address, run.info.run_id, pictures[1])
            photograph_trials(page, address, run.info.run_id, pictures[2])
    for path in pictures:
        _shrink(path)
    print(f"{', '.join(path.name for path in pictures)} are in {folder}")


def _shrink(path: Path) -> None:
    """Reduce a picture to 200 colors and a width of at most 1,200 pixels."""
    from PIL import Image

    picture = Image.open(path).convert("RGB")
    picture.thumbnail((1200, 1200))
    picture.quantize(200).save(path, optimize=True)


if __name__ == "__main__":
    if not CHROMIUM.exists():
        sys.exit(f"{CHROMIUM} does not exist: apt-get install chromium")
    usual = [_HOUSE / "studies/demo.yaml", _HOUSE / "docs/pictures"]
    paths = [Path(word) for word in sys.argv[1:]]
    study, folder = [*paths, *usual[len(paths) :]]
    main(study.resolve(), folder.resolve())
