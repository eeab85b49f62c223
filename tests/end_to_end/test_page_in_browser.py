"""The page of a study in a browser: first screen, axes, tooltips, keys, tables, sizes, colours, MLflow's viewer."""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow.server
import pytest

from paretune.studies.results.page import page
from paretune.studies.results.trials import PREDICTED, Trial, TrialStatus
from tests.study_examples import COST_AND_F1, answer, failed, many_trials, trial_of

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
    """Opens a page from a file, without any network; fails where it asks for something or a script fails."""
    contexts, troubles = [], []

    def open_page(text: str, *, width: int = 1400, **settings: Any) -> Any:
        (tmp_path / "pareto.html").write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, offline=True, **settings))
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


def predicted(number: int, cost: float, f1: float) -> Trial:
    ends = {"cost_usd": (0.8 * cost, 1.2 * cost), "f1": (f1 - 0.01, f1 + 0.01)}
    return replace(trial_of(number, cost, f1), run_id="", origin=PREDICTED, intervals=ends)


def with_outlier() -> list[Trial]:
    """60 trials, one of them a hundred times as dear and with a model that learnt nothing; and repeats."""
    trials = many_trials(60)
    far = {"cost_usd": 310.0, "f1": 0.41, "train_seconds": 9e5}
    trials[20] = replace(trials[20], values=far, cost_usd=310.0, status=TrialStatus.COMPLETED)
    return [*trials, *(replace(trials[7], number=60 + n, repeats=7, seed=n, run_id=f"again{n}") for n in range(3))]


def hover(output: Any, kind: str) -> str:
    """The tooltip of the last mark of its kind."""
    box = output.locator(f"#front .mark.{kind} .outline").last.bounding_box()
    output.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return str(output.locator(".tip").inner_text())


def bottom(output: Any, kind: str) -> float:
    box = output.locator(kind).first.bounding_box()
    return float(box["y"] + box["height"])


def counted(text: str) -> str:
    """Without its thousands separators."""
    return text.replace(",", "")


def test_the_answer_and_the_front_are_on_the_first_screen(opened: Open) -> None:
    forecast = [predicted(90, 1.3, 0.93)]
    pages = [many_trials(8), with_outlier(), many_trials(200, origin="simulated")]
    for text in (page_of(trials, constraints={"f1": {"min": 0.9}}, forecast=forecast) for trials in pages):
        output = opened(text)

        assert bottom(output, "#answer") < bottom(output, "#front svg.chart") < 900
        assert "Take trial" in output.locator("#answer").inner_text()


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("spread", [(1, 9), (0.5, 600), (2.3001, 2.3002), (2, 3, 300)])
def test_both_axes_have_at_least_three_labelled_ticks(opened: Open, width: int, spread: tuple[float, ...]) -> None:
    low, high, *far = spread
    costs = [low * (high / low) ** (n / 11) for n in range(12)] + far
    output = opened(page_of([trial_of(n, cost, 0.9 + n * 1e-3) for n, cost in enumerate(costs)]), width=width)

    for side in "xy":
        texts = output.locator(f"#front .tick.{side}:visible").all_text_contents()
        boxes = [item.bounding_box() for item in output.locator(f"#front .tick.{side}:visible").all()]
        assert len(set(texts)) == len(texts) >= 3, texts
        if side == "x":
            assert all(first["x"] + first["width"] <= other["x"] + 0.5 for first, other in itertools.pairwise(boxes))
    assert ("broken" in output.locator(".broken").inner_text()) == bool(far)


