"""The files of a profile."""

import json

from paretune.training.profiling.page import Advice, PeakMemory, Profile, RankProfile
from paretune.training.profiling.trace import PARTS, Operator, StepTime


def rank(number: int, *, compute: int, communication: int, memory: PeakMemory | None = None) -> RankProfile:
    """Two steps of 1 ms in all, of which 10 % are idle at least."""
    parts = dict.fromkeys(PARTS, 0) | {"compute": compute, "communication": communication}
    parts["idle"] = 2_000_000 - sum(parts.values())
    operators = tuple(Operator(name=f"aten::op{n}", calls=2, self_ns=1000 * (20 - n)) for n in range(12))
    time = StepTime(steps=2, parts=parts, communication_ns=communication, operators=operators, on_gpu=False)
    return RankProfile(rank=number, time=time, memory=memory)


def profile(*ranks: RankProfile) -> Profile:
    advice = [Advice(figure="idle 10 % of the step", reason="more rows", parameters={"precision": "bf16"})]
    return Profile(
        ranks=ranks, first_step=3, circumstances={"device": "a CPU"}, advice=advice, traces={0: "trace.json.gz"}
    )


HOLDERS = {"parameters": 3 * 2**20, "optimiser state": 2**19, "activations": 2**19, "other": 0}
MEMORY = PeakMemory(step=2, holders=HOLDERS, process_gib=0.5)


def test_the_summary_is_one_line_with_shares_and_the_first_advice() -> None:
    result = profile(rank(0, compute=1_800_000, communication=0))

    assert result.summary() == (
        "compute 90 %, idle 10 % of 1.0 ms per step; advice: --precision bf16 (idle 10 % of the step)"
    )


def test_the_slowest_process_is_the_one_that_waits_least_for_the_others() -> None:
    result = profile(
        rank(0, compute=1_000_000, communication=600_000), rank(1, compute=1_400_000, communication=200_000)
    )

    assert result.slowest.rank == 1
    assert "slowest process: rank 1" in result.summary()
    assert result.as_json()["slowest_rank"] == 1
    assert "Slowest: rank 1, with 28.6 % more time of its own than the next" in result.as_markdown()  # 1.8 and 1.4 ms


def test_the_page_of_one_process_does_not_speak_of_others() -> None:
    result = profile(rank(0, compute=1_800_000, communication=0))

    assert "Processes" not in result.as_markdown()
    assert "slowest process" not in result.summary()


def test_a_peak_without_optimiser_state_says_so() -> None:
    memory = PeakMemory(step=1, holders={"activations": 2**20, "optimiser state": 0}, process_gib=None)
    page = profile(rank(0, compute=1_500_000, communication=0, memory=memory)).as_markdown()

    assert "Tensors held 1.0 MiB at the peak of step 1, before the optimiser has made its state." in page


def test_both_files_say_the_same_figures() -> None:
    result = profile(rank(0, compute=1_500_000, communication=300_000, memory=MEMORY))
    document, page = json.loads(json.dumps(result.as_json())), result.as_markdown()

    assert document["shares_percent"] == {"data": 0, "compute": 75, "communication": 15, "optimiser": 0, "idle": 10}
    assert "| compute | 75.0 | 0.75 |" in page
    assert document["memory"]["holders_gib"]["parameters"] == 3 / 1024
    assert "| parameters | 3.0 | 75.0 |" in page
    assert "Tensors held 4.0 MiB at the peak of step 2. The process held 512 MiB" in page
    assert [operator["name"] for operator in document["operators"]] == [f"aten::op{n}" for n in range(10)]
    assert "aten::op9" in page
    assert "aten::op10" not in page
    assert "- idle 10 % of the step: more rows. Try `--precision bf16`" in page
