"""The code that travels: everything that is needed, the same bytes each time, and nothing that must stay here."""

import os
import sqlite3
import subprocess
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

import paretune
from paretune.core.errors import BadInput
from paretune.launchers import archive
from paretune.launchers.archive import LARGEST_MIB, code_key, left_behind, pack, package_files, project_files
from paretune.studies.definition.file import StudyFile

SECRETS = [
    *(".env", ".env.production", ".netrc", ".pypirc", ".git-credentials", "credentials", "keys/server.pem"),
    *(".npmrc", ".s3cfg", "prod.env", "Credentials.json", "ID_RSA", "service-account.json", "terraform.tfstate"),
    *("kubeconfig", "secrets.toml", ".pip/pip.conf", ".huggingface/token", ".envrc", ".pgpass", "secrets.yaml"),
    *("keys/id_ecdsa", "keys/putty.ppk"),
    *("keys/private.key", "id_rsa", "id_ed25519", ".aws/config", ".ssh/known_hosts"),
    *(
        "hf_token",
        "wandb_api_key.txt",
        "aws_credentials",
        "password.txt",
        "my-secrets.yaml",
        "gcp-key.json",
        "auth.json",
    ),
    *("terraform.tfvars", "vault.json", "x.kdbx", "passwords.csv", "token.json", "aws_secret.sh", "id_rsa.bak"),
    *("secrets/db.txt", "prod.auto.tfvars", "server.key.pem", "user.keytab", "GCP_KEY.json", "apikey", "passphrase"),
]
INNOCENT = [
    *("tokenizer.json", "special_tokens_map.json", "run_token_classification.py", "token_classification.csv"),
    *("passages.csv", "keyboard.json", "monkey.json", "secret_santa.py", "author.json", "environment.yml", "keys.py"),
    *("credentials/__init__.py", "token_classification/train.csv"),
]
MACHINE = [
    *("venv/lib/site.py", ".venv/lib/site.py", "my-env/pyvenv.cfg", "my-env/lib/site.py", "conda/conda-meta/history"),
    *("conda/lib/site.py", "mlruns/0/meta.yaml", "mlflow.db", "mlflow.db-journal", "__pycache__/train.cpython-311.pyc"),
    *(".ipynb_checkpoints/train.py", ".paretune/jobs/job.json", "node_modules/a.js"),
]


def git(folder: Path, *words: str) -> None:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, env=environment)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "a")


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, errors="surrogateescape")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a user's folder with a script, a module, and everything that must not travel."""
    folder = tmp_path / "project"
    folder.mkdir()
    return write(folder, "train.py", "lib/model.py", "data/words.txt", *SECRETS, *MACHINE)


def test_without_git_code_travels_and_secrets_caches_and_environments_do_not(project: Path) -> None:
    write(project, ".unheard-of", ".config/gcloud/legacy.db")  # no name that begins with a dot travels

    assert set(project_files(project)) == {"train.py", "lib/model.py", "data/words.txt"}
    assert {".unheard-of", ".config/", "hf_token"} <= set(left_behind(project))
    assert not {"venv/", ".venv/", "mlflow.db"} & set(left_behind(project))


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_a_folder_that_is_itself_an_environment_is_refused(tmp_path: Path, mark: str) -> None:
    folder = write(tmp_path, "train.py", "lib/model.py", "bin/python", mark)

    for travels in (True, False):
        with pytest.raises(BadInput, match="is itself a virtual environment"):
            project_files(folder, travels=travels)


def test_names_that_only_sound_like_secrets_travel(tmp_path: Path) -> None:
    assert {*project_files(write(tmp_path, *INNOCENT))} == {*INNOCENT}


def test_a_hard_link_to_a_file_elsewhere_does_not_travel(project: Path, tmp_path: Path) -> None:
    (project / "one.txt").write_text("twice in this folder")
    os.link(project / "one.txt", project / "two.txt")
    assert {"one.txt", "two.txt"} <= project_files(project).keys()
    (tmp_path / "elsewhere").write_text("a secret")
    os.link(tmp_path / "elsewhere", project / "notes.txt")

    with pytest.raises(BadInput, match=r"notes.txt in .* links outside that folder"):
        project_files(project)
    assert "notes.txt" in project_files(project, travels=False)


def test_files_of_a_submodule_travel(project: Path, tmp_path: Path) -> None:
    vendor = write(tmp_path / "vendor", "lib.py")
    for folder in (vendor, project):
        git(folder, "init")
    commit(vendor)
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", str(vendor), "vendor")

    write(project / "vendor", "new.py", "ignored.bin").joinpath(".gitignore").write_text("*.bin\n")

    vendored = {name for name in project_files(project) if name.startswith("vendor/")}
    assert vendored == {"vendor/lib.py", "vendor/new.py", "vendor/.gitignore"}


