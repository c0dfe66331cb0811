"""The learning benchmark: its arithmetic and its plan on records made by hand, and a whole one in small."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eval.benchmarks.learning import arms, curves, one_run, protocol, tables
from eval.benchmarks.learning.protocol import PLANS, STAGES
from tests.support.refusals import refused

ROOT = Path(__file__).parents[3]
RATES = PLANS["staged"].rates


def record(score, arm="vanilla", seed=0, learning_rate=1e-4, stage="runs", **figures):
    """A run of ten generation batches' worth, looked at at the start, half-way and at the end."""
    made = {
        "stage": stage, "regime": "staged", "arm": arm, "learning_rate": learning_rate, "seed": seed, "batches": 10,
        "seconds": 1.0, "machine": "here", "rollouts": [0, 1280, 2560], "tokens": [0, 8000, 12000], "score": score,
        "brier": 0.1, "brier_of_the_mean": 0.2,
        "bin_count": [30] * 10, "bin_belief": [0.05] * 10, "bin_came": [0.06] * 10,
    }  # fmt: skip
    return made | figures


# --------------------------------------------------------------------------------------------------- the arithmetic


def test_curves_are_read_at_the_budget_and_cross_a_level_where_their_mean_does():
    assert curves.area(record([0.2, 0.4, 0.4])) == pytest.approx((0.3 + 0.4) / 2)
    late = record([0.2, 0.4, 0.8]) | {"rollouts": [0, 1280, 3840]}
    assert curves.score_at(late, 1.0) == curves.curve(late)[-1] == pytest.approx(0.6)
    heights = np.mean([curves.curve(record([0.0, 0.4, 0.4])), curves.curve(record([0.2, 0.4, 0.4]))], axis=0)
    assert [curves.crossing(heights, level) for level in (0.25, 0.05, 0.5)] == [pytest.approx(0.25), 0, float("inf")]


def test_differences_are_paired_by_seed_within_one_machine():
    ours = [record([0.5, 0.5, 0.5], "frontier", 0), record([0.9, 0.9, 0.9], "frontier", 1)]
    theirs = [record([0.8, 0.8, 0.8], seed=1), record([0.4, 0.4, 0.4], seed=0), record([0.1, 0.1, 0.1], seed=2)]
    assert curves.differences(ours, theirs, curves.area) == pytest.approx([0.1, 0.1])
    assert curves.differences(ours, [record([0.0] * 3, seed=1, machine="there")], curves.area) == []


def test_an_interval_holds_the_true_mean_19_times_in_20():
    chance = np.random.default_rng(0)
    ends = [curves.interval(chance.normal(0.3, 1, 8).tolist()) for _ in range(2000)]
    assert np.mean([low <= 0.3 <= high for _, low, high in ends]) == pytest.approx(0.95, abs=0.015)
    assert curves.interval([0.3])[1:] == (-np.inf, np.inf)
    theirs = [record([0.2, 0.3, 0.4], seed=seed) for seed in range(8)]
    ours = [record([0.2, 0.4 + 0.02 * (seed - 3.5), 0.5], "frontier", seed) for seed in range(8)]
    share, low, high = curves.share_interval(ours, theirs)
    assert share == pytest.approx(0.5)
    assert 0.4 < low < share < high < 0.65


def test_the_tables_show_each_arm_beside_vanilla_and_what_it_spends(monkeypatch):
    monkeypatch.setattr(tables, "best_batch", lambda records, regime: "vanilla")
    noise = {0: 0.01, 1: -0.01, 2: 0.0}
    records = [record([0.2, 0.3, 0.4], seed=seed) for seed in noise]
    records += [record([0.2, 0.4 + more, 0.5], "balanced", seed) for seed, more in noise.items()]
    records += [record([0.2, 0.4, 0.5], "paper", 7)]  # its vanilla run is still to come
    (line,) = tables.main_arms(records).splitlines()[2:]
    cells = line.split(" | ")
    assert cells[:3] == ["| `staged`: skills unlock one another", "3", "0.300"]
    assert cells[3:] == ["+0.000 (+0.000 to +0.000)", "-", "+0.075 (+0.063 to +0.087) |"]
    (line,) = tables.costs(records).splitlines()[2:]
    assert [cell.split(" ")[0] for cell in line.split(" | ")[2:4]] == ["0.50", "0.67"]  # 8,000 of 12,000 tokens


