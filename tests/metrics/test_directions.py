"""What the names of metrics say, and which tags are such names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rec_summary.metrics.directions import (
    NAMED,
    check_metrics,
    costs_of,
    direction_of,
    stated_direction,
)
from rec_summary.metrics.tags import AT_K, JUDGING
from tests.support.laws import refused

# Of MindSpore (`mindspore.train.metrics`), scikit-learn, torchmetrics, Keras, RecBole and TorchRec,
# and of papers on recommenders.
LESS = """
    mae mse loss perplexity hausdorff_distance mean_surface_distance root_mean_square_distance
    fall_out false_discovery_rate false_omission_rate
    mape smape wmape wape mase rmse rmsle msle nrmse rmspe medae max_error mean_squared_error
    mean_absolute_error mean_absolute_percentage_error symmetric_mean_absolute_percentage_error
    weighted_mean_absolute_percentage_error mean_squared_log_error relative_squared_error
    log_cosh_error root_mean_squared_error median_absolute_error mean_pinball_loss
    mean_poisson_deviance mean_gamma_deviance mean_tweedie_deviance tweedie_deviance_score
    minkowski_distance hamming_loss hamming_distance zero_one_loss hinge_loss log_loss logloss
    brier brier_score brier_score_loss ece mce expected_calibration_error calibration_error
    miscalibration_area nll neg_log_likelihood negative_log_likelihood neg_log_likelihood_loss
    negative_log_likelihood_loss NLLLoss BCELoss bce ce binary_cross_entropy binary_crossentropy
    cross_entropy cross_entropy_loss normalized_entropy normalised_entropy ne kl kld kl_div
    kl_divergence KLDivergence jensen_shannon_divergence jsd wasserstein_distance crps deviance
    fpr fnr fdr false_positive_rate false_negative_rate false_positives eer wer cer
    word_error_rate char_error_rate match_error_rate error_rate miss_rate davies_bouldin_score
    coverage_error label_ranking_loss negative_likelihood_ratio fid kid lpips ppl bits_per_byte
    distance edit_distance mean_rank misclassification_rate auc_loss f1_loss accuracy_loss
    val_loss eval/loss train/total_loss RMSE@10 eval/mape/auto fpr_at_recall_0.95 val_rmse
    test/logloss regret aic l2_error served_ne_change recommender/ctr/served_ne_change/last_100
"""
GREATER = """
    accuracy acc top_1_accuracy top_5_accuracy precision recall F1 dice auc bleu_score
    cosine_similarity sensitivity specificity balanced_accuracy threat_score informedness
    markedness fowlkes_mallows_index matthews_correlation_coefficient f1_score
    average_precision mean_average_precision mAP map ap roc_auc roc_auc_score pr_auc auroc auprc
    aucpr aucroc gauc uauc xauc wuauc AUC val_auc valid/auc auc/val train/AUC NDCG@10 ndcg_at_5
    retrieval_normalized_dcg normalized_discounted_cumulative_gain dcg mrr mrr_at_5
    mean_reciprocal_rank retrieval_hit_rate hit_rate hit_ratio hr@10 hits@3 recall@20 Recall_10
    precision@5 binary_accuracy sparse_categorical_accuracy fbeta_score f0.5 f_beta r2 r2_score
    adjusted_r2 r_squared explained_variance explained_variance_score d2_log_loss_score
    d2_absolute_error_score d2_pinball_score d2_brier_score d2_tweedie_score matthews_corrcoef
    mcc cohen_kappa kappa jaccard_score iou mIoU giou pearson_corrcoef pearsonr spearman_corrcoef
    spearmanr kendalltau kendall_rank_corrcoef concordance_corrcoef c_index distance_correlation
    silhouette_score calinski_harabasz_score rand_score adjusted_rand_score v_measure_score
    homogeneity_score completeness_score mutual_info_score normalized_mutual_info_score
    label_ranking_average_precision positive_likelihood_ratio log_likelihood loglikelihood tpr
    tnr true_positive_rate ppv npv negative_predictive_value psnr ssim snr rouge sacre_bleu
    exact_match recall_at_fixed_precision recall_at_fpr sensitivity_at_specificity elbo
    neg_log_loss neg_mean_squared_error neg_root_mean_squared_error neg_brier_score neg_max_error
    neg_negative_likelihood_ratio test_neg_mean_absolute_error eval/neg_mean_squared_error
    val_neg_log_loss neg_rmse test_accuracy eval/auc/night precision_weighted recall_samples
    served_auc_gain recommender/ctr/served_auc_gain/last_100
"""
UNKNOWN = """
    my_score score ctr cvr metric confusion_matrix topk roc_curve precision_recall_curve nearest
    occlusion_sensitivity prevalence_threshold learning_rate learning_rate/auto lr epoch
    loss_scale loss_weight kl_weight auc_std std_auc auc_gap accuracy_drop recall_threshold
    gauc_standard_error mean_standard_error error_bound neg_loss neg_auc negative_sampling_loss
    1-auc one_minus_auc inverse_rmse coverage diversity novelty entropy item_entropy
    intra_list_similarity intra_list_distance dissimilarity unbiased_score biased lossless
    f32_share variance temperature grad_norm error_time loss_of_goods/my_score auc_of_goods/my_score
    err gini ks lift time_to_accuracy autocorrelation ap2p users loss_reduction
    served_ne_change_standard_error served_auc_gain_standard_error served_missing ne_change
    served_skewed_share served_score_difference
