"""Model files that a script saves beside itself are artifacts of its run, and no other trial overwrites them."""

import json
import os
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
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
    assert "out/model.pt (11 bytes)" in first[1]
    assert second[0] == 0
    kept = [models_of(client, each.info.run_id, tmp_path) for each in client.search_runs(["0"])]
    assert [each["out/model.pt"] for each in kept] == ["weights 0.5", "weights 0.1"]
    assert all(each.keys() == {"out/model.pt", "booster.txt"} for each in kept)


def test_files_that_other_programs_write_in_the_current_folder_are_not_the_jobs(
    workplace: Path, run: Run, client: MlflowClient
) -> None:
    (workplace / "project").mkdir()
    (workplace / "project" / "train.py").write_text(
        "import pathlib, subprocess\n"
        "import numpy as np\n"
        "def elsewhere(name):\n"  # as another program does meanwhile: this process opens no such file
        "    subprocess.run(['mkdir', '-p', 'taxes'], check=True)\n"
        "    subprocess.run(['cp', 'own.pkl', 'taxes/' + name], check=True)\n"
        "pathlib.Path('own.pkl').write_bytes(b'own')\n"
        "[elsewhere(name) for name in ('private.' + 'pkl', 'cache.npy', 'embeddings.npz')]\n"
        "subprocess.run(['cp', 'own.pkl', 'booster.cbm'], check=True)\n"  # as a library in C++ does
        "[subprocess.run(['cp', 'own.pkl', f'epoch_{n}.pt'], check=True) for n in range(2)]\n"
        "pathlib.Path('runs/a').mkdir(parents=True)\n"
        "subprocess.run(['cp', 'own.pkl', 'runs/a/' + chr(98) + '.pt'], check=True)\n"
        "np.save('rows.npy', np.zeros(2))\n"
        "np.savez('evaluations.npz', results=np.zeros(2))\n"
        "np.savez('weights.npz', w=np.zeros(2))\n"
        "print('loss: 1')\n"
    )

    code, out, err = run("train", "project/train.py")

    assert code == 0, err
    (only,) = client.search_runs(["0"])
    paths = {path for folder in ("models", "models/runs/a") for path in files_of(client, only.info.run_id, folder)}
    own = {"own.pkl", "booster.cbm", "epoch_0.pt", "epoch_1.pt", "weights.npz", "runs/a/b.pt"}
    assert paths - {"models/runs"} == {f"models/{name}" for name in own}
    assert "(--keep_models false keeps none)" in out


def files_of(client: MlflowClient, run_id: str, folder: str) -> set[str]:
    return {artifact.path for artifact in client.list_artifacts(run_id, folder)}


def test_no_model_files_are_kept_on_request_and_a_dry_run_names_the_word(
    workplace: Path, run: Run, client: MlflowClient
) -> None:
    (workplace / "train.py").write_text(SAVES)

    plan = run("train", "train.py", "--dry_run")[1]
    code, out, err = run("train", "train.py", "--keep_models", "false")

    assert "model files that it saves, up to 200 MiB together, in models/ of its run; --keep_models false keeps" in plan
    assert (code, "model files" in out) == (0, False), err
    (only,) = client.search_runs(["0"])
    assert files_of(client, only.info.run_id, "models") == set()


def test_a_file_that_two_jobs_in_one_folder_have_written_is_kept_in_neither_run(
    workplace: Path, run: Run, client: MlflowClient
) -> None:
    (workplace / "train.py").write_text(
        "import os, pathlib, subprocess\n"
        "pathlib.Path('own.pkl').write_bytes(b'own')\n"
        "pathlib.Path('model.pt').write_bytes(b'whose?')\n"
        "subprocess.run(['cp', 'own.pkl', 'booster.cbm'], check=True)\n"  # as a library in C++ does, also in both jobs
        "pathlib.Path('results.json').write_text('{\"val_acc\": 0.5}')\n"
        "print('loss: 1')\n"
    )
    other = Path(os.environ["PARETUNE_HOME"]) / "jobs" / "paretune-other" / "output" / "data"
    other.mkdir(parents=True)
    note = {"pid": os.getpid(), "began": time.time(), "folders": [str(workplace.resolve())]}
    (other / "working.json").write_text(json.dumps(note))
    (other / "written.txt").write_text(f"{workplace / 'model.pt'}\n{workplace / 'results.json'}\n")

    code, out, err = run("train", "train.py")

    assert code == 0, err
    (only,) = client.search_runs(["0"])
    assert files_of(client, only.info.run_id, "models") == {"models/own.pkl"}
    assert "val_acc" not in only.data.metrics
    assert "not kept, because another job that ran at the same time may have written it: " in out
    assert all(f"{workplace.resolve() / name} (" in out for name in ("model.pt", "booster.cbm"))
    assert "let each job save into a folder of its own" in out
    left = json.loads((other / "others.jsonl").read_text())  # the other job does not take what this one has written
    assert {str(workplace.resolve() / name) for name in ("own.pkl", "model.pt")} <= {*left["files"]}


