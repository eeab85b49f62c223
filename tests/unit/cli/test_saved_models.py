"""Model files that a script saves beside itself are artifacts of its run, and no other trial overwrites them."""

import os
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.user_code import model_files
from tests.support.tags import tags_of
from tests.support.typed import Run

SAVES = """
import argparse, pathlib, pickle
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
lr = parser.parse_args().lr
folder = pathlib.Path("out")
folder.mkdir(exist_ok=True)
(folder / "model.pt").write_bytes(f"weights {lr}".encode())
pathlib.Path("booster.txt").write_text(f"tree\\nversion=v4\\nrate={lr}\\n")
pathlib.Path("notes.txt").write_text("no model")
print("val_loss:", lr)
"""


def models_of(client: MlflowClient, run_id: str, folder: Path) -> dict[str, str]:
    """Return the text of each model file of a run, by name."""
    path = Path(client.download_artifacts(run_id, model_files.FOLDER, str(folder)))
    return {file.relative_to(path).as_posix(): file.read_text() for file in path.rglob("*") if file.is_file()}


def test_each_run_keeps_the_model_that_it_has_saved_whatever_the_next_one_overwrites(
    workplace: Path, run: Run, client: MlflowClient, tmp_path: Path
) -> None:
    (workplace / "train.py").write_text(SAVES)
    (workplace / "old.pt").write_text("from before")
    os.utime(workplace / "old.pt", (0, 0))

    first = run("train", "train.py")
    second = run("train", "train.py", "--lr", "0.5")

    assert "its model files are in the run, in models/: " in first[1]
    assert "out/model.pt (0.1 MiB)" in first[1]
    assert second[0] == 0
    kept = [models_of(client, each.info.run_id, tmp_path) for each in client.search_runs(["0"])]
    assert [each["out/model.pt"] for each in kept] == ["weights 0.5", "weights 0.1"]
    assert all(each.keys() == {"out/model.pt", "booster.txt"} for each in kept)


def test_of_two_jobs_in_one_folder_at_the_same_time_each_keeps_the_model_that_it_has_saved(
    workplace: Path, run: Run, client: MlflowClient, tmp_path: Path
) -> None:
    (workplace / "train.py").write_text(
        "import pathlib, shutil, subprocess\n"
        "import numpy as np\n"
        "pathlib.Path('own.pkl').write_bytes(b'own')\n"
        "subprocess.run(['cp', 'own.pkl', 'theirs.pkl'], check=True)\n"  # as another job does
        "subprocess.run(['cp', 'own.pkl', 'booster.cbm'], check=True)\n"  # as a library in C++ does
        "np.savez('weights.npz', w=np.zeros(2))\n"
        "print('loss: 1')\n"
    )
    note = Path(os.environ["PARETUNE_HOME"]) / "jobs" / "paretune-other" / "output" / "data" / "written.txt"
    note.parent.mkdir(parents=True)
    note.write_text(f"{workplace / 'theirs.pkl'}\n{workplace / 'own.pkl'}\n")

    code, _, err = run("train", "train.py")

    assert code == 0, err
    (only,) = client.search_runs(["0"])
    kept = {artifact.path for artifact in client.list_artifacts(only.info.run_id, "models")}
    assert kept == {"models/own.pkl", "models/booster.cbm", "models/weights.npz"}
    notes = [{*path.read_text().splitlines()} for path in note.parents[3].glob("*/output/data/written.txt")]
    assert any({f"{workplace}/{name}" for name in ("own.pkl", "weights.npz")} <= lines for lines in notes)


def test_a_project_keeps_the_model_of_its_copy(workplace: Path, run: Run, client: MlflowClient, tmp_path: Path) -> None:
    (workplace / "project").mkdir()
    (workplace / "project" / "train.py").write_text(SAVES)

    code, out, err = run("train", "--project", "project", "--entry_point", "train.py", "--lr", "0.5")

    assert (code, "in models/: " in out) == (0, True), err
    (only,) = client.search_runs(["0"])
    assert models_of(client, only.info.run_id, tmp_path)["out/model.pt"] == "weights 0.5"
    note = tags_of(only)["mlflow.note.content"]  # as that of a script
    assert "- val_loss: 0.5" in note
    assert "Again: `paretune train --training_arguments '{\"lr\": 0.5}' --project project" in note


def test_the_newest_files_are_kept_up_to_the_limit_and_the_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "LARGEST", 100)
    root, store, now = tmp_path / "root", tmp_path / "store", time.time()
    for age, name in enumerate(
        ["last.ckpt", "epoch=1.ckpt", ".venv/lib.bin", "venv/w.bin", "rows.csv", "a/b/c/d/e/deep.pt"]
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 60)
        os.utime(root / name, (now - age, now - age))

    said = model_files.keep([root], now - 60, store)

    assert said == {"models": "last.ckpt (0.1 MiB)", "models_left_out": f"{root / 'epoch=1.ckpt'} (0.1 MiB)"}
    assert [path.name for path in store.rglob("*.*")] == ["last.ckpt"]
    assert model_files.keep([root], now + 60, store) == {}