"""
NAMES = """
    auc AUC val/auc valid_auc train/AUC ndcg@10 NDCG@10 ndcg_at_5 metrics/recall@20 hr@10 hit_rate
    HitRate@5 mrr mAP log_loss logloss val_logloss brier ece mape rmse MAE r2 gauc accuracy acc
    top_5_accuracy kl_divergence calibration auc/auto test/auc/last_100 f1_macro
"""
OTHERS = """
    loss loss/auto loss/deep val_loss train/loss aux_loss learning_rate/auto lr epoch bias
    dense.bias rec_summary/errors rec_summary/queue/accuracy recommender/table/item/auc
    recommender/slice/country=DE/auc country=DE/auc user_7_auc auc/country=DE auc_std best/auc
    fc.weight/precision grad_norm my_score map/of/something similarity distance error mse/layer_1
"""


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        *((name, "less") for name in [*LESS.split(), "miss rate", "fall out"]),
        *(
            (name, "greater")
            for name in [*GREATER.split(), "F1 score", "negative predictive value"]
        ),
        *((name, "") for name in UNKNOWN.split()),
        *(
            (name, "one")
            for name in ("calibration", "eval/calibration", "pcoc", "COPC", "served_calibration")
        ),
        *((name, "zero") for name in ("bias", "mean_bias_error", "mpe", "signed_error")),
    ],
)
def test_a_name_says_which_values_are_better_or_nothing(name: str, direction: str) -> None:
    assert direction_of(name) == direction


def test_a_name_of_any_length_says_something_or_nothing() -> None:
    for part in ("neg_", "negative_log_likelihood_", "val/", "auc_", "loss/", "1"):
        name = part * 20_000
        assert direction_of(name) in ("", "greater", "less")
        assert not re.search(NAMED, name)


def test_all_scores_of_scikit_learn_are_better_when_greater() -> None:
    names = pytest.importorskip("sklearn.metrics").get_scorer_names()
    assert {name for name in names if direction_of(name) != "greater"} == set()


def test_every_metric_of_recommenders_says_it_whatever_its_task() -> None:
    for kind, names in JUDGING.items():
        for metric in (*names, *(f"{start}10" for start in AT_K.get(kind, ()))):
            found = direction_of(f"recommender/{metric}/lifetime")
            assert found == direction_of(f"recommender/loss_of_goods/{metric}/last_100") != ""


@pytest.mark.parametrize("tag", NAMES.split())
def test_the_name_of_a_metric_is_one(tag: str) -> None:
    assert re.search(NAMED, tag)
    assert direction_of(tag)


@pytest.mark.parametrize("tag", OTHERS.split())
def test_the_tag_of_something_else_is_none(tag: str) -> None:
    assert not re.search(NAMED, tag)


def test_what_was_said_counts_for_a_tag_by_its_last_parts() -> None:
    stated = {"auc": "less", "val/auc": "greater", "my_score/auto": "less"}
    found = {
        tag: stated_direction(tag, stated)
        for tag in ("auc", "eval/auc", "val/auc", "a/val/auc/lifetime", "recommender/auc/1h")
    }
    assert list(found.values()) == ["less", "less", "greater", "greater", "less"]
    assert stated_direction("my_score/auto", stated) == "less"
    for other in ("auc/1h", "gauc", "my_score", "auc/x"):
        assert stated_direction(other, stated) == ""


@pytest.mark.parametrize(
    ("metric", "direction", "best"),
    [
        ("auc", "", 3.0),
        ("auc", "less", -2.0),
        ("loss", "", -2.0),
        ("my_score", "greater", 3.0),
        ("calibration", "", 0.5),
        ("bias", "", 0.5),
    ],
)
def test_the_best_value_has_the_least_cost(metric: str, direction: str, best: float) -> None:
    values = np.array([-2.0, 0.5, 3.0, np.nan, np.inf, -np.inf])
    assert values[costs_of(metric, values, direction).argmin()] == best


def test_without_a_direction_every_value_has_an_infinite_cost() -> None:
    assert np.isinf(costs_of("my_score", np.array([1.0, 2.0]))).all()


@pytest.mark.parametrize(
    ("metrics", "error", "received"),
    [
        ({"x": "lower"}, ValueError, "metrics['x'] is invalid. Received: 'lower'"),
        ({1: "less"}, TypeError, "a name of metrics is invalid. Received: 1"),
        (["auc"], TypeError, "metrics is invalid. Received: ['auc']"),
        (
            {f"m{n}": "less" for n in range(201)},
            ValueError,
            "metrics is invalid. Received: 201 entries",
        ),
    ],
)
def test_what_states_no_direction_is_refused(metrics: Any, error: type, received: str) -> None:
    refused(error, re.escape(received), check_metrics, metrics)
    assert check_metrics(None) == {}
