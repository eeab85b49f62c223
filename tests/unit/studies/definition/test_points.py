"""The rows of a designed experiment, and what they can estimate."""

import re
from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.points import Design, Points

FACTORS = {"precision": ["fp32", "bf16"], "num_train_epochs": [1, 2, 3], "learning_rate": [1e-5, 3e-5]}


def rows(points: dict[str, Any]) -> list[dict[str, Any]]:
    return Design(Points.read(points), seed=42).rows


def test_all_combinations_run_once_for_each_replicate_with_other_seeds() -> None:
    made = rows({"full": FACTORS, "replicates": 2})

    assert len(made) == 24
    assert len({tuple(row[name] for name in FACTORS) for row in made}) == 12
    assert sum(row.get("seed") == 43 for row in made) == 12
    points = {"full": {"num_train_epochs": [1.0, 2.0]}, "replicates": 3}
    study = StudyFile.read({"name": "x", "job": {"seed": 43}, "points": points}, {})
    assert {spec.seed for _, spec in study.jobs_at()} == {43, 44, 45}


def test_the_rows_of_a_design_run_in_a_random_order_that_the_seed_repeats() -> None:
    points = Points.read({"full": FACTORS})

    def order(seed: int) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in FACTORS) for row in Design(points, seed=seed).rows]

    assert order(42) == order(42) != order(43)
    assert sorted(map(str, order(42))) == sorted(map(str, order(43)))
    assert order(42) not in (sorted(order(42)), sorted(order(42), reverse=True))
    assert [each[0] for each in order(42)] != sorted(each[0] for each in order(42))


TOGETHER = [{"precision": "fp32", "learning_rate": 1e-5}, {"precision": "bf16", "learning_rate": 3e-5}]


@pytest.mark.parametrize(
    ("points", "count", "effects"),
    [
        ({"d_optimal": 6, "factors": FACTORS}, 6, 4),
        ({"full": {"batch": TOGETHER, "num_train_epochs": [1, 2]}}, 4, 2),  # a row is left to measure noise
    ],
)
def test_a_design_has_rows_for_all_its_effects_and_its_noise(points: dict[str, Any], count: int, effects: int) -> None:
    design = Design(Points.read(points), seed=42)

    assert len(design.rows) == count
    assert design.findings() == []
    assert design.correlations().shape == (effects, effects)


def test_the_largest_correlation_of_two_factors_is_named(tmp_path: Path) -> None:
    full = Design(Points.read({"full": {"precision": ["fp32", "bf16"], "num_train_epochs": [1, 2]}}), seed=1)
    assert full.largest_correlation() == "none of the effects of two factors are correlated"

    (path := tmp_path / "rows.csv").write_text("precision,num_train_epochs\nfp32,1\nfp32,1\nbf16,2\nbf16,1\n")
    table = Design(Points(table=str(path)), seed=1)
    assert re.fullmatch(
        r"the largest correlation of two effects is 0\.58: (precision|num_train_epochs)=\w+ and \w+=\w+",
        table.largest_correlation(),
    )
    alone = Design(Points.read({"full": {"precision": ["fp32", "bf16"]}}), seed=1)
    assert alone.largest_correlation() == ""


