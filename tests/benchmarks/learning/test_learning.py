"""The learning benchmark: its arithmetic on records made by hand, and a whole one in small under the slow marker."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eval.benchmarks.learning import arms, curves, one_run, protocol, tables
from trl_vade.samplers.problems import VariantRows

ROOT = Path(__file__).parents[3]


def record(score, arm="uniform", seed=0, learning_rate=1e-4, stage="runs", **figures):
    """A run of ten generation batches' worth, looked at at the start, half-way and at the end."""
    made = {
        "stage": stage, "regime": "staged", "arm": arm, "learning_rate": learning_rate, "seed": seed, "batches": 10,
        "seconds": 1.0, "machine": "here", "rollouts": [0, 1280, 2560], "score": score, "greedy": score[-1],
        "updates": 10, "refills": 0, "window": [640, 1920], "ratio": [0.5, 0.25], "lift": [1.0, 1.5],
        "all_wrong_late": 0.1, "all_right_late": 0.2, "coverage": 1.0, "top_tenth": 0.1,
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
    heights = np.mean([curves.curve(record([0.0, 0.4, 0.4])), curves.curve(record([0.2, 0.4, 0.4]))], axis=0)
    assert curves.crossing(heights, 0.25) == pytest.approx(0.25)
    assert curves.crossing(heights, 0.05) == 0.0
    assert curves.crossing(heights, 0.5) == float("inf")


def test_differences_are_paired_by_seed_within_one_machine():
    ours = [record([0.5, 0.5, 0.5], "frontier", 0), record([0.9, 0.9, 0.9], "frontier", 1)]
    theirs = [record([0.8, 0.8, 0.8], seed=1), record([0.4, 0.4, 0.4], seed=0), record([0.1, 0.1, 0.1], seed=2)]
    mean, error = curves.paired(ours, theirs, curves.area)
    assert (mean, error) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9))
    elsewhere = [record([0.0, 0.0, 0.0], seed=1, machine="there")]
    assert curves.differences(ours, elsewhere, curves.area) == []


def test_an_interval_holds_the_true_mean_19_times_in_20():
    chance = np.random.default_rng(0)
    ends = [curves.interval(chance.normal(0.3, 1, 8).tolist()) for _ in range(2000)]
    assert np.mean([low <= 0.3 <= high for _, low, high in ends]) == pytest.approx(0.95, abs=0.015)
    assert curves.interval([0.3])[1:] == (-np.inf, np.inf)


def test_the_share_of_rollouts_to_vanillas_final_score_has_an_interval_over_the_pairs():
    theirs = [record([0.2, 0.3, 0.4], seed=seed) for seed in range(8)]
    ours = [record([0.2, 0.4 + 0.02 * (seed - 3.5), 0.5], "frontier", seed) for seed in range(8)]
    share, low, high = curves.share_interval(ours, theirs)
    assert share == pytest.approx(0.5)
    assert 0.4 < low < share < high < 0.65


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


def test_the_table_shows_each_arm_beside_vanilla_with_its_share_of_the_oracles_gain():
    noise = {0: 0.01, 1: -0.01, 2: 0.0}
    records = [record([0.2, 0.3, 0.4], seed=seed) for seed in noise]
    records += [record([0.2, 0.4 + more, 0.5], "frontier", seed) for seed, more in noise.items()]
    records += [record([0.2, 0.5 + more, 0.6], "oracle", seed) for seed, more in noise.items()]
    text = tables.tables(records)
    ours = next(line for line in text.splitlines() if line.startswith("| staged | frontier | 0.0001 | 3 |"))
    assert "| +0.075 (+0.063 to +0.087) |" in ours
    assert "| 50% | 0.50 (" in ours
    assert "of 2 comparisons" in text
    assert "| frontier | 50% | nowhere | staged 50% |" in text


def test_an_arm_whose_vanilla_run_is_still_to_come_is_left_out_of_the_tables():
    records = [record([0.2, 0.3, 0.4], seed=1), record([0.2, 0.4, 0.5], "frontier", 2)]
    text = tables.tables(records)
    assert "| staged | uniform |" in text
    assert "| staged | frontier | 0.0001 |" not in text