@pytest.mark.parametrize("is_tracked", [False, True])
def test_files_of_a_repository_that_was_cloned_into_the_project_travel(project: Path, is_tracked: bool) -> None:
    clone = write(project / "clone", "kept.py", "new.py", "hf_token", "big.bin", "inner/deep.py")
    (clone / ".gitignore").write_text("*.bin\n")
    (project / "link").symlink_to(clone)
    for folder in (project, clone, clone / "inner"):
        git(folder, "init")
    commit(clone / "inner")
    commit(clone)
    if is_tracked:
        git(project, "add", "clone")

    names = {name for name in project_files(project) if name.startswith(("clone", "link"))}
    assert names == {"clone/kept.py", "clone/new.py", "clone/.gitignore", "clone/inner/deep.py", "link"}
    assert "clone/hf_token" in left_behind(project)


def test_secrets_do_not_travel_although_git_tracks_them(project: Path) -> None:
    git(project, "init")
    git(project, "add", "--force", ".")

    assert set(project_files(project)) == {"train.py", "lib/model.py", "data/words.txt"}


def test_what_git_ignores_stays_and_what_it_would_track_travels(project: Path) -> None:
    write(project, "notes.txt", "lib/big.bin").joinpath(".gitignore").write_text("*.bin\ndata/\n")
    (project / "lib" / ".gitignore").write_text("local.py\n")
    write(project, "lib/local.py")
    git(project, "init")

    names = {"train.py", "lib/model.py", "notes.txt", ".gitignore", "lib/.gitignore"}
    assert set(project_files(project)) == names


def test_a_link_to_a_file_elsewhere_does_not_travel(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("a secret")
    (project / "notes.txt").symlink_to(tmp_path / "elsewhere" / "secret")

    with pytest.raises(BadInput, match=r"notes.txt in .* links outside that folder"):
        project_files(project)
    assert "notes.txt" in project_files(project, travels=False)  # it stays on this machine


@pytest.mark.parametrize("in_git", [True, False])
def test_a_link_to_a_secret_inside_does_not_travel(tmp_path: Path, in_git: bool) -> None:
    secrets = (".env", "secrets/db.txt", ".docker/config.json")
    folder = write(tmp_path, "train.py", "words.txt", "credentials/__init__.py", *secrets)
    targets = {"notes.txt": ".env", "db.txt": "secrets/db.txt", "registry.json": ".docker/config.json"}
    targets |= {"text": "words.txt", "code": "credentials"}
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    if in_git:
        (folder / ".gitignore").write_text(".env\n.gitignore\n")
        git(folder, "init")

    assert set(project_files(folder)) == {"train.py", "words.txt", "text", "code", "credentials/__init__.py"}
    assert {"notes.txt", "db.txt", "registry.json"} <= set(left_behind(folder))


@pytest.mark.parametrize("in_git", [True, False])
def test_a_link_to_a_folder_inside_is_a_link_in_the_job_and_one_that_leads_outside_is_refused(
    project: Path, tmp_path: Path, in_git: bool
) -> None:
    write(tmp_path / "elsewhere", "helper.py")
    (project / "deep").mkdir()
    (project / "deep" / "utils").symlink_to(project / "lib")
    (project / "mine.py").symlink_to(".")
    (project / "venv" / "lib64").symlink_to("lib")
    (project / ".cache").symlink_to("lib")
    if in_git:
        git(project, "init")
    files = project_files(project)
    job = tmp_path / "job"
    job.mkdir()
    subprocess.run(["tar", "-xzf", str(pack(files, tmp_path / "code.tar.gz"))], cwd=job, check=True)

    assert (job / "deep" / "utils" / "model.py").read_text() == (job / "mine.py" / "lib" / "model.py").read_text()
    assert os.readlink(job / "deep" / "utils") == "../lib"
    assert "venv/lib64" not in files
    assert in_git or ".cache" in left_behind(project)
    assert "deep/utils" not in project_files(project, travels=False)
    key = code_key(files)
    (project / "mine.py").unlink()
    (project / "mine.py").symlink_to("lib")
    assert code_key(files) != key
    (project / "common").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match=r"common in .* links outside that folder, and only that folder is uploaded"):
        project_files(project)
    assert "train.py" in project_files(project, travels=False)


def test_a_file_that_this_user_may_not_read_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, "output.json", "venv/closed.py")  # as a container that runs as root leaves them
    closed = {"output.json", "closed.py"}
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name not in closed)  # root may read everything

    for travels in (True, False):
        with pytest.raises(BadInput, match=r"must be readable, and you may not read output.json: change the perm"):
            project_files(project, travels=travels)


@pytest.mark.parametrize("in_git", [True, False])
def test_a_folder_that_this_user_may_not_read_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, in_git: bool
) -> None:
    write(project, "inner/train.py")
    if in_git:
        git(project, "init")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "inner")  # root may read everything

    with pytest.raises(BadInput, match=r"must be readable, and you may not read inner: change the permissions"):
        project_files(project)


def test_another_work_tree_of_the_repository_does_not_travel(project: Path) -> None:
    git(project, "init")
    commit(write(project, "train.py"))
    git(project, "worktree", "add", "other")

    assert not [name for name in project_files(project) if name.startswith("other")]


