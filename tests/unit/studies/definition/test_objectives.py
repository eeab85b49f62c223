"""The direction of a metric: known from its name only where the name leaves no doubt."""

import pytest

from paretune.core.errors import BadInput
from paretune.studies.definition.objectives import direction_of, stated_direction


@pytest.mark.parametrize(
    "metric",
    [
        *("loss", "Loss", "val/NLL", "Test_Average_loss", "mlogloss", "valLoss", "epoch_loss", "dice_loss", "merror"),
        *("RMSLE", "rmse", "valid_mse", "mape", "mean_squared_error", "wer", "cer", "eer", "valid_ppl", "perplexity"),
        *("top1_err", "error_rate", "deviance", "crossentropy", "cross_entropy", "bits_per_byte", "bpb", "ece"),
        *("hamming_loss", "brier_score", "neg_log_likelihood", "neg_log_likelihood_loss", "cost_usd", "eval_loss"),
    ],
)
def test_a_loss_is_minimized(metric: str) -> None:
    assert direction_of(metric) == "minimize"


@pytest.mark.parametrize(
    "metric",
    [
        *("f1", "val_f1", "f1_score", "answer_f1", "Test_Accuracy", "valAccuracy", "Acc@1", "eval_top1", "acc_norm"),
        *("Validation_AUC", "validation_0-auc", "mAP@0.5", "map50-95", "mIoU", "rougeL", "bleu", "r2_score", "ndcg@10"),
        *("sts-dev_spearman_cosine", "recall@10", "mean_reward", "eval_neg_log_loss", "neg_mean_squared_error"),
    ],
)
def test_a_score_is_maximized(metric: str) -> None:
    assert direction_of(metric) == "maximize"


@pytest.mark.parametrize(
    "metric",
    [
        *("RAE", "val_rae", "l1", "valid_l2", "latency_ms", "hamming_distance", "score", "neg_perplexity", "neg_loss"),
        *(
            "acc_drop",
            "f1_std",
            "1-acc",
            "one_minus_auc",
            "inverse_accuracy",
            "loss_accuracy",
            "about_me",
        ),
        *("false_positive_rate", "silhouette", "accuracy_gap", "loss_seconds", "mirror", "", "@"),
    ],
)
def test_a_name_that_leaves_doubt_has_no_direction(metric: str) -> None:
    assert direction_of(metric) is None


def test_the_user_says_what_the_name_does_not() -> None:
    assert stated_direction("val_rae", "minimize") == "minimize"
    with pytest.raises(BadInput, match="val_rae: say --minimize val_rae or --maximize val_rae"):
        stated_direction("val_rae", "")
    with pytest.raises(BadInput, match="val_loss is better when it is lower: say --minimize val_loss; if its name"):
        stated_direction("val_loss", "maximize")