def test_pointing_at_a_mark_shows_its_parameters_and_a_click_keeps_the_link_to_its_run(opened: Open) -> None:
    output = opened(page_of(with_outlier(), forecast=[predicted(90, 1.3, 0.93)]))
    message = hover(output, "picked")

    assert re.search(r"Trial \d+, \d runs?: .*recommended", message)
    assert re.search(r"rate: \d", message)
    assert "cost: " in message
    assert not output.locator("#front .mark.predicted").last.is_visible()
    output.get_by_label("Show 1 predicted point, not run").check()
    assert "Predicted, not run" in hover(output, "predicted")

    hover(output, "front")
    output.mouse.down()
    output.mouse.up()
    output.mouse.move(5, 5)
    link = output.locator(".tip a")
    assert link.get_attribute("target") == "_blank"
    assert link.get_attribute("href").startswith(address(""))
    output.mouse.click(5, 5)
    output.locator("#front svg.chart").click(position={"x": 90, "y": 5})
    assert output.locator(".tip").is_hidden()


def test_any_two_quantities_can_be_axes(opened: Open) -> None:
    output = opened(page_of(with_outlier(), ALL_THREE))
    across, up = output.locator("#front select").all()
    before = output.locator("#front .mark.front").last.get_attribute("transform")
    names = across.locator("option").all_inner_texts()
    across.select_option("learning_rate")
    up.select_option("train_seconds")

    assert {"spent by the study (USD)", "rate", "batch"} < set(names)
    assert output.locator("#front .heading:visible").all_text_contents() == [
        "rate",
        "training time (s), less is better",
    ]
    assert output.locator("#front .ring:visible").count() == 1  # the fastest: others are judged by dollars and F1
    assert output.locator("#front .mark.front").last.get_attribute("transform") != before
    assert output.locator("#front .line path").get_attribute("d") == ""
    across.select_option("cost_usd")
    assert output.locator("#front .line path").get_attribute("d") != ""


def test_tables_are_sorted_by_number_and_fold_and_chart_obey_the_keyboard(opened: Open) -> None:
    output = opened(page_of([trial_of(n, cost, 0.9 - n / 100) for n, cost in enumerate([9.5, 1200.0, 80.25, 0.5])]))
    fold = output.locator("details", has_text="All trials").last
    assert not fold.locator("table").is_visible()
    fold.locator("summary").press("Enter")
    heading = output.locator(".tall th", has_text="cost (USD)").locator("button")
    column = output.locator(".tall tbody tr td:nth-child(4)")
    for order in (False, True):
        heading.press("Enter")
        costs = [float(counted(text)) for text in column.all_inner_texts()]
        assert costs == sorted([9.5, 1200.0, 80.25, 0.5], reverse=order)

    output.locator("#front .mark[tabindex='0']").focus()
    output.keyboard.press("Home")
    first = output.locator(".tip").inner_text()
    output.keyboard.press("ArrowUp")
    second = output.locator(".tip").inner_text()
    assert first != second
    assert output.evaluate("document.activeElement.getAttribute('aria-label')").startswith(second.split("\n")[0])
    outline = "getComputedStyle(document.activeElement.querySelector('.outline use')).strokeWidth"
    assert output.evaluate(outline) == "3.5px"
    output.keyboard.press("Enter")
    assert output.evaluate("document.activeElement.textContent") == "Open the run in MLflow"
    output.keyboard.press("Escape")
    assert output.locator(".tip").is_hidden()


def test_small_windows_scroll_down_only(opened: Open) -> None:
    long = [replace(trial, point={**trial.point, "model": "x" * 90}) for trial in many_trials(12)]
    none = [failed(0, TrialStatus.FAILED, "why " * 90)]
    for text in (page_of(with_outlier(), ALL_THREE), page_of(long), page_of(none)):
        output = opened(text, width=400)

        assert output.evaluate("document.documentElement.scrollWidth") == 400