def test_of_two_jobs_that_overwrite_one_model_neither_run_has_it(
    workplace: Path, run: Run, client: MlflowClient
) -> None:
    (workplace / "train.py").write_text(
        "import pathlib, sys, time\n"
        "pathlib.Path('model.pt').write_bytes(sys.argv[1].encode())\n"
        "begun = pathlib.Path(sys.argv[1]); begun.touch()\n"
        "while len([*pathlib.Path('.').glob('begun*')]) < 2: time.sleep(0.01)\n"
        "print('loss: 1')\n"
    )

    with ThreadPoolExecutor() as pool:
        words = [[sys.executable, "-m", "paretune", "train", "train.py", name] for name in ("begun1", "begun2")]
        both = [*pool.map(lambda each: subprocess.run(each, capture_output=True, text=True, check=False), words)]

    assert [each.returncode for each in both] == [0, 0], both
    assert all("another job that ran at the same time may have written it" in each.stdout for each in both)
    runs = client.search_runs(["0"])
    assert [files_of(client, each.info.run_id, "models") for each in runs] == [set(), set()]


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


def job_in(folder: Path) -> tuple[model_files.Notes, Path]:
    """Return the notes of a job, which has begun, and its store."""
    data = folder / "jobs" / "one" / "output" / "data"
    data.mkdir(parents=True)
    notes = model_files.Notes(data)
    notes.begin([])
    return notes, data / "paretune"


def test_the_newest_files_are_kept_up_to_the_limit_and_the_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "LARGEST", 100)
    notes, store = job_in(tmp_path)
    root, now = tmp_path / "root", time.time() + 60
    for age, name in enumerate(
        ["last.ckpt", "epoch=1.ckpt", ".venv/lib.bin", "venv/w.bin", "rows.csv", "a/b/c/d/e/deep.pt"]
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 60)
        os.utime(root / name, (now - age, now - age))
    (root / "old.pt").touch()
    os.utime(root / "old.pt", (0, 0))
    places = model_files.Places(own=[root], shared=[])

    said = model_files.keep(places, notes, store)

    assert said == {"models": "last.ckpt (60 bytes)", "models_left_out": f"{root / 'epoch=1.ckpt'} (60 bytes)"}
    assert [path.name for path in store.rglob("*.*")] == ["last.ckpt"]


def test_a_model_that_vanishes_while_models_are_kept_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, store = job_in(tmp_path)
    root = tmp_path / "root"
    root.mkdir()
    for number in range(4):
        (root / f"checkpoint-{number}.pt").write_text(str(number))
    looked_at = list[Path]()

    def is_model(path: Path) -> bool:  # the training's own thread removes its oldest checkpoints meanwhile
        looked_at.append(path)
        (root / "checkpoint-0.pt").unlink(missing_ok=True)
        if len(looked_at) == 3:
            (root / "checkpoint-1.pt").unlink()
        return True

    monkeypatch.setattr(model_files, "_is_model", is_model)
    said = model_files.keep(model_files.Places(own=[root], shared=[]), notes, store)

    assert {path.name for path in store.rglob("*.pt")} == {"checkpoint-2.pt", "checkpoint-3.pt"}
    assert said.keys() == {"models"}


def test_a_zip_file_is_a_model_only_if_it_has_the_members_of_stable_baselines3(tmp_path: Path) -> None:
    notes, store = job_in(tmp_path)
    for name, member in (("best_model.zip", "policy.pth"), ("rows.zip", "rows.csv")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, "x")
    (tmp_path / "broken.zip").write_text("no archive")

    model_files.keep(model_files.Places(own=[tmp_path], shared=[]), notes, store)

    assert [path.name for path in store.rglob("*.zip")] == ["best_model.zip"]
