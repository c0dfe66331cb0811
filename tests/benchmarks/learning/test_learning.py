"""The learning benchmark: its arithmetic on records made by hand, and a whole one in small under the slow marker."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eval.benchmarks.learning import arms, curves, one_run, tables
from trl_vade.samplers.variants import VariantRows

ROOT = Path(__file__).parents[3]


def record(score, arm="uniform", seed=0, learning_rate=1e-4, stage="main", **figures):
    """A run of ten generation batches' worth, looked at at the start, half-way and at the end."""
    made = {
        "stage": stage, "regime": "staged", "arm": arm, "learning_rate": learning_rate, "seed": seed, "batches": 10,
        "seconds": 1.0, "rollouts": [0, 1280, 2560], "score": score, "greedy": score,
        "updates": [0, 5, 10], "window": [640, 1920],
        "ratio": [0.5, 0.25], "lift": [1.0, 1.5], "grad_norm": [1.0, 2.0],
        "chosen_impossible": [0.1, 0.2], "chosen_mastered": [0.0, 0.1], "coverage": 1.0, "top_tenth": 0.1,
        "band_before": {"impossible": None, "frontier": 0.5, "mastered": 1.0},
        "band_after": {"impossible": None, "frontier": 0.7, "mastered": 0.9},
        "brier": 0.1, "brier_of_the_mean": 0.2,
        "bin_count": [30] * 10, "bin_belief": [0.05] * 10, "bin_came": [0.06] * 10,
    }  # fmt: skip
    return made | figures


def test_the_area_is_the_mean_height_of_the_score_over_the_rollouts():
    assert curves.area(record([0.2, 0.4, 0.4])) == pytest.approx((0.3 + 0.4) / 2)


def test_a_run_that_overshoots_its_budget_is_read_at_the_budget():
    late = record([0.2, 0.4, 0.8]) | {"rollouts": [0, 1280, 3840]}
    assert curves.score_at(late, 1.0) == pytest.approx(0.6)
    assert curves.curve(late)[-1] == pytest.approx(0.6)


def test_a_level_is_reached_where_the_mean_curve_crosses_it():
    runs = [record([0.0, 0.4, 0.4]), record([0.2, 0.4, 0.4], seed=1)]
    assert curves.rollouts_to(runs, 0.25) == pytest.approx(0.25)
    assert curves.rollouts_to(runs, 0.05) == 0.0
    assert curves.rollouts_to(runs, 0.5) is None


def test_differences_are_paired_by_seed():
    ours = [record([0.5, 0.5, 0.5], "frontier", 0), record([0.9, 0.9, 0.9], "frontier", 1)]
    theirs = [record([0.8, 0.8, 0.8], seed=1), record([0.4, 0.4, 0.4], seed=0), record([0.1, 0.1, 0.1], seed=2)]
    mean, error = curves.paired(ours, theirs, curves.area)
    assert (mean, error) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9))


