"""The learning benchmark: its arithmetic on records made by hand, and a whole one in small."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eval.benchmarks.learning import arms, curves, one_run, protocol, tables, trainer_run
from eval.benchmarks.learning.arms import Arm
from eval.benchmarks.learning.protocol import PLANS, ROLES
from tests.support.refusals import refused

ROOT = Path(__file__).parents[3]


def record(score, arm="vanilla, 64 x 4", seed=0, learning_rate=1e-4, stage="runs", **figures):
    """A run of ten generation batches' worth, looked at at the start, half-way and at the end."""
    made = {
        "stage": stage, "regime": "staged", "arm": arm, "learning_rate": learning_rate, "seed": seed, "batches": 10,
        "seconds": 1.0, "machine": "here", "versions": "", "rollouts": [0, 1280, 2560], "tokens": [0, 8000, 12000],
        "trained": [0, 500, 1000], "score": score,
        "brier": 0.1, "brier_of_the_mean": 0.2,
        "bin_count": [30] * 10, "bin_belief": [0.05] * 10, "bin_came": [0.06] * 10,
    }  # fmt: skip
    return made | figures


def test_curves_are_read_at_the_budget_and_cross_a_level_where_their_mean_does():
    assert curves.area(record([0.2, 0.4, 0.4])) == pytest.approx((0.3 + 0.4) / 2)
    late = record([0.2, 0.4, 0.8]) | {"rollouts": [0, 1280, 3840]}
    assert curves.score_at(late, 1.0) == curves.curve(late)[-1] == pytest.approx(0.6)
    heights = np.mean([curves.curve(record([0.0, 0.4, 0.4])), curves.curve(record([0.2, 0.4, 0.4]))], axis=0)
    assert [curves.crossing(heights, level) for level in (0.25, 0.05, 0.5)] == [pytest.approx(0.25), 0, float("inf")]


def test_differences_are_paired_by_seed_within_one_machine():
    ours = [record([0.5, 0.5, 0.5], "default, 64 x 4", 0), record([0.9, 0.9, 0.9], "default, 64 x 4", 1)]
    theirs = [record([0.8, 0.8, 0.8], seed=1), record([0.4, 0.4, 0.4], seed=0), record([0.1, 0.1, 0.1], seed=2)]
    assert curves.differences(ours, theirs, curves.area) == pytest.approx([0.1, 0.1])
    assert curves.differences(ours, [record([0.0] * 3, seed=1, machine="there")], curves.area) == []


def test_an_interval_holds_the_true_mean_19_times_in_20():
    chance = np.random.default_rng(0)
    ends = [curves.interval(chance.normal(0.3, 1, 8).tolist()) for _ in range(2000)]
    assert np.mean([low <= 0.3 <= high for _, low, high in ends]) == pytest.approx(0.95, abs=0.015)
    assert curves.interval([0.3])[1:] == (-np.inf, np.inf)
    theirs = [record([0.2, 0.3, 0.4], seed=seed) for seed in range(8)]
    ours = [record([0.2, 0.4 + 0.02 * (seed - 3.5), 0.5], "default, 64 x 4", seed) for seed in range(8)]
    share, low, high = curves.share_interval(ours, theirs)
    assert share == pytest.approx(0.5)
    assert 0.4 < low < share < high < 0.65
    costly = [[run | {"cost": [0, each, 2 * each]} for run in runs] for runs, each in ((ours, 3), (theirs, 1))]
    assert curves.share_interval(*costly, "cost")[0] == np.inf
    assert curves.share_interval(*costly, "cost", up_to=4)[0] == pytest.approx(1.5)


def test_the_tables_show_each_arm_beside_vanilla_and_what_it_spends(monkeypatch):
    of = {role: (Arm.of("default, 64 x 4" if role == tables.BEST else "vanilla, 64 x 4"), 1e-4) for role in ROLES}
    monkeypatch.setattr(tables, "frozen", lambda: [("staged", of)])
    noise = {0: 0.01, 1: -0.01, 2: 0.0}
    records = [record([0.2, 0.3, 0.4], seed=seed) for seed in noise]
    ours = {"trained": [0, 2000, 3840]}
    records += [record([0.2, 0.4 + more, 0.5], "default, 64 x 4", seed, **ours) for seed, more in noise.items()]
    (line,) = tables.main_arms(records).splitlines()[2:]
    cells = line.split(" | ")
    assert cells[:3] == ["| `staged`", "3", "0.300"]
    assert cells[3] == "+0.000 (+0.000 to +0.000)"
    assert cells[2 + [*ROLES].index(tables.BEST)] == "+0.075 (+0.063 to +0.087) |"
    for line in tables.choices(records).splitlines()[2:]:  # the regime's, and the mean of it alone
        assert [cell[:6] for cell in line.split(" | ")[1:]] == ["+0.000", "+0.000", "+0.075", "+0.000", "-0.075"]
    cells = ["`staged`: long sums build on short ones", "50%", "+0.075 ± 0.012", "+0.000 ± 0.000", "0.300"]
    assert tables.short(records).splitlines()[2] == f"| {' | '.join(cells)} |"
    line = tables.costs(records).splitlines()[-1]  # 1280 rollouts of 2560; with 2000 trained, of 1000; 8,000 tokens
    shares = [float(cell.split(" ")[0]) for cell in line.split(" | ")[1:]]
    assert shares == pytest.approx([0.5, (1280 + 600) / (2560 + 300), (1280 + 2000) / (2560 + 1000), 8 / 12], abs=0.01)


