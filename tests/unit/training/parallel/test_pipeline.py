"""What a batch becomes before it goes through a pipeline."""

import torch

from paretune.training.parallel.pipeline import _pad_rows


def test_rows_that_fill_up_a_batch_have_no_labels() -> None:
    batch = {"input_ids": torch.tensor([[1, 2], [3, 4], [5, 6]]), "labels": torch.tensor([0, 1, 1])}

    filled = _pad_rows(batch, 2)

    assert filled["input_ids"].tolist() == [[1, 2], [3, 4], [5, 6], [1, 2]]
    assert filled["labels"].tolist() == [0, 1, 1, -100]
    assert batch["labels"].tolist() == [0, 1, 1]


def test_a_batch_that_the_micro_batches_divide_stays_as_it_is() -> None:
    batch = {"input_ids": torch.tensor([[1], [2]]), "labels": torch.tensor([0, 1])}

    assert _pad_rows(batch, 2) == batch