CONTRAST = """() => {
  const light = text => {
    const parts = text.match(/[\\d.]+/g).map(Number).slice(0, 3).map(part => part / 255);
    const [red, green, blue] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = item => {
    for (; item; item = item.parentElement) {
      const found = getComputedStyle(item).backgroundColor;
      if (!/, 0\\)$|transparent/.test(found)) return found;
    }
    return "rgb(255, 255, 255)";
  };
  const low = new Map();
  for (const item of document.querySelectorAll("body *")) {
    const said = [...item.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!said || item.closest("script, style, title, [hidden]")) continue;
    const look = getComputedStyle(item);
    const colour = item instanceof SVGElement ? look.fill : look.color;
    if (item instanceof SVGElement && /254, 254, 254|1, 1, 1\\)/.test(colour)) continue;  // on cells of the heat map
    const [one, other] = [light(colour), light(behind(item))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) low.set(`${item.tagName}.${item.className.baseVal ?? item.className}`, [ratio, item.textContent]);
  }
  for (const kind of ["front", "dominated", "predicted", "unmet"]) {
    const sign = document.querySelector(`#front .mark.${kind} .outline use`);
    if (!sign) continue;
    const look = getComputedStyle(sign), colour = ["unmet", "predicted"].includes(kind) ? look.stroke : look.fill;
    const [one, other] = [light(colour), light(behind(sign))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 3) low.set(kind, [one, other]);
  }
  return [...low];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_a_contrast_of_4_5_and_marks_of_3(opened: Open, scheme: str) -> None:
    text = page_of([*with_outlier()], ALL_THREE, constraints={"f1": {"min": 0.9}}, later_runs=9)
    output = opened(text.replace("<details", "<details open"), color_scheme=scheme)
    paper = output.evaluate("getComputedStyle(document.body).backgroundColor")

    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert output.evaluate(CONTRAST) == []


def test_a_thousand_points_do_not_cover_the_front(opened: Open) -> None:
    source = random.Random(2)
    trials = [trial_of(n, source.uniform(1, 20), source.uniform(0.7, 0.9)) for n in range(997)]
    trials += [trial_of(997 + n, 0.5 + n, 0.9 + n / 100) for n in range(3)]
    output = opened(page_of(trials))
    kinds = output.evaluate("[...document.querySelectorAll('#front .mark')].map(mark => mark.classList[1])")
    faded = "getComputedStyle(document.querySelector('#front .dominated:not(.picked) .outline use')).fillOpacity"

    assert len(kinds) == 1000
    assert set(kinds[kinds.index("front") :]) <= {"front", "predicted"}
    assert float(output.evaluate(faded)) < 0.5
    assert "on the front" in hover(output, "front")


def test_hostile_names_do_nothing(opened: Open) -> None:
    point = {"text_column": EVIL, "learning_rate": 1e-4}
    trials = [trial_of(n, 1.0 + n, 0.9 + n / 100, point={**point, EVIL: n}, run_id=f"{EVIL}{n}") for n in range(9)]
    output = opened(page_of([*trials, failed(9, TrialStatus.FAILED, EVIL)], name=EVIL))
    message = hover(output, "front")
    output.locator("#front select").first.select_option(EVIL)

    assert EVIL in message
    assert output.title() == EVIL
    assert output.locator("img").count() == 0


def test_it_works_without_scripts(opened: Open) -> None:
    output = opened(page_of(with_outlier(), ALL_THREE), java_script_enabled=False)

    assert output.locator("#front .tick.x:visible").count() >= 3
    assert bottom(output, "#front svg.chart") < 900
    assert not output.locator("#front select").first.is_visible()
    assert "rate:" in output.locator("#front .mark.front title").first.text_content()
    assert output.locator(".tall tbody tr").count() == 63


VIEWER = """<iframe sandbox="allow-scripts" width="1000" height="800"></iframe><script>
const made = new Blob([TEXT], {type: "text/html"});
document.querySelector("iframe").src = URL.createObjectURL(made);
</script>"""
"""What MLflow's artifact viewer makes of an HTML file: a frame that may run scripts and may not open a window."""


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
    frame.locator("#front.alive .mark.front").last.focus()

    tip = frame.locator(".tip")
    assert "rate:" in tip.inner_text()
    assert "http://mlflow.example:8080/#/experiments/1/runs/" in tip.inner_text()  # the server that shows the page
    assert frame.locator("a").count() == 0
    frame.locator("details", has_text="All trials").last.locator("summary").press("Enter")
    frame.locator(".tall th button").first.press("Enter")
    assert frame.locator(".tall th[aria-sort]").count() == 1
    assert troubles == []
    context.close()