@pytest.mark.parametrize("in_git", [True, False])
def test_too_much_is_refused_with_the_largest_files_and_the_way_out(project: Path, in_git: bool) -> None:
    if in_git:
        subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    with (project / "weights.bin").open("wb") as file:
        file.truncate((LARGEST_MIB + 1) * 2**20)

    with pytest.raises(BadInput) as caught:
        project_files(project)

    assert f"must be at most {LARGEST_MIB} MiB, got 51" in str(caught.value)
    assert "weights.bin (51 MiB)" in str(caught.value)
    assert (".gitignore" in str(caught.value)) == in_git


def test_the_package_travels_with_its_tables_and_without_what_only_launches(tmp_path: Path) -> None:
    files = package_files(Path(paretune.__file__).parent)

    assert {
        "paretune/training/__main__.py",
        "paretune/specification/container.py",
        "paretune/estimating/phases.csv",
    } <= set(files)
    folders = {name.split("/")[1] for name in files}
    assert folders == {"__init__.py", "core", "specification", "estimating", "training"}
    assert not [name for name in files if "__pycache__" in name]
    assert all(name.startswith("paretune/") for name in files)


def test_the_same_files_make_the_same_bytes_whenever_and_wherever(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", "x.py", "y/z.py"), write(tmp_path / "b", "y/z.py", "x.py")
    os.utime(first / "x.py", (time.time() - 10_000, time.time() - 10_000))
    item = pack({"x.py": first / "x.py", "y/z.py": first / "y/z.py"}, tmp_path / "one.tar.gz")
    two = pack({"y/z.py": second / "y/z.py", "x.py": second / "x.py"}, tmp_path / "two.tar.gz")

    assert item.read_bytes() == two.read_bytes()


def test_a_file_whose_name_is_not_utf_8_travels(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    files = project_files(write(tmp_path / "project", "train.py", name))

    assert code_key(files) != code_key({"train.py": files["train.py"]})
    with tarfile.open(pack(files, tmp_path / "code.tar.gz")) as archive:
        assert archive.getnames() == [name, "train.py"]


def test_files_of_tokens_cookies_networks_wallets_and_databases_do_not_travel(tmp_path: Path) -> None:
    secrets = (
        "tokens.json",
        "access_tokens.csv",
        "bearer.txt",
        "pat.txt",
        "cookies.txt",
        "conf/rclone.conf",
        "my.ovpn",
    )
    secrets += ("wallet.dat", "db_dump.sql", "backup.sql.gz", "login.keychain-db", "HF_TOKEN.md", "api_token.md")
    innocent = ("added_tokens.json", "special_tokens_map.json", "tokens.txt", "tokenizer.json", "schema.sql", "pat.py")
    innocent += ("wallets.csv", "cookies.py", "docs/tokens.md", "train.py")
    folder = write(tmp_path, *secrets, *innocent)

    assert {*project_files(folder)} == {*innocent}
    assert {*secrets} <= {*left_behind(folder)}


def test_studies_budgets_and_their_databases_do_not_travel_and_settings_of_the_code_do(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "paretune.toml", "budget.db-journal", "rows.sqlite-wal")
    texts = {
        "team.yaml": "storage: postgresql://ann:hush@host/db\nbudgets:\n- {name: all, usd_per_month: 5}\n",
        "study.yaml": "name: mine\njob: {entry_script: train.py}\nsearch: {learning_rate: {low: 1, high: 2}}\n",
        "sweep.yaml": "name: mine\nmethod: grid\nsearch: {lr: [1, 2]}\n",
        "budgets.yaml": "budgets: [1, 2]\nsteps: 5\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name, table in (("budget.db", "paretune_reservations"), ("rows.db", "metrics")):
        with sqlite3.connect(tmp_path / name) as database:
            database.execute(f"CREATE TABLE {table} (id INTEGER)")

    assert {*project_files(tmp_path)} == {"train.py", "sweep.yaml", "budgets.yaml", "rows.db"}
    assert left_behind(tmp_path) == []


def test_the_keys_by_which_a_study_is_known_are_those_of_a_study_file() -> None:
    assert {*StudyFile.model_fields} - {"path", "folder"} == archive._STUDY_KEYS


@pytest.mark.parametrize("reads", ["_leading_out", "is_readable", "_is_paretunes"])
def test_a_file_that_vanishes_while_code_is_listed_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    write(tmp_path, "train.py", "budget.tmp")
    real = getattr(archive, reads)

    def late(*words: object) -> object:
        (tmp_path / "budget.tmp").unlink(missing_ok=True)
        return real(*words)

    monkeypatch.setattr(archive, reads, late)

    with suppress(BadInput):  # any other error would be a traceback
        assert {*project_files(tmp_path)} == {"train.py"}


def test_a_file_that_vanishes_before_it_is_packed_is_a_refusal(tmp_path: Path) -> None:
    files = project_files(write(tmp_path, "train.py", "lib.py"))
    (tmp_path / "lib.py").unlink()

    with pytest.raises(BadInput, match=r"lib\.py vanished while the code"):
        pack(files, tmp_path / "code.tar.gz")
    with pytest.raises(BadInput, match=r"lib\.py vanished while the code"):
        code_key(files)
