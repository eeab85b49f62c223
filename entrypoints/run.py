"""The script that MLproject calls: `python entrypoints/run.py NAME --key value` is `paretune NAME --key value`.

It runs the code of its own clone, also in the jobs that it starts. MLflow may have made the environment from an earlier
clone, with another version of paretune in it.

`main` is `train` with the parameters that MLproject lists. MLflow also passes the defaults of these parameters, as if a
user had given them. So this script removes each parameter whose value is the default.
"""

import os
import sys
from pathlib import Path

SOURCES = str(Path(__file__).resolve().parents[1] / "src")
sys.path.insert(0, SOURCES)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH")]))

from paretune.cli import go_where_typed, main  # noqa: E402
from paretune.specification.job import JobSpec  # noqa: E402

if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["main"]:
        if {"--entry_script", "--project"} & {*words}:
            sys.exit("paretune: your own training code has its own entry point: mlflow run . -e train -P ...")
        defaults = {f"--{name}={text}" for name, text in JobSpec().as_text().items()}
        words = ["train", *(word for word in words[1:] if word not in defaults)]
    project = go_where_typed()
    sys.exit(main(words, project))
