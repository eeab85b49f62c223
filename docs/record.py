"""Run the commands below and the notebook, and write what they show: an asciicast and two pages.

    python docs/record.py terminal      # docs/recordings/first-run.cast and docs/recording.md
    python docs/record.py notebook      # docs/notebook.md and its pictures

It takes some minutes. Nothing is billed: the training runs on this machine, the rest is estimated or simulated.
`asciinema play docs/recordings/first-run.cast` plays the file; the page has a player of its own.
"""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
CAST = DOCS / "recordings" / "first-run.cast"
PAGE = DOCS / "recording.md"
NOTEBOOK = DOCS.parent / "examples" / "first_study.ipynb"
PICTURES = DOCS / "pictures" / "notebook"
COMMANDS = (
    ("What to do next.", "paretune"),
    (
        "Fine-tune the bundled model on 1,000 rows of the bundled reviews, on this machine.",
        "paretune train --max_train_samples 1000 --max_eval_samples 300",
    ),
    (
        "What would DistilBERT on 100,000 rows cost on SageMaker?",
        "paretune estimate --model distilbert-base-uncased --max_train_samples 100000 --max_seq_length 256 "
        "--instance_type ml.g5.xlarge,ml.g5.12xlarge --global_batch_size 64",
    ),
    (
        "A budget refuses a job whose worst case is above it, before it starts (exit code 4).",
        "paretune train --instance_type ml.g5.xlarge --launcher simulated --max_cost_usd 1",
    ),
    ("Search for the front of dollars, time and F1, on simulated jobs.", "paretune study --study studies/pareto.yaml"),
)
_COLUMNS, _ROWS = 130, 34
_MOST_LINES = 40  # of an output that is not folded
_SECONDS_PER_KEY, _PAUSE_S, _LONGEST_IDLE_S = 0.06, 3.0, 2.0


def terminal(remark: str = "") -> None:
    """Run all commands in one folder, and write both files."""
    events: list[tuple[float, str]] = []
    clock = 0.0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "paretune"
        shutil.copytree(DOCS.parent / "studies", home / "studies")
        for about, line in COMMANDS:
            for character in [f"# {about}\r\n$ ", *line, "\r\n"]:
                events.append((clock, character))
                clock += _SECONDS_PER_KEY
            for seconds, text in _run(line, home):
                clock += min(seconds, _LONGEST_IDLE_S)
                events.append((clock, text.replace(folder, "~") + "\r\n"))
            clock += _PAUSE_S
    CAST.parent.mkdir(exist_ok=True)
    facts = {"date": time.strftime("%Y-%m-%d"), "paretune": version("paretune"), "torch": version("torch")}
    header = {"version": 2, "width": _COLUMNS, "height": _ROWS, "env": facts | {"remark": remark}}
    lines = [header, *([round(at, 2), "o", text] for at, text in events)]
    CAST.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    PAGE.write_text(page_of(CAST))


def page_of(cast: Path) -> str:
    """The page of a recording: its player, and what was typed and printed as text; long outputs are folded."""
    header, *events = map(json.loads, cast.read_text().splitlines())
    text = "".join(output for _, _, output in events).replace("\r\n", "\n")
    facts = header["env"]
    about = (
        f"Recorded on {facts['date']}, paretune {facts['paretune']}, torch {facts['torch']}. {facts['remark']}".strip()
    )
    blocks = []
    for part in re.split(r"^# (?=.*\n\$ )", text, flags=re.MULTILINE)[1:]:
        title, line, output = part.split("\n", 2)
        line = line.removeprefix("$ ")
        printed = f"```text\n{output.rstrip()}\n```"
        if output.count("\n") > _MOST_LINES:
            printed = f'<details markdown="1">\n<summary>What it prints</summary>\n\n{printed}\n\n</details>'
        fence = "bash" if " " in line else "text"
        blocks.append(f"{title}\n\n```{fence}\n{line}\n```\n\n{printed}\n")
    return f"""<!-- Made by `python docs/record.py terminal`; edits here are lost. -->
# Three minutes at the terminal

{about}

Waits are cut to {_LONGEST_IDLE_S:.0f} seconds: it plays in {events[-1][0] / 60:.1f} minutes, here or with
`asciinema play docs/recordings/{cast.name}`. The same as text is below.

<div class="terminal" data-cast="../recordings/{cast.name}"></div>
<script src="../recordings/player.js" defer></script>

""" + "\n".join(blocks)


def _run(line: str, folder: Path) -> list[tuple[float, str]]:
    """The lines that a command prints, each with the seconds since the one before."""
    words = shlex.split(line)
    program = Path(sys.executable).with_name(words[0])
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith(("PARETUNE_", "AWS_", "MLFLOW_"))},
        "COLUMNS": str(_COLUMNS),
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    process = subprocess.Popen(
        [str(program), *words[1:]],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    result, before = [], time.monotonic()
    assert process.stdout is not None  # it is a pipe
    for text in process.stdout:
        now = time.monotonic()
        result.append((now - before, text.rstrip()))
        before = now
    process.wait()
    return result


def notebook() -> None:
    """Execute the notebook in a folder with the studies, and write its page."""
    import nbformat
    from nbclient import NotebookClient

    document = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DOCS.parent / "studies", Path(folder) / "studies")
        NotebookClient(document, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for picture in PICTURES.glob("notebook-*.png"):
        picture.unlink()
    parts = ["<!-- Made by `python docs/record.py notebook`; edits here are lost. -->"]
    for cell in document.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        parts += [text for output in cell.get("outputs", []) if (text := _shown(output))]
    parts.insert(2, f"This page is `examples/first_study.ipynb` with its outputs of {time.strftime('%Y-%m-%d')}.")
    (DOCS / "notebook.md").write_text("\n\n".join(parts) + "\n")


def _shown(output: Any) -> str:
    """An output of a cell as Markdown; progress on standard error is left out."""
    data = output.get("data", {})
    if output["output_type"] == "stream":
        return f"```text\n{output['text'].rstrip()}\n```" if output["name"] == "stdout" else ""
    if "text/html" in data:
        html = re.sub(r'<style.*?</style>| class="dataframe"| style="[^"]*"', "", data["text/html"], flags=re.DOTALL)
        encoded = re.findall(r'<img[^>]*base64,([^"]+)"', html)
        text = re.sub(r"\n(?=<t[dh]|</tr)", "", "\n".join(line.strip() for line in html.splitlines() if line.strip()))
        pictures = [f"![The front so far]({_picture(picture)})" for picture in encoded]
        return "\n\n".join([re.sub(r"<img[^>]*>", "", text), *pictures])
    if "image/png" in data:
        return f"![What the cell draws]({_picture(data['image/png'])})"
    return f"```text\n{data['text/plain']}\n```" if "text/plain" in data else ""


def _picture(encoded: str) -> str:
    """The path, from the pages, of a picture that is written."""
    PICTURES.mkdir(exist_ok=True)
    path = PICTURES / f"notebook-{len([*PICTURES.glob('notebook-*.png')]) + 1}.png"
    path.write_bytes(base64.b64decode(encoded))
    return path.relative_to(DOCS).as_posix()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or ("terminal", "notebook"):
        {"terminal": terminal, "notebook": notebook}[chosen]()
