"""The page stands alone, parses, escapes, and stays small."""

import json
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from paretune.studies.results.figures import front_chart
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import page, study_note
from paretune.studies.results.recommendation import recommend
from paretune.studies.results.trials import Trial, TrialStatus
from tests.study_examples import COST_AND_F1, answer, failed, many_trials, trial_of

VOID = {"meta", "br", "wbr", "img", "input", "hr", "link"}
ALL_THREE = {**COST_AND_F1, "train_seconds": "minimize"}


class Reader(HTMLParser):
    """Tags must nest; keeps attributes, ids and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "action", "data"}]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(trials: list[Trial], objectives: Any = COST_AND_F1, constraints: Any = None, **also: Any) -> str:
    settings: dict[str, Any] = {"name": "a study", "budget_usd": 100.0, "committed_usd": 5.0, **also}
    return page(answer(trials, objectives, constraints or {}, **settings))


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize(
    ("count", "objectives"),
    [(1, COST_AND_F1), (3, {"f1": "maximize"}), (1, {"train_seconds": "minimize"}), (40, ALL_THREE)],
)
def test_it_parses_and_refers_to_nothing_outside(count: int, objectives: dict[str, str]) -> None:
    page = page_of(many_trials(count, seed=3), objectives, {"f1": {"min": 0.9}})
    reader = read(page)

    assert reader.tags.count("script") == 2  # data, and our own script
    assert "src" not in reader.attributes
    assert not {"link", "iframe", "object"} & set(reader.tags)
    assert [link for link in reader.links if not link.startswith(("#", "data:image/png;base64,"))] == []
    assert len(reader.ids) == len(set(reader.ids))
    assert set(re.findall(r'https?://[^\s"<]+', page)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in page


def test_everything_is_escaped() -> None:
    evil = '<script>alert("1")</script>&amp;$x$'
    point = {"dataset": evil, "learning_rate": 1e-4}
    trials = [
        trial_of(n, 1.0 + n, 0.9, point={**point, "text_column": f"{evil}{n}"}, run_id=f"{evil}{n}") for n in range(9)
    ]
    trials.append(failed(9, TrialStatus.FAILED, evil))
    reader = read(page_of(trials, name=evil))
    tags = set(read(page_of(many_trials(9))).tags)

    assert reader.tags.count("script") == 2  # data, and our own script
    assert set(reader.tags) <= tags
    assert reader.text.count(evil) > 20


def test_a_note_shows_html_in_names_as_text_and_links_nowhere() -> None:
    evil = "<img src=x>![a](http://host/pixel.png)"
    trials = [trial_of(n, 1.0 + n, 0.9 + n / 99, point={"dataset": f"{evil}{n}"}) for n in range(3)]
    note = study_note(answer(trials, COST_AND_F1, {}, name=evil), "run0", has_picture=False)
    outside_code = re.sub(r"`.*?`", "", note)

    assert "pixel.png" in outside_code
    assert "<" not in outside_code
    assert "](" not in outside_code


def test_the_first_line_of_a_note_is_the_answer() -> None:
    for origin in ("measured", "simulated"):
        note = study_note(answer(many_trials(5, origin=origin), COST_AND_F1, {}, name="s"), "run0", has_picture=False)
        assert note.startswith("**Take trial")
        assert ("nothing of this has run" in note) == (origin == "simulated")
        assert "--launcher simulated" not in note  # the command is the one that is worth typing


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"instance_type": "ml.g5.xlarge"}, ["trial 0, ml.g5.xlarge"]),
        ({"instance_type": "ml.g5.xlarge", "instance_count": 4}, ["trial 0, 4 x ml.g5.xlarge"]),
        ({}, ["trial 0"]),
    ],
)
def test_a_recommended_mark_is_labelled_with_its_cluster_where_the_study_searches_it(
    cluster: dict[str, Any], words: list[str]
) -> None:
    trials = [trial_of(0, 1.0, 0.9, point={"learning_rate": 1e-5, **cluster})]
    front = StudyFront.of(trials, COST_AND_F1, {})

    assert [mark.label for mark in front_chart(front, recommend(front), lambda _: "").marks] == words


def test_the_data_of_the_chart_survive_hostile_names() -> None:
    evil = "</script><!--<script>\u2028'&"
    trials = [trial_of(n, 1.0 + n, 0.9, point={evil: n}, run_id=evil) for n in range(4)]
    text = page(answer(trials, COST_AND_F1, {}, name=evil), lambda run_id: f"https://mlflow.example/{run_id}")
    found = re.search(r'<script type="application/json">(.*?)</script>', text, flags=re.DOTALL)

    assert found is not None
    assert not set("<>&'") & set(found[1])
    data = json.loads(found[1])
    assert data["addresses"] == [f"https://mlflow.example/{evil}"] * 4
    assert evil in data["axes"]


def test_runs_are_linked_in_a_window_of_their_own_and_only_over_http() -> None:
    answered = answer(many_trials(5), COST_AND_F1, {}, name="a study")
    linked = re.findall(
        r'<a href="([^"]+)" target="_blank" rel="noopener">', page(answered, lambda run: f"http://h/{run}")
    )

    assert linked == [f"http://h/{trial.run_id}" for trial in answered.front.trials]
    assert "alert" not in page(answered, lambda _: "javascript:alert(1)")


def test_the_picture_shows_every_point_and_says_where_an_axis_is_broken() -> None:
    trials = [*many_trials(40), trial_of(40, 900.0, 0.2)]
    text = page_of(trials)
    completed = sum(trial.status is TrialStatus.COMPLETED for trial in trials)

    assert len(re.findall(r'<g id="chart-tip\d+" class="mark [a-z ]+">', text)) == completed
    assert "The axis of cost is broken: 1 point lies past the break, up to 900, not to scale." in text
    assert "The axis of F1 is broken: 1 point lies past the break, down to 0.2, not to scale." in text


def test_a_job_that_was_cut_off_to_learn_seconds_is_no_mark_and_stretches_no_axis() -> None:
    whole = [trial_of(number, 4.0 + number, 0.9 + number / 100) for number in range(3)]
    cut = trial_of(3, 0.02, 0.0, values={"cost_usd": 0.02})
    front = answer([*whole, cut], COST_AND_F1, {}, name="a").front

    chart = front_chart(front, [], lambda _: "")
    assert len(chart.marks) == 3
    assert "0.1" not in [text for _, text in chart.scale("cost_usd").ticks()]
    assert chart.scale("cost_usd").at(4.0) < 0.3  # were the job there, three quarters along


def test_a_study_of_one_objective_shows_it_over_the_dollars_spent() -> None:
    text = page_of(many_trials(20), {"f1": "maximize"})

    assert "spent by the study (USD)</text>" in text
    assert re.search(r'<g class="line"><path d="M[^"]+L', text)


def test_the_answer_comes_first_and_everything_is_there() -> None:
    trials = many_trials(60)
    text = read(page_of(trials, ALL_THREE, later_runs=50, default=trials[0])).text

    parts = ["a study", "Take trial", "paretune train --", "recommended", "The cheapest within noise"]
    parts += ["Pareto front over all", "Whether the search paid", "Budget", "How far one run scatters", "All trials"]
    places = [text.index(part, text.index("</style>") if "</style>" in text else 0) for part in parts]
    assert places == sorted(places)
    assert all(trial.run_id in text for trial in trials)


def test_the_budget_adds_up() -> None:
    text = read(page_of([trial_of(0, 1.0, 0.9)])).text  # 10 spent

    assert re.search(r"spent10.00 USD.*worst5.00 USDleft85.00 USDbudget100.00 USD", text)
    assert "budget100" not in read(page_of([trial_of(0, 1.0, 0.9)], budget_usd=None)).text


def test_the_sentence_below_the_banner_does_not_repeat_that_all_is_simulated() -> None:
    lead = re.search('<p class="lead">(.*?)</p>', page_of(many_trials(3, origin="simulated")))

    assert lead is not None
    assert "Take trial" in lead[1]
    assert "simulated" not in lead[1]


@pytest.mark.slow
def test_a_simulated_study_says_so_at_its_top_and_under_every_figure() -> None:
    page = page_of(many_trials(30, origin="simulated"), ALL_THREE)

    assert '<p class="banner" role="note">Simulated: all numbers' in page
    assert page.count("<figcaption>") == page.count("<figcaption>Simulated. ")
    assert "imulated" not in page_of(many_trials(30), ALL_THREE)


@pytest.mark.parametrize("trials", [[], [failed(0, TrialStatus.FAILED, "no such column: text")]])
def test_without_a_result_the_page_says_why(trials: list[Trial]) -> None:
    reader = read(page_of(trials))

    assert "there is no front" in reader.text
    assert all(trial.reason in reader.text for trial in trials)


def test_equal_trials_and_a_single_value_of_everything_are_drawn() -> None:
    read(page_of([trial_of(n, 0.0, 0.5, point={"seed": 1}) for n in range(9)]))


def test_repeats_are_not_counted_as_trials() -> None:
    trials = [trial_of(n, 1.0, 0.9 + 0.01 * n) for n in range(4)] + [trial_of(n, 1.0, 0.93, repeats=3) for n in (4, 5)]

    assert "4 trials and 2 repeats, 6 completed" in page(answer(trials, COST_AND_F1, {}, name="s", budget_usd=None))


@pytest.mark.slow
def test_a_thousand_trials_make_a_page_below_3_mb_in_a_few_seconds() -> None:
    trials = many_trials(1000)
    began = time.process_time()
    page = page_of(trials, ALL_THREE)

    assert len(page.encode()) < 3_000_000
    assert time.process_time() - began < 10  # 2 s where nothing else runs
    read(page)


def test_the_same_trials_make_the_same_page() -> None:
    assert page_of(many_trials(9)) == page_of(many_trials(9))
