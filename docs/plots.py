"""Draw the pictures of the evidence pages from the figures in benchmarks/results.

    python docs/plots.py                   # all of them, into docs/pictures/evidence
    python docs/plots.py estimate_error    # one

Each picture holds the hash of the figures that it was drawn from. A test fails if a picture is out of date.
"""

import hashlib
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = _REPOSITORY / "benchmarks" / "results"
FOLDER = _REPOSITORY / "docs" / "pictures" / "evidence"
_BLUE, _ORANGE, _GREY, _LIGHT = "#2f6fb5", "#d9781f", "#8a8f98", "#d5d9e0"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "paretune",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_Rows = list[dict[str, str]]


def tables(name: str) -> list[_Rows]:
    """Return the Markdown tables of a stored result in their order; a row maps the heading of a column to its cell."""
    result: list[_Rows] = []
    header: list[str] = []
    for line in (RESULTS / f"{name}.txt").read_text().splitlines():
        cells = [cell.strip(" *`") for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if not cells:
            header = []
        elif not header:
            header = [f"{title}{number}" if title in cells[:number] else title for number, title in enumerate(cells)]
            result.append([])
        elif not cells[-1].startswith("---"):
            result[-1].append(dict(zip(header, cells, strict=True)))
    return result


def numbers(cell: str) -> list[float]:
    """Return all numbers of a cell."""
    return [float(text.replace(",", "")) for text in re.findall(r"(?<![\d.])-?\d[\d,]*(?:\.\d+)?", cell)]


def _bars(
    axes: Any, labels: Sequence[str], values: Sequence[float], ranges: Sequence[Sequence[float]] = (), accent: int = 0
) -> None:
    """Draw horizontal bars, the first on top, the one at `accent` in another color, with their values next to them."""
    colors = [_ORANGE if number == accent else _BLUE for number in range(len(values))]
    axes.barh(range(len(values)), values, color=colors, height=0.6)
    for number, (low, high) in enumerate(ranges):
        axes.plot([low, high], [number, number], color="black", linewidth=1)
    farthest = max([*values, *(high for _, high in ranges)])
    for number, value in enumerate(values):
        at = max([value, *(ranges[number] if ranges else ())])
        axes.text(at + farthest * 0.015, number, f"{value:g}", va="center")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, farthest * 1.1)


def _search_statements(axes: Any) -> None:
    table = next(rows for rows in tables("search_statements") if "bias" in rows[0])
    stated = [row for row in table if row["statements"] != "aim"]
    axes.axvspan(76, 90, color=_LIGHT, label="aim")
    axes.plot([numbers(row["80 % holds"])[0] for row in stated], range(len(stated)), "D", color=_ORANGE)
    axes.axvline(80, color=_GREY, linewidth=1)
    axes.set_yticks(range(len(stated)), [row["statements"] for row in stated])
    axes.invert_yaxis()
    axes.set(xlabel="stated 80 % intervals that hold the true F1, in percent", xlim=(50, 101))
    axes.legend(loc="lower left")


def _training_throughput(axes: Any) -> None:
    rows = tables("training_throughput")[0]
    names = [row[""] for row in rows]
    cells = [numbers(row["samples/s, median (range)"]) for row in rows]
    labels = [textwrap.fill(name, 44) for name in names]
    _bars(axes, labels, [cell[0] for cell in cells], [cell[1:] for cell in cells], accent=names.index("paretune"))
    axes.set(xlabel="training samples per second (median, range)")


