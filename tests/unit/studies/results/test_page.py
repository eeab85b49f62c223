"""The page needs no other file, parses, escapes, and contains everything; and the note of the study's run."""

import itertools
import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from paretune.presentation.page import plotly_script
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.page import front_figure, page, study_note
from paretune.studies.results.recommendation import recommend
from paretune.studies.results.trials import Trial
from paretune.studies.trial_status import TrialStatus
from tests.support.html_checks import has_policy
from tests.support.study_examples import COST_AND_F1, LADDER, answer, failed, many_trials, trial_of

VOID = {"meta", "br", "wbr", "img", "input", "hr", "link"}
ALL_THREE = {**COST_AND_F1, "train_seconds": "minimize"}
EVIL = '</script><script>alert("1")</script><!--&amp;$x$\u2028'
PLOTLY = plotly_script()


class Reader(HTMLParser):
    """Checks that tags are nested, and keeps tags and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(trials: list[Trial], objectives: Any = COST_AND_F1, constraints: Any = None, **also: Any) -> str:
    """Return the page without plotly's own script, which takes seconds to parse."""
    settings: dict[str, Any] = {"name": "a study", "budget_usd": 100.0, "committed_usd": 5.0, **also}
    text = page(answer(trials, objectives, constraints or {}, **settings), lambda run: f"https://host/{run}")
    return text.replace(PLOTLY, "")


@pytest.mark.parametrize(
    ("count", "objectives"),
    [(0, COST_AND_F1), (1, COST_AND_F1), (1, {"train_seconds": "minimize"}), (40, ALL_THREE)],
)
def test_it_parses_and_loads_nothing(count: int, objectives: dict[str, str]) -> None:
    trials = many_trials(count, seed=3)
    text = page_of(trials, objectives, {"f1": {"min": 0.9}})
    reader = Reader(text)

    assert "src" not in reader.attributes
    assert has_policy(text)
    assert not {"link", "iframe", "object", "img"} & set(reader.tags)
    assert "@import" not in text
    assert ("there is no front" in text) == (count == 0)
    assert re.findall(r'<a href="([^"]+)" target="_blank" rel="noopener">', text) == [
        f"https://host/{trial.run_id}" for trial in trials
    ]


@pytest.mark.parametrize("count", [1, 5])
def test_a_study_with_one_recommendation_alone_has_no_empty_section(count: int) -> None:
    text = page_of(LADDER[:count])

    assert ("What else is on the front" in text) == (count > 1)


def test_there_is_a_page_while_no_configuration_meets_the_constraints() -> None:
    text = Reader(page_of(many_trials(4), constraints={"cost_usd": {"max": 1e-9}})).text

    assert "cost is" in text
    assert "USD, above" in text


def test_hostile_names_are_texts_everywhere() -> None:
    point = {"dataset": EVIL, "learning_rate": 1e-4}
    trials = [
        trial_of(n, 1.0 + n, 0.9 + n / 99, point={**point, "text_column": f"{EVIL}{n}", EVIL: n}, run_id=f"{EVIL}{n}")
        for n in range(9)
    ]
    text = page_of([*trials, failed(9, TrialStatus.FAILED, EVIL)], name=EVIL)
    reader = Reader(text)

    plain = page_of([*many_trials(9), failed(9, TrialStatus.FAILED, "it broke")])
    assert set(reader.tags) <= set(Reader(plain).tags)
    assert text.count("alert(") > 20
    assert "<script>alert" not in text
    assert "\u2028" not in text
    assert "alert" not in page(
        answer(many_trials(5), COST_AND_F1, {}, name="s"), lambda _: "javascript:alert(1)"
    ).replace(PLOTLY, "")


def test_a_note_begins_with_state_and_answer_and_names_in_it_are_texts() -> None:
    evil = "<img src=x>![a](http://host/pixel.png)"
    trials = [trial_of(n, 1.0 + n, 0.9 + n / 99, point={"dataset": f"{evil}{n}"}, origin="simulated") for n in range(3)]
    result = answer(trials, COST_AND_F1, {}, name=evil, budget_usd=50.0)
    note = study_note(result)
    outside_code = re.sub(r"`.*?`", "", note)

    assert note.startswith("**Ended: 3 trials, 6.00 USD of 50.00 USD, best F1 0.9202.** Take trial 2 (")
    assert "--launcher simulated" not in note  # it shows the command that is worth typing
    assert "pixel.png" in outside_code
    assert "<" not in outside_code
    assert "](" not in outside_code