def test_the_first_table_shows_the_default_on_the_seeds_that_confirmed_it():
    records = [record([0.2, 0.3, 0.4], seed=seed, stage=stage) for stage in ("runs", "confirm") for seed in range(2)]
    ours = {"runs": 0.6, "confirm": 0.4}
    records += [record([0.2, height, 0.4], arms.DEFAULT, seed, stage=stage) for stage, height in ours.items()
                for seed in range(2)]  # fmt: skip
    [line] = [line for line in tables.main_arms(records).splitlines() if line.startswith("| `staged`")]
    assert "+0.050 (+0.050 to +0.050)" in line
    assert "+0.150" not in line


def test_a_page_has_its_tables_made_anew_and_all_else_as_it_was():
    records = [record([0.2, 0.3 + seed / 100, 0.4], seed=seed) for seed in range(3)]
    records += [record([0.2, 0.4, 0.5 + seed / 100], arms.DEFAULT, seed) for seed in range(3)]
    page = "Before.\n\n<!-- table: main -->\n\nold\n\n<!-- end of table -->\n\nAfter: <!-- table: main -->, unended.\n"
    filled = tables.fill(page, records)
    assert filled.startswith("Before.\n\n<!-- table: main -->\n| situation |")
    assert "\n| `staged`: skills unlock one another | 0.305 | " in filled
    assert filled.endswith("|\n<!-- end of table -->\n\nAfter: <!-- table: main -->, unended.\n")
    assert tables.fill(filled, records) == filled


@pytest.mark.benchmark
@pytest.mark.parametrize("page", ["README.md", "docs/results/learning.md"])
def test_the_tables_of_the_pages_are_those_of_the_records(page):
    text = (ROOT / page).read_text()
    assert "<!-- table: main -->" in text
    assert tables.fill(text, curves.read(ROOT / "eval/learning.jsonl")) == text


def test_the_rule_for_the_default_puts_an_arm_that_loses_anywhere_last():
    records = []
    for seed, noise in enumerate((0.01, -0.01, 0.0)):
        for arm, staged, wide in (
            ("uniform", 0.3, 0.3),
            ("oracle", 0.5, 0.5),
            ("robust", 0.4, 0.3),
            ("dapo", 0.6, 0.2),
        ):
            more = 0.0 if arm == "uniform" else noise
            records += [
                record([0.2, height + more, 0.5], arm, seed, regime=regime)
                for regime, height in (("staged", staged), ("wide", wide))
            ]
    lines = tables.ranking(records).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| robust", "| dapo"]
    assert "| wide |" in lines[1]


def test_a_share_of_the_oracles_gain_is_that_of_the_arms_own_seeds():
    records = [record([0.3, 0.3, 0.3], seed=seed) for seed in range(4)]
    heights = (0.4, 0.41, 0.5, 0.51)  # the oracle wins more on the last two seeds
    records += [record([0.3, height, height], "oracle", seed) for seed, height in enumerate(heights)]
    records += [record([0.3, 0.3 + (height - 0.3) / 2, 0.3 + (height - 0.3) / 2], "robust", seed)
                for seed, height in enumerate(heights[:2])]  # fmt: skip
    assert "| robust | 50% |" in tables.ranking(records)
    assert "| 50% |" in next(line for line in tables.scores(records).splitlines() if "| robust |" in line)


def history():
    """Three steps of two groups, by hand: rows 0 and 1, then twice 1 and 2, of a pool of 20."""
    pool = np.full((2, 20), 0.5)
    return {
        "steps": {
            "sample_index": [np.array([0, 1]), np.array([1, 2]), np.array([1, 2])],
            "has_spread": [np.array([False, False]), np.array([False, True]), np.array([True, True])],
            "successes": [np.array([0.0, 8.0]), np.array([8.0, 4.0]), np.array([8.0, 0.0])],
            "posterior_mean": [np.array([0.5, 0.5]), np.array([0.9, 0.5]), np.array([1.0, 0.5])],
            "refills": [0, 1, 0],
        },
        "evaluations": {
            "step": [0, 3], "rollouts": [0, 48], "score": [0.1, 0.2], "greedy": [0.1, 0.3], "pool_pass_rates": pool,
            "uniform_ratio": [0.4, 0.6],
        },
    }  # fmt: skip