def test_a_table_is_taken_as_it_is_and_repeats_of_a_single_row_show_its_noise_and_no_effects(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text("learning_rate,precision\n1e-5,fp32\n,\n3e-5,bf16\n,\n")
    assert sorted(row["learning_rate"] for row in rows({"table": str(path)})) == [1e-5, 3e-5]

    path.write_text("learning_rate\n1e-5\n")
    design = Design(Points(table=str(path), replicates=3), seed=1)
    assert design.findings() == []
    assert design.correlations().empty


def test_spaces_around_the_cells_of_a_table_do_not_count(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text('precision, learning_rate\nbf16, 1e-5\n "bf16", "3e-5"\n')
    design = Design(Points(table=str(path)), seed=1)

    assert {(row["precision"], row["learning_rate"]) for row in design.rows} == {("bf16", 1e-5), ("bf16", 3e-5)}
    assert design.correlations().shape == (1, 1)


def test_a_row_of_a_table_with_more_cells_than_the_header_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text("num_train_epochs,global_batch_size\n2,16,,\n1,5,16\n")
    with pytest.raises(BadInput, match=r"^points: line 3 of .*rows\.csv has more cells than the header: begin with"):
        rows({"table": str(path)})

    path.write_text("\nnum_train_epochs,global_batch_size\n2,16,, \n")  # as spreadsheets write empty lines and columns
    assert rows({"table": str(path)}) == [{"num_train_epochs": 2.0, "global_batch_size": 16}]


def test_an_empty_cell_of_a_table_is_a_level_in_correlations(tmp_path: Path) -> None:
    cells = [f"{precision},{rate}\n" for precision in ("fp32", "bf16", "") for rate in ("1e-5", "3e-5")]
    (path := tmp_path / "rows.csv").write_text("precision,learning_rate\n" + "".join(cells))

    for seed in range(8):  # orders of the rows
        of_precision = Design(Points(table=str(path)), seed=seed).correlations().filter(like="precision=")
        assert sorted(of_precision.to_numpy().flatten()) == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]


def test_levels_with_equal_values_or_parts_of_each_other_are_distinguished() -> None:
    memory = [{"gradient_checkpointing": True}, {"quantization": True}, {"quantization": True, "precision": "bf16"}]
    points = {"full": {"memory": memory, "learning_rate": [1e-5, 3e-5]}, "replicates": 2}
    design = Design(Points.read(points), seed=1)

    labels = design.table([]).groupby("memory")["row"].count()
    assert labels.to_dict() == {"true": 4, '{"quantization": true}': 4, "true / bf16": 4}
    assert design.correlations().shape == (3, 3)


def test_replicates_of_rows_with_seeds_of_their_own_never_share_one(tmp_path: Path) -> None:
    (path := tmp_path / "rows.csv").write_text("learning_rate,seed\n1e-5,1\n1e-5,2\n3e-5,1\n")

    made = rows({"table": str(path), "replicates": 2})

    seeds = {rate: sorted(row["seed"] for row in made if row["learning_rate"] == rate) for rate in (1e-5, 3e-5)}
    assert seeds == {1e-5: [1, 2, 3, 4], 3e-5: [1, 2]}


@pytest.mark.parametrize(
    ("header", "lines", "names"),
    [
        ("spot,instance_count", ["false,1", "false,2", "true,1", "true,2"], "spot"),
        ("spot,max_runtime_minutes", ["false,10", "true,20"], "spot, max_runtime_minutes"),
        ("learning_rate,instance_count", ["5e-5,1", ",1", "1e-5,2"], "learning_rate"),
    ],
)
@pytest.mark.parametrize("replicates", [1, 2])
def test_rows_that_are_the_same_job_are_refused(
    tmp_path: Path, header: str, lines: list[str], names: str, replicates: int
) -> None:
    (path := tmp_path / "rows.csv").write_text("\n".join([header, *lines]))
    points = {"table": str(path), "replicates": replicates}

    with pytest.raises(BadInput) as refused:
        StudyFile.read({"name": "x", "job": {"instance_type": "ml.g5.xlarge"}, "points": points, "budget_usd": 9})

    rule = f"points: rows that differ only in {names} are the same job, which a study runs once"
    assert refused.value.faults == (f"{rule}: take {names} out, or keep one of these rows",)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("a,b\n1,1\n2,2\n3,3\n", "the main effects cannot all be estimated"),
        ("a\n1\n2\n", "no rows are left to measure"),
    ],
)
def test_what_a_design_cannot_estimate_is_said(tmp_path: Path, lines: str, sentence: str) -> None:
    (tmp_path / "rows.csv").write_text(lines)

    (finding,) = Design(Points(table=str(tmp_path / "rows.csv")), seed=1).findings()

    assert finding.startswith(sentence)


@pytest.mark.parametrize(
    ("points", "fault"),
    [
        ({"full": FACTORS, "table": "rows.csv"}, "points must have exactly one of full, d_optimal or table, got full"),
        ({"ful": FACTORS}, "unknown parameter ful: did you mean full"),
        ({"full": {"precision": ["fp32"]}}, "precision must be a list of at least two levels"),
        ({"d_optimal": 3, "factors": FACTORS}, "d_optimal must be at least 5, the number of main-effect terms, got 3"),
        ({"full": {"seed": ["a", 1]}, "replicates": 2}, "points: seed must be a whole number, got 'a'"),
    ],
)
def test_what_makes_no_design_is_refused(points: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadInput, match=fault):
        rows(points)


def test_a_row_that_was_tried_again_has_the_end_of_its_last_job_and_the_dollars_of_all() -> None:
    design = Design(Points.read({"full": {"instance_count": [1, 2]}}), 42)
    cut_off = {"status": "CutOff", "cost_usd": 0.5}
    ended = [({"instance_count": 2}, cut_off), ({"instance_count": 2}, {"status": "Completed", "cost_usd": 0.75})]
    rows = design.table(ended).set_index("instance_count")
    assert rows.loc[2, ["status", "cost_usd"]].tolist() == ["Completed", 1.25]
    assert rows.loc[1, "status"] == "Pending"