def _estimate_error(axes: Any) -> None:
    rows = [row for row in tables("estimate_error")[0] if ":" in row["mean error of seconds"]]
    series = (("paretune", _ORANGE), ("Ernest", _BLUE), ("perfect scaling", _GREY))
    for offset, (name, color) in enumerate(series):
        cells = [numbers(row[name]) for row in rows]
        places = [number + (offset - 1) * 0.26 for number in range(len(rows))]
        axes.barh(places, [cell[0] if cell else 0 for cell in cells], height=0.24, color=color, label=name)
        for height, cell in zip(places, cells, strict=True):
            if cell:
                axes.text(cell[0] + 1, height, f"{cell[0]:g}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row["mean error of seconds"] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="mean error of seconds, in percent")
    axes.legend(loc="upper right")


_GPUS = {
    "p3": "V100",
    "v100": "V100",
    "a100": "A100",
    "p4de": "A100",
    "p5": "H100",
    "g5": "A10G",
    "g6": "L4",
    "g4dn": "T4",
}
_GPUS |= dict.fromkeys(("a100x2", "a100x4", "a100x8"), "A100") | dict.fromkeys(("h100x4", "h100x8"), "H100")
_WITHOUT_SHEET = ("titan", "rtx3090x2", "rtx4090x2", "a5000x4", "a5000x8", "rtx6000adax2", "rtx6000adax4")
_GPUS |= dict.fromkeys(_WITHOUT_SHEET, "no data sheet")


def _estimate_error_cold(axes: Any) -> None:
    lines = re.findall(
        r"^  .*\d+ x ml\.(\S+), .* (\d+\.\d+)  \(x [\d.]+\)(  outside)?$",
        (RESULTS / "estimate_error_cold.txt").read_text().partition("begin -->")[0],
        re.MULTILINE,
    )
    gpus = list(dict.fromkeys(_GPUS.values()))
    for outside, label, color in (("", "inside the 80 % interval", _BLUE), ("  outside", "outside", _ORANGE)):
        points = [
            (float(ratio), gpus.index(_GPUS[next(part for part in instance.split(".") if part in _GPUS)]))
            for instance, ratio, end in lines
            if end == outside
        ]
        axes.plot([x for x, _ in points], [y for _, y in points], "o", color=color, alpha=0.6, label=label)
    axes.axvline(1, color=_GREY, linewidth=1)
    axes.set_yticks(range(len(gpus)), gpus)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xticks([0.2, 0.5, 1, 2, 4], ["0.2", "0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.set(xlabel="predicted rate over published rate")
    axes.legend(loc="lower right")


def _estimate_memory(axes: Any) -> None:
    text = (RESULTS / "estimate_memory.txt").read_text()
    rows = re.findall(r"^ +([\d.]+) GiB measured, +([\d.]+) \(([\d.]+) to ([\d.]+);", text, re.MULTILINE)
    points = [tuple(map(float, row)) for row in rows]
    measured, estimated = [point[0] for point in points], [point[1] for point in points]
    errors = [[point[1] - point[2] for point in points], [point[3] - point[1] for point in points]]
    axes.plot([0.5, 4], [0.5, 4], color=_GREY, linewidth=1)
    axes.errorbar(measured, estimated, yerr=errors, fmt="o", color=_ORANGE, ecolor=_BLUE, elinewidth=1)
    axes.set(xlabel="measured GiB", ylabel="estimated GiB, 80 % interval")


def _public_jobs(axes: Any) -> None:
    rows = tables("public_jobs")[0]
    shares = [numbers(row["inside the 80 % interval"])[0] for row in rows]
    labels = [f"{row['phase']} ({row['jobs']} jobs)" for row in rows]
    _bars(axes, labels, shares, accent=-1)
    axes.axvline(80, color=_ORANGE, linewidth=1)
    axes.set(xlabel="jobs inside the stated 80 % interval, in percent", xlim=(0, 100))


PLOTS: Mapping[str, tuple[str, float, Callable[[Any], None]]] = {
    "search_statements": ("search_statements.txt", 2.6, _search_statements),
    "training_throughput": ("training_throughput.txt", 3.2, _training_throughput),
    "estimate_error": ("estimate_error.txt", 3.8, _estimate_error),
    "estimate_error_cold": ("estimate_error_cold.txt", 2.8, _estimate_error_cold),
    "estimate_memory": ("estimate_memory.txt", 3.6, _estimate_memory),
    "public_jobs": ("public_jobs.txt", 2.1, _public_jobs),
}
"""Maps the name of each picture to the file of its figures, its height in inches, and the function that draws it."""


def digest(name: str) -> str:
    """Return the hash of the figures that a picture shows."""
    return hashlib.sha256((RESULTS / PLOTS[name][0]).read_bytes()).hexdigest()[:16]


def draw(name: str) -> None:
    """Draw one picture into its file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    _, height, plot = PLOTS[name]
    with mpl.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(7.2, height))
        plot(axes)
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None, "Description": f"figures {digest(name)}"})
        pyplot.close(figure)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[1:] or PLOTS:
        draw(chosen)