def test_the_standard_error_is_that_of_a_mean():
    assert curves.mean_and_error([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert np.isnan(curves.mean_and_error([1.0])[1])


def test_each_arm_goes_on_at_the_learning_rate_with_the_largest_area():
    records = [
        record([0.1, 0.2, 0.9], learning_rate=1e-4),
        record([0.1, 0.6, 0.7], learning_rate=2e-4),
        record([0.1, 0.9, 0.9], "frontier", learning_rate=1e-4),
        record([0.1, 0.2, 0.2], "frontier", learning_rate=2e-4),
    ]
    assert curves.best_rates(records, "staged") == {"uniform": 2e-4, "frontier": 1e-4}


def test_arms_with_variants_share_the_learning_rate_that_is_best_on_average():
    tune = [
        record([0.1, 0.2, 0.9], learning_rate=1e-4, stage="hinted_tune"),
        record([0.1, 0.3, 0.9], learning_rate=2e-4, stage="hinted_tune"),
        record([0.1, 0.9, 0.9], "frontier", learning_rate=1e-4, stage="hinted_tune"),
        record([0.1, 0.2, 0.2], "frontier", learning_rate=2e-4, stage="hinted_tune"),
    ]
    assert curves.shared_rate(tune, "staged") == 1e-4
    runs = [record([0.1, 0.2, 0.3], learning_rate=rate, stage="hinted") for rate in (1e-4, 2e-4)]
    assert curves.at_best_rates([*tune, *runs]) == [*tune, runs[0]]


def test_runs_at_a_rate_that_further_tuning_has_ruled_out_are_left_out():
    tune = [record([0.1, 0.2, 0.2], learning_rate=rate, stage="tune") for rate in (1e-4, 2e-4)]
    tune += [record([0.1, 0.4, 0.9], seed=1, learning_rate=2e-4, stage="tune")]
    main = [record([0.1, 0.2, 0.3], learning_rate=rate) for rate in (1e-4, 2e-4)]
    other = record([0.1, 0.2, 0.3], "oracle", learning_rate=1e-4, stage="more")
    assert curves.at_best_rates([*tune, *main, other]) == [*tune, main[1], other]


def test_the_tables_show_each_arm_beside_uniform():
    records = [record([0.2, 0.3, 0.4], seed=seed) for seed in (0, 1)]
    records += [record([0.2, 0.4, 0.5], "frontier", seed) for seed in (0, 1)]
    text = tables.tables(records)
    ours = next(line for line in text.splitlines() if line.startswith("| frontier |"))
    assert "| 0.3750 ± 0.0000 | +0.0750 ± 0.0000 |" in ours
    assert ours.endswith("| 0.50 |")
    assert "| 0.50 > 0.70 | 1.00 > 0.90 |" in text


def history():
    """Two steps of two groups, by hand: rows 0 and 1, then 1 and 2, of a pool of 20."""
    pool = np.full((2, 20), 0.5)
    pool[:, 0], pool[0, 1], pool[1, 1] = 0.0, 0.99, 1.0
    return {
        "steps": {
            "sample_index": [np.array([0, 1]), np.array([1, 2])],
            "has_spread": [np.array([False, False]), np.array([False, True])],
            "successes": [np.array([0.0, 8.0]), np.array([8.0, 4.0])],
            "posterior_mean": [np.array([0.5, 0.5]), np.array([0.9, 0.5])],
            "grad_norm": [1.0, 3.0],
            "refills": [0, 1],
        },
        "evaluations": {
            "step": [0, 2], "rollouts": [0, 32], "score": [0.1, 0.2], "greedy": [0.1, 0.3], "pool_pass_rates": pool,
        },
    }  # fmt: skip


def test_the_figures_of_a_run_worked_by_hand():
    kept = one_run.figures(history())
    assert kept["ratio"] == [0.25]  # one of four groups is mixed
    assert kept["refills"] == 1
    assert kept["grad_norm"] == [2.0]
    mixed = 1 - 2 * 0.5**8
    uniform = [(18 * mixed + 1 - 0.99**8) / 20, 18 * mixed / 20]
    assert kept["uniform_ratio"] == pytest.approx(uniform, abs=1e-4)
    assert kept["lift"] == [pytest.approx(0.25 / np.mean(uniform), abs=1e-3)]
    assert kept["chosen_impossible"] == [0.25]
    assert kept["chosen_mastered"] == [0.5]
    assert kept["band_share"] == {"impossible": 0.05, "frontier": 0.9, "mastered": 0.05}
    assert kept["coverage"] == 0.15
    assert kept["top_tenth"] == 0.75  # the two most visited of 20 rows have three of four slots
    # Beliefs 0.5, 0.5, 0.9, 0.5 and outcomes 0, 1, 1, 0.5; the mean so far is 0.5 at first, then also 0.5.
    assert kept["brier"] == pytest.approx((0.25 + 0.25 + 0.01 + 0) / 4)
    assert kept["brier_of_the_mean"] == pytest.approx((0.25 + 0.25 + 0.25 + 0) / 4)
    assert sum(kept["bin_count"]) == 4
    assert kept["bin_came"][5] == pytest.approx(0.5)


@pytest.mark.parametrize("arm", arms.ARMS)
def test_every_arm_makes_a_sampler(arm):
    variants = VariantRows(np.tile(np.arange(20), 2), np.repeat([0, 1], 20), ("original", "hint-1"))
    sampler = arms.sampler_of(
        arm,
        40,
        num_groups=4,
        num_generations=8,
        seed=1,
        labels=["a", "b"] * 20,
        variants=variants if arms.settings(arm, 1).vade_variants else None,
    )
    if arm == "oracle":
        sampler.set_pass_rates(np.linspace(0, 1, 40))
    assert len(set(sampler.draw(4).sample_index.tolist())) == 4


def run(*arguments):
    command = [sys.executable, "-m", "eval.benchmarks.learning", *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


@pytest.mark.slow
def test_a_benchmark_in_small_runs_all_stages_once_and_is_taken_up_where_it_was(tmp_path):
    results = tmp_path / "results.jsonl"
    flags = ["--results", results, "--regimes", "staged", "--batches", 2, "--rates", 2e-4, "--tuning_seeds", 0]
    flags += ["--seeds", 0, "--more_seeds", 0, "--trainer_seeds", 0, "--workers", 1]
    run(*flags, "--arms", "frontier", "oracle", "frontier + d3s", "frontier + kl")
    records = [json.loads(line) for line in results.read_text().splitlines()]
    stages = ["tune", "main", "more", "trainer", "kl", "thin_tune", "thin"]
    assert [r["stage"] for r in records] == stages
    by_arm = {(r["stage"], r["arm"]): r for r in records}
    assert by_arm["main", "frontier"]["rollouts"][-1] == 2 * 256
    fast, trainer = by_arm["main", "frontier"], by_arm["trainer", "frontier"]
    assert trainer["rollouts"][-1] == fast["rollouts"][-1]
    thinned = by_arm["thin", "frontier + d3s"]
    assert 0 < thinned["trained_tokens"][-1] < thinned["tokens"][-1]
    assert by_arm["kl", "frontier + kl"]["kl"][0] == 0
    assert trainer["score"][0] == pytest.approx(fast["score"][0], abs=1e-3)
    assert "runs to do" in run(*flags, "--arms", "frontier", "--only", "main")
    assert len(results.read_text().splitlines()) == len(records)
    assert {path.name for path in tmp_path.glob("*.png")} == {"learning_benchmark.png", "learning_details.png"}
