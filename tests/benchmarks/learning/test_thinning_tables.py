"""Training on fewer rollouts: scores at equal cost and the break-even ratio, on records made by hand."""

import numpy as np
import pytest

from eval.benchmarks.learning import thinning_tables as thinned
from eval.benchmarks.learning.one_run import trained
from eval.benchmarks.learning.tables import studies as tables


def record(arm, score, completions, seed=0, stage="thin"):
    """A run of ten generation batches' worth, looked at at the start, half-way and at the end."""
    return {
        "stage": stage, "regime": "staged", "arm": arm, "learning_rate": 4e-4, "seed": seed, "batches": 10,
        "rollouts": [0, 1280, 2560], "score": score, "trained_completions": completions,
        "trained_tokens": [10 * count for count in completions], "live_completions": 1280, "useful_share": 1.0,
        "advantage_variance": 0.4, "kept_advantage_variance": 0.8, "kl": [0.0, 0.1, 0.2],
    }  # fmt: skip


LOSSLESS = record("frontier + lossless", [0.0, 0.5, 1.0], [0, 1000, 2000])
ROWS = record("frontier + rows", [0.0, 0.4, 0.8], [0, 500, 1000])


def test_scores_are_compared_where_the_cheaper_run_ends():
    assert thinned.score_by_cost(ROWS, LOSSLESS, 0.0) == pytest.approx(-0.2)  # equal rollouts
    assert thinned.score_by_cost(ROWS, LOSSLESS, np.inf) == pytest.approx(0.8 - 0.5)  # 1,000 completions each
    # One second of each: 3,560 s of rows against 4,560 s of lossless, which is at 3560 / 4560 of its score.
    assert thinned.score_by_cost(ROWS, LOSSLESS, 1.0) == pytest.approx(0.8 - 3560 / 4560)
    assert thinned.score_by_cost(LOSSLESS, ROWS, 1.0) == pytest.approx(3560 / 4560 - 0.8)


def test_an_arm_breaks_even_where_what_it_saves_in_training_pays_for_its_score():
    # 0.8 of the score for (2560 + 1000 r) / (2560 + 2000 r) of the cost: equal at r = 512 / 600.
    assert thinned.break_even([ROWS], [LOSSLESS]) == pytest.approx(512 / 600, abs=0.05)
    assert thinned.break_even([record("frontier + rows", [0, 0.5, 1.1], [0, 500, 1000])], [LOSSLESS]) == 0.0
    assert thinned.break_even([record("frontier + rows", [0, 0.1, 0.2], [0, 500, 1000])], [LOSSLESS]) is None


def test_the_tables_show_each_choice_beside_lossless_of_its_sampler():
    pods = record("frontier + pods", [0.0, 0.5, 1.0], [0, 500, 1000])
    other = record("uniform + rows", [0.0, 0.5, 1.0], [0, 500, 1000])  # without lossless of its sampler
    runs = [{**run, "seed": seed} for run in (LOSSLESS, ROWS, pods, other) for seed in (0, 1)]
    elsewhere = [{**run, "regime": "paper_like"} for run in (LOSSLESS, {**ROWS, "score": [0, 0.5, 1.0]})]
    report = tables(runs + elsewhere).splitlines()
    assert any(line.startswith("| all | frontier | 3 | 1.000 ± 0.000 | -0.1333 ± 0.0667 |") for line in report)
    lines = [line for line in report if line.startswith("| staged |")]
    ends = [line.removeprefix("| staged | frontier | 2 | ").removesuffix(" |").split(" | ") for line in lines]
    assert [len(cells) for cells in ends] == [5] * 10
    rate, area, final, trained, cost, completions, tokens, even, useful, variance = ends
    assert rate == ["0.0004", "0.0004", "", "", "0.0004"]
    assert area[:2] == ["0.500 ± 0.000", "-0.1000 ± 0.0000"]
    assert final[1] == "-0.2000 ± 0.0000"
    assert trained[:2] == ["0.781", "0.391"]
    assert cost[:2] == ["-", "+0.019 ± 0.000"]
    assert completions[1] == tokens[1] == "+0.300 ± 0.000"
    assert even == ["-", "0.90", "", "", "0.00"]
    assert useful[1] == "0.50 > 1.00"
    assert variance[1] == "0.40 > 0.80"


def test_shares_are_compared_with_lossless_within_a_seed():
    runs = [
        {**LOSSLESS, "stage": "shares"},
        record("frontier + rows 0.5", [0.0, 0.4, 0.8], [0, 500, 1000], 0, "shares"),
    ]
    (line,) = (line for line in tables(runs).splitlines() if line.startswith("| frontier + rows 0.5 |"))
    assert line.startswith(
        "| frontier + rows 0.5 | 1 | 0.4000 | -0.1000 ± nan | 0.800 | -0.2000 ± nan | 1,000 | 10,000"
    )


def test_the_kl_term_is_compared_within_a_seed():
    runs = [record(f"uniform + {name}", [0, 0.5, end], [0, 500, 1000], stage="kl") for name, end in
            (("kl", 1.0), ("kl on live rows", 0.9))]  # fmt: skip
    (line,) = (line for line in tables(runs).splitlines() if "final score" in line)
    assert line.startswith("| uniform | 1 | final score | 1.0000 | 0.9000 | -0.1000")


def test_what_was_trained_on_is_summed_up_to_each_evaluation():
    steps = {
        "tokens": [80, 90, 100], "trained_completions": [2, 0, 4], "trained_tokens": [20, 0, 40],
        "kept_completions": [4, 0, 4], "live_completions": [4, 0, 8], "advantage_variance": [0.5, 0.0, 0.7],
        "kept_advantage_variance": [1.0, 0.0, 1.4],
    }  # fmt: skip
    kept = trained({"steps": steps, "evaluations": {"step": [0, 2, 3], "kl": [None] * 3}})
    assert kept["tokens"] == [0, 170, 270]
    assert kept["trained_completions"] == [0, 2, 6]
    assert kept["trained_tokens"] == [0, 20, 60]
    assert (kept["kept_completions"], kept["live_completions"]) == (8, 12)
    assert kept["useful_share"] == pytest.approx(0.75)  # of the steps that kept any
    assert kept["kept_advantage_variance"] == pytest.approx(0.8)