@pytest.mark.benchmark
@pytest.mark.parametrize("page", ["README.md", "docs/results/learning.md"])
def test_the_tables_of_the_pages_are_those_of_the_records(page):
    text = (ROOT / page).read_text()
    assert "<!-- table: short -->" in text or "<!-- table: main -->" in text
    assert tables.fill(text, curves.read(ROOT / "eval/learning.jsonl")) == text


def test_the_figures_of_a_run_worked_by_hand():
    """Three steps of two groups: rows 0 and 1, then twice 1 and 2, of a pool of 20."""
    history = {
        "steps": {
            "sample_index": [np.array([0, 1]), np.array([1, 2]), np.array([1, 2])],
            "has_spread": [np.array([False, False]), np.array([False, True]), np.array([True, True])],
            "successes": [np.array([0.0, 8.0]), np.array([8.0, 4.0]), np.array([8.0, 0.0])],
            "posterior_mean": [np.array([0.5, 0.5]), np.array([0.9, 0.5]), np.array([1.0, 0.5])],
            "refills": [0, 1, 0],
        },
        "evaluations": {
            "step": [0, 3], "rollouts": [0, 48], "tokens": [0, 96], "score": [0.1, 0.2], "greedy": [0.1, 0.3],
            "uniform_ratio": [0.4, 0.6],
        },
    }  # fmt: skip
    kept = one_run.figures(history, 20, 8)
    assert (kept["ratio"], kept["lift"]) == ([0.5], [1.0])  # three of six groups have a gradient
    assert (kept["updates"], kept["refills"], kept["greedy"]) == (3, 1, 0.3)
    assert (kept["all_wrong_late"], kept["all_right_late"]) == (0.5, 0.5)  # of the last third
    assert (kept["coverage"], kept["top_tenth"]) == (0.15, pytest.approx(5 / 6, abs=1e-4))
    # Beliefs 0.5, 0.5, 0.9, 0.5, 1, 0.5 and outcomes 0, 1, 1, 0.5, 1, 0; the means so far are 0.5, 0.5 and 0.625.
    assert kept["brier"] == pytest.approx((0.25 + 0.25 + 0.01 + 0 + 0 + 0.25) / 6, abs=1e-5)
    assert kept["brier_of_the_mean"] == pytest.approx((0.75 + 0 + 0.375**2 + 0.625**2) / 6, abs=1e-5)
    assert kept["bin_came"][5] == pytest.approx((0 + 1 + 0.5 + 0) / 4)


# --------------------------------------------------------------------------------------------------------- the plan


def runs(stage, arm, rate, seeds, height=0.5, machine="here"):
    figures = {"machine": machine, "rollouts": [0, 30720], "score": [height, height]}
    return [protocol.task(stage, "staged", arm, rate, seed) | figures for seed in seeds]


def tuned(*arms, best=1, height=0.6):
    """Records after which the rate in this place is the best one."""
    found = []
    for arm in arms:
        seeds = STAGES["tune"].seeds if arm in STAGES["tune"].arms else protocol.EARLIER
        for at, rate in enumerate(RATES):
            found += runs("tune", arm, rate, seeds, height if at == best else 0.5)
    return found


def lacking(stage, records, *arms):
    return protocol.tasks(stage, records, "here", regimes=["staged"], arms=arms)


def test_tuning_goes_on_until_the_best_rate_has_worse_neighbours_on_all_seeds():
    found = lacking("tune", [], "vanilla", "balanced")
    assert {(t["arm"], t["learning_rate"], t["seed"]) for t in found} == {
        (arm, rate, seed) for arm in ("vanilla", "balanced") for rate in RATES for seed in STAGES["tune"].seeds
    }
    for best, more in ((0, RATES[0] / 2), (2, RATES[2] * 2)):
        assert {t["learning_rate"] for t in lacking("tune", tuned("balanced", best=best), "balanced")} == {more}
        assert protocol.best_rate(tuned("balanced", best=best), "staged", "balanced") is None
    assert protocol.best_rate(tuned("balanced")[:-1], "staged", "balanced") is None
    assert lacking("tune", tuned("balanced"), "balanced") == []
    assert protocol.best_rate(tuned("balanced"), "staged", "balanced") == RATES[1]
    with refused(ValueError, ["'balanced'", "staged"], ["tune"]):
        lacking("runs", tuned("vanilla"), "balanced")


