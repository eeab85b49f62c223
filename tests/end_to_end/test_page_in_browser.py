"""The page of a study in a browser: first screen, axes, tooltips, tables, sizes, MLflow's viewer."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow.server
import plotly.graph_objects
import pytest

from paretune.presentation.page import chart_html, dressed, new_nonce, template
from paretune.studies.results.page import page
from paretune.studies.results.trials import Trial
from paretune.studies.trial_status import TrialStatus
from tests.support.study_examples import COST_AND_F1, answer, failed, many_trials, trial_of

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")
ALL_THREE = {**COST_AND_F1, "train_seconds": "minimize"}
EVIL = "</script><img src=x onerror=\"document.title='taken'\">"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: run `apt-get install chromium`, then `pytest -m slow` on this file")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as result:
        with_browser = result.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield with_browser
        with_browser.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens a page from a file, without network; it fails on any request or failing script."""
    contexts, troubles = [], []

    def open_page(text: str, *, width: int = 1400) -> Any:
        (tmp_path / "pareto.html").write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, offline=True))
        output = contexts[-1].new_page()
        output.on("pageerror", lambda error: troubles.append(str(error)))
        output.on("request", lambda request: request.url.startswith("file:") or troubles.append(request.url))
        output.goto((tmp_path / "pareto.html").as_uri())
        return output

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def address(run_id: str) -> str:
    return f"http://127.0.0.1:5000/#/experiments/1/runs/{run_id}"


def page_of(trials: list[Trial], objectives: Any = COST_AND_F1, **also: Any) -> str:
    result = answer(trials, objectives, also.pop("constraints", {}), **{"name": "a study", "budget_usd": 500.0, **also})
    return page(result, address)


def test_a_page_runs_its_own_scripts_and_no_other(opened: Open) -> None:
    text = page_of([trial_of(n, 1.0 + n, 0.8 + n / 50) for n in range(5)])
    title = text.partition("<title>")[2].partition("</title>")[0]
    planted = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
    output = opened(text.replace("<main>", f"<main>{planted}", 1))

    assert re.search(r"Trial \d+, \d runs?: on the front", hover(output, "on the front"))
    output.locator("summary").first.click()
    output.locator("th").first.click()
    assert output.title() == title


def with_outlier() -> list[Trial]:
    """Return 60 trials and repeats; one trial costs a hundred times as much and its model has learned nothing."""
    trials = many_trials(60)
    far = {"cost_usd": 310.0, "f1": 0.41, "train_seconds": 9e5}
    trials[20] = replace(trials[20], values=far, cost_usd=310.0, status=TrialStatus.COMPLETED)
    return [*trials, *(replace(trials[7], number=60 + n, repeats=7, run_id=f"again{n}") for n in range(3))]


def point_of(output: Any, name: str) -> dict[str, Any]:
    """Return the place on the screen of the first mark of the trace whose name begins with `name`."""
    code = """([plot, name]) => {
      const trace = plot._fullData.find(trace => (trace.name ?? "").startsWith(name));
      const box = plot.getBoundingClientRect();
      const {xaxis, yaxis, _size} = plot._fullLayout;
      return {x: box.x + _size.l + xaxis.d2p(trace.x[0]), y: box.y + _size.t + yaxis.d2p(trace.y[0])};
    }"""
    return dict(output.evaluate(code, [output.locator("#plot").element_handle(), name]))


def hover(output: Any, name: str) -> str:
    at = point_of(output, name)
    output.mouse.move(at["x"], at["y"])
    return str(output.locator(".hoverlayer .hovertext").first.text_content())


def bottom(output: Any, kind: str) -> float:
    box = output.locator(kind).first.bounding_box()
    return float(box["y"] + box["height"])


@pytest.mark.parametrize("width", [590, 1440])
def test_the_answer_and_the_front_are_on_the_first_screen(opened: Open, width: int) -> None:
    output = opened(page_of(many_trials(60, origin="simulated"), ALL_THREE), width=width)

    assert bottom(output, "#answer") < bottom(output, "#plot") < 900
    assert "Take trial" in output.locator("#answer").inner_text()


def test_pointing_at_a_mark_shows_its_parameters_and_a_click_opens_its_run(opened: Open) -> None:
    ladder = [trial_of(n, 1.0 + n, 0.8 + n / 50) for n in range(5)]
    output = opened(page_of(ladder))
    message = hover(output, "on the front")

    assert re.search(r"Trial \d+, \d runs?: on the front", message)
    assert re.search(r"rate \d", message)
    assert "cost: " in message
    output.evaluate("window.open = address => { window.opened = address; }")
    output.mouse.down()
    output.mouse.up()
    assert output.evaluate("window.opened").startswith(address(""))
    assert output.locator("#run a").get_attribute("href").startswith(address(""))


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize(("count", "seed"), [(20, 4), (40, 3), (40, 11), (40, 14), (40, 24)])
def test_no_label_runs_into_the_ring_or_the_label_of_another_mark(
    opened: Open, width: int, count: int, seed: int
) -> None:
    output = opened(page_of(many_trials(count, seed), ALL_THREE), width=width)
    boxes = """() => {
      const box = node => { const {left, top, right, bottom} = node.getBoundingClientRect();
                            return {left, top, right, bottom}; };
      const trace = [...document.querySelectorAll("#plot .scatterlayer .trace")].find(
        node => node.querySelectorAll(".textpoint").length > 0);
      return [[...trace.querySelectorAll(".point")].map(box), [...trace.querySelectorAll(".textpoint")].map(box)];
    }"""
    rings, labels = output.evaluate(boxes)
    assert len(rings) == len(labels) > 1

    def overlap(one: dict[str, float], other: dict[str, float]) -> float:
        across = min(one["right"], other["right"]) - max(one["left"], other["left"])
        down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
        return min(across, down)  # pixels; a box around a text is higher than its letters

    for index, label in enumerate(labels):
        assert label["right"] <= width
        for other in [*(ring for n, ring in enumerate(rings) if n != index), *labels[:index]]:
            assert overlap(label, other) < 4