def test_the_chart_has_every_configuration_and_what_each_axis_shows() -> None:
    trials = [
        *many_trials(40),
        trial_of(40, 900.0, 0.2, more={"train_seconds": 9e3}),
        trial_of(41, 0.02, 0.0, values={"cost_usd": 0.02}),
    ]
    front = answer(trials, ALL_THREE, {}, name="a").front
    picks = recommend(front)
    figure = json.loads(front_figure(front, picks, lambda run: f"http://h/{run}").to_json())
    traces = {trace.get("name", "line").partition(" (")[0]: trace for trace in figure["data"]}
    drawn = sum(len(traces[name]["hovertext"]) for name in ("dominated", "on the front"))

    assert drawn == len(front.points) - 1  # without the job that was cut off to measure seconds
    assert len(traces["recommended"]["text"]) == len(picks)
    assert "<br>rate 2.45e-5" in traces["on the front"]["hovertext"][0]
    assert all(url.startswith("http://h/") for url in traces["on the front"]["customdata"])
    buttons = {button["label"]: button["args"][1] for button in figure["layout"]["updatemenus"][0]["buttons"]}
    assert buttons.keys() == {"cost and F1", "cost and training time", "training time and F1"}
    assert buttons["cost and F1"]["xaxis.type"] == "log"


def test_a_menu_is_there_from_two_pairs_of_objectives_on() -> None:
    trials = many_trials(6)

    def menus(objectives: dict[str, str]) -> list[str]:
        front = answer(trials, objectives, {}, name="a").front
        layout = json.loads(front_figure(front, recommend(front), lambda run: "").to_json())["layout"]
        return [button["label"] for menu in layout.get("updatemenus", []) for button in menu["buttons"]]

    assert menus({"cost_usd": "minimize", "f1": "maximize"}) == []
    assert len(menus(ALL_THREE)) == 3


def test_while_a_study_runs_its_page_says_how_far_it_is_and_loads_itself_again() -> None:
    trials = [trial_of(n, 1.0, 0.9) for n in range(4)]
    trials.append(trial_of(4, 36.0, 0.9, values={}, given={"probe_steps": "40"}))  # it is not one of the eight
    running = page_of(trials, n_trials=8, running=("trial 4: batch 32",))

    assert re.search(
        r"Running: 4 of 8 trials, 40.00 USD of 100.00 USD, best F1 \S+; running now: trial 4: batch 32\.", running
    )
    assert "location.reload()" in running
    assert "location.reload()" not in page_of([trial_of(0, 1.0, 0.9)])


def test_the_baseline_is_a_line_where_f1_is_an_axis_and_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "workbench")
    trials = [trial_of(0, 1.0, 0.9, measured={"baseline_f1_tfidf": 0.75}), trial_of(1, 2.0, 0.92)]
    trials += [trial_of(2, 0.5, 0.8, point={"instance_type": "local"})]
    shown = answer(trials, COST_AND_F1, {}, name="a")
    drawn = {trace.name: trace.y for trace in front_figure(shown.front, shown.picks, str).data}

    assert set(drawn["TF-IDF + logistic regression"]) == {0.75}
    assert "workbench, ml.g5.xlarge" in page_of(trials)


def test_no_page_is_of_tomorrow_although_simulated_jobs_may_end_then() -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert f"{tomorrow:%Y-%m-%d}" not in page_of([trial_of(0, 1.0, 0.9, ended_at=tomorrow.timestamp())])


def charts_of(shown: StudyAnswer) -> list[list[dict[str, Any]]]:
    """Return the traces of each pair of objectives in the chart's menu, as plotly draws them."""
    figure = json.loads(front_figure(shown.front, shown.picks, str).to_json())
    charts = [figure["data"]]
    for button in figure["layout"].get("updatemenus", [{"buttons": []}])[0]["buttons"]:
        changes = button["args"][0]
        charts.append(
            [
                trace | {key: values[at] for key, values in changes.items() if "." not in key}
                for at, trace in enumerate(figure["data"])
            ]
        )
    return charts


def places(trace: dict[str, Any]) -> set[tuple[float, float]]:
    return {(x, y) for x, y in zip(trace["x"], trace["y"], strict=True) if x is not None and y is not None}


@pytest.mark.parametrize("seed", range(6))
def test_the_line_of_the_front_goes_through_every_mark_on_the_front_of_each_pair(seed: int) -> None:
    shown = answer(many_trials(40, seed), ALL_THREE, {}, name="a")

    charts = charts_of(shown)
    assert len(charts) == 4
    for traces in charts:
        (line,) = (trace for trace in traces if trace["mode"] == "lines")
        (front,) = (trace for trace in traces if str(trace.get("name")).startswith("on the front ("))
        assert places(line) == places(front) != set()
        assert f"({len(places(front))})" in front["name"]