def test_runs_come_seed_by_seed_and_each_has_its_vanilla_run_on_the_same_machine():
    seeds = STAGES["runs"].seeds
    records = tuned("vanilla", "vanilla, 16 x 16", "balanced", "paper") + tuned("vanilla, 64 x 4", height=0.7)
    found = lacking("runs", records, "vanilla", "vanilla, best batch", "balanced")
    assert [t["seed"] for t in found] == sorted(t["seed"] for t in found)
    assert {t["arm"] for t in found} == {"vanilla", "vanilla, 64 x 4", "balanced"}  # the best of three shapes
    records += runs("runs", "vanilla", RATES[1], seeds, machine="there")
    records += runs("runs", "balanced", RATES[1], seeds, machine="there")
    assert lacking("runs", records, "vanilla", "balanced") == []
    assert [t["arm"] for t in lacking("runs", records, "paper") if t["seed"] == seeds[0]] == ["vanilla", "paper"]
    used = [{*stage.seeds} for name, stage in STAGES.items() if name != "trainer"]
    assert sum(map(len, used)) == len(set().union(*used))
    assert not set().union(*used) & {*range(432, 464)}


def test_an_arm_that_reads_no_words_has_its_runs_in_nameless_too(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(record([0, 1, 1], arm)) + "\n" for arm in ("vanilla", "balanced")))
    assert [(r["regime"], r["arm"]) for r in curves.read(path)][2:] == [("nameless", "vanilla")]


def test_no_regime_has_changed_since_it_was_frozen_and_a_changed_one_is_refused(monkeypatch):
    protocol.check_frozen(PLANS)
    monkeypatch.setitem(protocol.REGIMES, "wide", dataclasses.replace(protocol.REGIMES["wide"], temperature=0.7))
    with refused(ValueError, ["wide"], ["frozen.json"]):
        protocol.check_frozen(PLANS)


# ---------------------------------------------------------------------------------------------------------- the runs


def test_every_arm_makes_a_sampler_that_draws_again_after_it_has_seen_outcomes():
    prompts = [f"What is {word}?" for word in ("this", "that") for _ in range(20)]
    for arm in arms.ARMS:
        sampler = arms.sampler_of(arm, 40, num_groups=4, seed=1, prompts=prompts)
        for _ in range(3):
            rows = sampler.draw(4).sample_index
            assert len({*rows.tolist()}) == 4, arm
            sampler.observe(rows, [0, 4, 8, 2], [8.0] * 4, np.array([False, True, False, True]))


@pytest.mark.slow
def test_a_benchmark_in_small_is_run_once_and_taken_up_where_it_was(tmp_path):
    results = tmp_path / "results.jsonl"
    done = [{**one, "seconds": 1.0} for one in tuned("vanilla", "vanilla, 16 x 16", "vanilla, 64 x 4", "balanced")]
    results.write_text("".join(json.dumps(line) + "\n" for line in done))
    flags = ["--results", results, "--regimes", "staged", "--batches", 2, "--workers", 1, "--seeds", 700, 500]
    flags += ["--arms", "vanilla", "balanced", "column of a weaker one"]
    flags += ["--only", "runs", "column", "trainer", "report"]
    command = [sys.executable, "-m", "eval.benchmarks.learning", *map(str, flags)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr[-3000:]
    records = [json.loads(line) for line in results.read_text().splitlines()][len(done) :]
    by_arm = {(r["stage"], r["arm"]): r for r in records}
    ran = [(stage, arm) for stage in ("runs", "column", "trainer") for arm in ("vanilla", "balanced")]
    ran += [("column", "column of a weaker one")]
    assert sorted(by_arm) == sorted(ran)
    fast, trainer = by_arm["runs", "balanced"], by_arm["trainer", "balanced"]
    assert trainer["rollouts"][-1] == fast["rollouts"][-1] == 2 * 256
    assert trainer["score"][0] == pytest.approx(fast["score"][0], abs=1e-3)
    assert fast["tokens"][-1] > fast["rollouts"][-1]