@pytest.mark.benchmark
def test_the_tables_of_the_pages_are_those_of_the_records():
    records = curves.read(ROOT / "eval/learning.jsonl")
    for page in ("docs/results/learning.md", "README.md"):
        text = (ROOT / page).read_text()
        assert "<!-- table: short -->" in text
        assert tables.fill(text, records) == text


def test_the_figures_of_a_run_worked_by_hand():
    """Three steps of two groups: rows 0 and 1, then twice 1 and 2, of a pool of 20."""
    history = {
        "steps": {
            "sample_index": [np.array([0, 1]), np.array([1, 2]), np.array([1, 2])],
            "has_spread": [np.array([False, False]), np.array([False, True]), np.array([True, True])],
            "successes": [np.array([0.0, 8.0]), np.array([8.0, 4.0]), np.array([8.0, 0.0])],
            "trials": [np.full(2, 8.0)] * 3,
            "posterior_mean": [np.array([0.5, 0.5]), np.array([0.9, 0.5]), np.array([1.0, 0.5])],
            "rollouts": [16, 32, 48],
            "replayed": [0, 1, 2],
            "clipped": [0.0, 0.1, 0.2],
        },
        "evaluations": {
            "step": [0, 3], "rollouts": [0, 48], "trained": [0, 24], "tokens": [0, 96], "score": [0.1, 0.2],
            "greedy": [0.1, 0.3], "uniform_ratio": [0.4, 0.6],
        },
    }  # fmt: skip
    kept = one_run.figures(history, 20)
    assert (kept["ratio"], kept["lift"]) == ([0.5], [1.0])  # three of six groups have a gradient
    assert (kept["updates"], kept["replayed"], kept["clipped"], kept["greedy"]) == (3, 1.0, 0.1, 0.3)
    assert (kept["all_wrong_late"], kept["all_right_late"]) == (0.5, 0.5)  # of the last third
    assert (kept["coverage"], kept["top_tenth"]) == (0.15, pytest.approx(5 / 6, abs=1e-4))
    # Beliefs 0.5, 0.5, 0.9, 0.5, 1, 0.5 and outcomes 0, 1, 1, 0.5, 1, 0; the means so far are 0.5, 0.5 and 0.625.
    assert kept["brier"] == pytest.approx((0.25 + 0.25 + 0.01 + 0 + 0 + 0.25) / 6, abs=1e-5)
    assert kept["brier_of_the_mean"] == pytest.approx((0.75 + 0 + 0.375**2 + 0.625**2) / 6, abs=1e-5)
    assert kept["bin_came"][5] == pytest.approx((0 + 1 + 0.5 + 0) / 4)


def test_an_arm_that_reads_no_words_has_its_runs_in_nameless_too(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(record([0, 1, 1], f"{arm}, 64 x 4")) + "\n" for arm in ("vanilla", "default")))
    assert [(r["regime"], r["arm"]) for r in curves.read(path)][2:] == [("nameless", "vanilla, 64 x 4")]


def test_no_regime_has_changed_since_it_was_frozen_and_a_changed_one_is_refused(monkeypatch):
    protocol.check_frozen(PLANS)
    monkeypatch.setitem(protocol.REGIMES, "wide", dataclasses.replace(protocol.REGIMES["wide"], temperature=0.7))
    with refused(ValueError, ["wide"], ["frozen.json"]):
        protocol.check_frozen(PLANS)


@pytest.mark.parametrize("name", ["vanilla, 128 x 2", "oracle, 64 x 4, passes 2", "default, 4 x 4, replay 8"])
def test_an_arm_is_its_name_and_makes_a_sampler_that_draws_again_after_it_has_seen_outcomes(name):
    arm = Arm.of(name)
    assert str(arm) == name
    sampler = arms.sampler_of(arm, 40, seed=1, prompts=[f"What is {word}?" for word in ("this", "that")] * 20)
    for _ in range(3):
        rows = sampler.draw(4).sample_index
        assert len({*rows.tolist()}) == 4
        sampler.observe(rows, [0, 4, 8, 2], [8.0] * 4, np.array([False, True, False, True]))


@pytest.mark.slow
def test_a_benchmark_in_small(tmp_path):
    results = tmp_path / "results.jsonl"
    flags = ["--results", results, "--regimes", "staged", "--batches", 2, "--workers", 1, "--only", "tune", "report"]
    command = [sys.executable, "-m", "eval.benchmarks.learning", *map(str, flags), "--seeds", "810"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=ROOT)
    assert finished.returncode == 0, finished.stderr[-3000:]
    records = [json.loads(line) for line in results.read_text().splitlines()]
    assert len({protocol.key(each) for each in records}) == len(records) == 2
    run = one_run.run("staged", "default, 64 x 4, passes 2, replay 4", 1e-3, 810, 3, evaluate_every=1)
    assert run["rollouts"] == [0, 256, 512, 768]
    assert 0 < run["trained"][-1] <= 2 * 768
    assert run["kl"] > 0.0 == run["kl_before"]
    assert run["entropy"] > 0
    assert run["length"] > 2
    trainer = trainer_run.run("staged", "default, 64 x 4, passes 2", 1e-3, 810, 2, evaluate_every=1)
    assert trainer["rollouts"] == [0, 256, 512]
    assert trainer["score"][0] == pytest.approx(run["score"][0], abs=1e-3)