def test_a_chart_of_time_and_dollars_alone_has_no_menu_of_the_same_pair_twice() -> None:
    trials = [trial_of(number, 1.0 + number, 0.9, more={"job_seconds": 9000.0 - number}) for number in range(3)]
    shown = answer(trials, {"job_seconds": "minimize", "cost_usd": "minimize"}, {}, name="a")

    assert len(charts_of(shown)) == 1


def test_a_label_stands_below_its_mark_where_the_line_goes_up_near_it() -> None:
    near = 0
    for seed in range(12):
        (traces, *_) = charts_of(answer(many_trials(40, seed), COST_AND_F1, {}, name="a"))
        (picked,) = (trace for trace in traces if trace.get("name") == "recommended")
        of_all = [x for trace in traces for x, _ in places(trace)]
        width = (max(of_all) - min(of_all)) / 5
        marks = [*zip(picked["x"], picked["y"], picked["textposition"], strict=True)]
        for (x, y, place), (next_x, next_y, _) in itertools.pairwise(marks):
            if next_x - x < width and next_y > y:
                near += 1
                assert place.startswith("bottom")
    assert near > 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("objectives", [COST_AND_F1, ALL_THREE])
def test_what_is_named_best_or_recommended_is_drawn_on_the_front(seed: int, objectives: dict[str, str]) -> None:
    shown = answer(many_trials(40, seed), objectives, {}, name="a")
    on_front = {point.number for point in shown.front.best}

    assert shown.best is not None
    assert shown.best.number in on_front
    assert {pick.point.number for pick in shown.picks} <= on_front
    (traces, *_) = charts_of(shown)
    (front,) = (trace for trace in traces if str(trace.get("name")).startswith("on the front ("))
    assert max(y for _, y in places(front)) == shown.best.means["f1"]
    assert f"best F1 {shown.figures.number('f1', shown.best.means['f1'])}" in shown.state()


def test_one_run_has_no_error_bar_of_dollars_although_its_cluster_ran_other_rates_too() -> None:
    same = {"per_device_train_batch_size": "8", "instance_type": "ml.g5.xlarge"}
    trials = [
        trial_of(n, usd, f1, given={**same, "learning_rate": rate})
        for n, (usd, f1, rate) in enumerate([(1.0, 0.9, "1e-5"), (1.1, 0.92, "1e-4")])
    ]
    trials += [trial_of(3, 2.0, 0.93), trial_of(4, 2.1, 0.932, repeats=3)]
    (traces, *_) = charts_of(answer(trials, COST_AND_F1, {}, name="a"))

    bars = {
        text.partition(":")[0]: [value for value in (of_x, of_y) if value is not None]
        for trace in traces
        if "hovertext" in trace
        for text, of_x, of_y in zip(
            trace["hovertext"], trace["error_x"]["array"], trace["error_y"]["array"], strict=True
        )
    }
    assert {name: len(values) for name, values in bars.items()} == {
        "Trial 0, 1 run": 1,
        "Trial 1, 1 run": 1,
        "Trial 3, 2 runs": 2,
    }


def test_the_quality_of_one_run_has_an_error_and_every_other_configuration_says_what_beats_it() -> None:
    trials = [trial_of(0, 1.0, 0.90), trial_of(1, 3.0, 0.95), trial_of(2, 9.0, 0.97), trial_of(3, 9.5, 0.96)]
    text = Reader(page_of(trials)).text

    assert "unknown" not in text
    assert re.search(r"F1\s*0\.9\d+ ± 0\.0", text)
    assert "beaten by trial 2" in page_of(trials)  # in the tooltip
    assert re.search(r"beaten by\s.*trial 2", text, re.DOTALL)  # in the table of all trials


def test_a_doubtful_price_is_named_once() -> None:
    doubt = "price of ml.g5.xlarge in us-east-1 is of 2021"
    text = page_of([trial_of(0, 1.0, 0.8), trial_of(1, 5.0, 0.9)], prices={"ml.g5.xlarge": doubt})

    assert text.count(doubt) == 1


def test_a_limit_is_no_part_of_a_configuration_and_numbers_of_rows_have_all_their_digits() -> None:
    point = {"instance_type": "ml.g5.xlarge", "max_runtime_minutes": 1800.0, "max_train_samples": 90000}
    wide = trial_of(0, 1.0, 0.9, point={**point, "warmup_steps": 12345.0})

    assert wide.setting() == "ml.g5.xlarge, rows 90000, warmup steps 12345, batch 1"