def test_the_figures_of_a_run_worked_by_hand():
    kept = one_run.figures(history(), 20)
    assert kept["ratio"] == [0.5]  # three of six groups have a gradient
    assert kept["lift"] == [1.0]
    assert (kept["updates"], kept["refills"], kept["greedy"]) == (3, 1, 0.3)
    assert (kept["all_wrong_late"], kept["all_right_late"]) == (0.5, 0.5)  # of the last third
    assert kept["coverage"] == 0.15
    assert kept["top_tenth"] == pytest.approx(5 / 6, abs=1e-4)  # the two most visited of 20 rows
    # Beliefs 0.5, 0.5, 0.9, 0.5, 1, 0.5 and outcomes 0, 1, 1, 0.5, 1, 0; the means so far are 0.5, 0.5 and 0.625.
    assert kept["brier"] == pytest.approx((0.25 + 0.25 + 0.01 + 0 + 0 + 0.25) / 6, abs=1e-5)
    assert kept["brier_of_the_mean"] == pytest.approx((0.75 + 0 + 0.375**2 + 0.625**2) / 6, abs=1e-5)
    assert sum(kept["bin_count"]) == 6
    assert kept["bin_came"][5] == pytest.approx((0 + 1 + 0.5 + 0) / 4)


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
        anchors=np.tile([0.2, 0.8], (40, 1)),
        prompts=["What is this?"] * 40,
    )
    if arm == "oracle":
        sampler.set_pass_rates(np.linspace(0, 1, 40))
    assert len(set(sampler.draw(4).sample_index.tolist())) == 4


def run(module, *arguments):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


@pytest.mark.slow
def test_a_benchmark_in_small_is_run_once_and_taken_up_where_it_was(tmp_path):
    results = tmp_path / "results.jsonl"
    plan = protocol.PLANS["staged"]
    tuned = [
        record([0.1, 0.2, 0.4 if rate == plan.rates[1] else 0.3], arm, seed, rate, "tune", batches=plan.batches)
        for arm in ("uniform", "frontier", "oracle")
        for rate in plan.rates
        for seed in protocol.TUNING_SEEDS[arm]
    ]
    results.write_text("".join(json.dumps(line) + "\n" for line in tuned))
    flags = ["--results", results, "--regimes", "staged", "--batches", 2, "--workers", 1, "--seeds", 316, 400]
    flags += ["--arms", arms.DEFAULT, "oracle"]
    module = "eval.benchmarks.learning"
    text = run(module, *flags, "--only", "runs", "confirm", "trainer", "report")
    records = [json.loads(line) for line in results.read_text().splitlines()][len(tuned) :]
    ran = [("runs", "frontier")] + [(stage, "oracle") for stage in ("runs", "confirm")]
    ran += [(stage, arm) for stage in ("runs", "confirm", "trainer") for arm in ("uniform", arms.DEFAULT)]
    assert sorted((r["stage"], r["arm"]) for r in records) == sorted(ran)
    by_arm = {(r["stage"], r["arm"]): r for r in records}
    fast, trainer = by_arm["confirm", arms.DEFAULT], by_arm["trainer", arms.DEFAULT]
    assert trainer["rollouts"][-1] == fast["rollouts"][-1] == 2 * 256
    assert trainer["score"][0] == pytest.approx(fast["score"][0], abs=1e-3)
    assert {fast["machine"], fast["versions"]} == {trainer["machine"], trainer["versions"]}
    assert "| staged | oracle |" in text
    assert {path.name for path in tmp_path.glob("*.png")} == {"learning_benchmark.png", "learning_calibration.png"}


@pytest.mark.slow
def test_the_studies_in_small_run_all_stages(tmp_path):
    results, tuned = tmp_path / "results.jsonl", tmp_path / "tuned.jsonl"
    tuned.write_text(json.dumps(record([0.1, 0.2, 0.3], "frontier", stage="tune", learning_rate=2e-4)) + "\n")
    flags = [
        "--results",
        results,
        "--regimes",
        "staged",
        "--batches",
        2,
        "--rates",
        2e-4,
        "--seeds",
        0,
        "--workers",
        1,
    ]
    flags += ["--tuned", tuned, "--arms", "frontier + d3s", "frontier + kl", "--only", "kl", "thin_tune", "thin"]
    run("eval.benchmarks.learning.studies", *flags, "report")
    records = [json.loads(line) for line in results.read_text().splitlines()]
    assert [record["stage"] for record in records] == ["kl", "thin_tune", "thin"]
    assert 0 < records[-1]["trained_tokens"][-1] < records[-1]["tokens"][-1]
    assert records[0]["kl"][0] == 0