def test_any_two_objectives_can_be_axes(opened: Open) -> None:
    output, scale = opened(page_of(with_outlier(), ALL_THREE)), "document.getElementById('plot').layout.xaxis.type"
    assert output.evaluate(scale) == "log"  # one trial costs a hundred times as much
    output.locator(".updatemenu-header").click()
    output.locator(".updatemenu-dropdown-button", has_text="cost and training time").click()

    assert output.locator("#plot .xtitle").text_content() == "cost (USD), less is better"
    assert output.locator("#plot .ytitle").text_content() == "training time (min), less is better"
    assert output.evaluate("document.getElementById('plot').data.at(-1).x.length") > 0


def test_tables_are_sorted_by_number(opened: Open) -> None:
    output = opened(page_of([trial_of(n, cost, 0.9 - n / 100) for n, cost in enumerate([9.5, 1200.0, 80.3, 0.5])]))
    fold = output.locator("details", has_text="All trials").last
    assert not fold.locator("table").is_visible()
    fold.locator("summary").press("Enter")
    heading = fold.locator("th", has_text="cost (USD)").locator("button")
    column = fold.locator("tbody tr td:nth-child(4)")
    for order in (False, True):
        heading.press("Enter")
        costs = [float(text.replace(",", "")) for text in column.all_inner_texts()]
        assert costs == sorted([9.5, 1200.0, 80.3, 0.5], reverse=order)


def test_hostile_names_do_nothing(opened: Open) -> None:
    point = {"text_column": EVIL, "learning_rate": 1e-4}
    trials = [trial_of(n, 1.0 + n, 0.9 + n / 100, point={**point, EVIL: n}, run_id=f"{EVIL}{n}") for n in range(9)]
    output = opened(page_of([*trials, failed(9, TrialStatus.FAILED, EVIL)], name=EVIL))
    message = hover(output, "on the front")

    assert EVIL in message
    assert output.title() == EVIL
    assert output.locator("img").count() == 0


def test_a_table_is_sorted_by_the_length_of_durations(browser: Any) -> None:
    script = files("paretune.presentation").joinpath("tables.js").read_text("utf-8")
    rows = "".join(f"<tr><td>{text}</td></tr>" for text in ("53 m", "18 h 17 m", "", "4.1 s", "1 h 5 m"))
    table = f"<table class=sortable><thead><tr><th>time</th></tr></thead><tbody>{rows}</tbody></table>"
    output = browser.new_page()
    output.set_content(f"{table}<script>{script}</script>")
    output.locator("th button").click()

    assert output.locator("td").all_inner_texts() == ["4.1 s", "53 m", "1 h 5 m", "18 h 17 m", ""]
    output.close()


VIEWER = """<iframe sandbox="allow-scripts" width="1000" height="800"></iframe><script>
const made = new Blob([TEXT], {type: "text/html"});
document.querySelector("iframe").src = URL.createObjectURL(made);
</script>"""
"""What MLflow's artifact viewer makes of an HTML file: a frame that may run scripts but may not open a window."""


def test_it_works_in_the_frame_of_mlflows_artifact_viewer(browser: Any) -> None:
    built = Path(mlflow.server.__file__).parent / "js" / "build" / "static" / "js"
    result = [text for path in built.glob("*.js") if "mlflow-html-iframe" in (text := path.read_text("utf-8"))]
    assert re.search(r'"mlflow-html-iframe".{,99}sandbox:"allow-scripts"', result[0])

    text = json.dumps(page_of(with_outlier())).replace("</", "<\\/")
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    troubles: list[str] = []
    output = context.new_page()
    output.on("pageerror", lambda error: troubles.append(str(error)))
    body = VIEWER.replace("TEXT", text)
    output.route("**/*", lambda route: route.fulfill(body=body, content_type="text/html"))
    output.goto("http://mlflow.example:8080/")
    frame = output.frame_locator("iframe")
    plot = frame.locator("#plot")
    plot.locator(".scatterlayer .point").first.wait_for(state="attached")
    click = (
        "plot => plot.emit('plotly_click', {points: [{customdata: 'http://127.0.0.1:5000/#/experiments/1/runs/r'}]})"
    )
    plot.evaluate(click)

    assert frame.locator("#run code").inner_text() == "http://mlflow.example:8080/#/experiments/1/runs/r"
    frame.locator("details", has_text="All trials").last.locator("summary").press("Enter")
    frame.locator(".tall th button").first.press("Enter")
    assert frame.locator(".tall th[aria-sort]").count() == 1
    assert troubles == []
    context.close()


@pytest.mark.parametrize("width", [500, 1300, 1700])
def test_every_chart_of_a_report_is_as_high_as_its_place(opened: Open, width: int) -> None:
    nonce, figure = new_nonce(), dressed(plotly.graph_objects.Figure())
    charts = [
        (name, chart_html(figure, name, nonce, f"plot{name}", with_script=name == "a")) for name in ("a", "b", "c")
    ]
    report = SimpleNamespace(title="a report", about=[], sections=[])
    text = template("paretune.commands.report", "report.html").render(
        report=report, nonce=nonce, drawn=[("charts", charts)], about_charts=""
    )

    shown = opened(text, width=width)

    heights = shown.eval_on_selector_all(
        ".js-plotly-plot .main-svg:first-child", "all => all.map(each => each.getBoundingClientRect().height)"
    )
    assert set(heights) == {430}
