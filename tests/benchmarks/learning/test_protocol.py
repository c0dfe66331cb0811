"""What the learning benchmark runs, and when: learning rates, seeds, machines, frozen regimes."""

import dataclasses

import pytest

from eval.benchmarks.learning import protocol
from eval.benchmarks.learning.protocol import PLANS, TUNING_SEEDS, tasks
from tests.support.refusals import refused

RATES = PLANS["staged"].rates


def runs(stage, arm, rate, seeds, height=0.5, machine="here"):
    return [
        {**protocol.task(stage, "staged", arm, rate, seed), "machine": machine, "rollouts": [0, 30720],
         "score": [height, height]}
        for seed in seeds
    ]  # fmt: skip


def tuned(*arms, best=1):
    """Records after which the rate in the middle is the best one."""
    return [
        record
        for arm in arms
        for place, rate in enumerate(RATES)
        for record in runs("tune", arm, rate, TUNING_SEEDS[arm], 0.6 if place == best else 0.5)
    ]


def lacking(stage, records, *arms, machine="here"):
    return tasks(stage, records, machine, regimes=["staged"], arms=arms)


def test_tuning_begins_with_the_grid_on_all_tuning_seeds():
    found = lacking("tune", [], "uniform", "mopps")
    assert {(t["arm"], t["learning_rate"], t["seed"]) for t in found} == {
        (arm, rate, seed) for arm in ("uniform", "mopps") for rate in RATES for seed in TUNING_SEEDS[arm]
    }
    assert found[0]["arm"] == "uniform"


@pytest.mark.parametrize(("best", "more"), [(0, RATES[0] / 2), (2, RATES[2] * 2)])
def test_tuning_goes_on_beyond_the_grid_while_the_best_rate_is_at_its_edge(best, more):
    found = lacking("tune", tuned("frontier", best=best), "frontier")
    assert {t["learning_rate"] for t in found} == {more}
    assert protocol.best_rate(tuned("frontier", best=best), "staged", "frontier") is None


def test_tuning_ends_where_the_best_rate_has_worse_neighbours():
    assert lacking("tune", tuned("frontier"), "frontier") == []
    assert protocol.best_rate(tuned("frontier"), "staged", "frontier") == RATES[1]


def test_a_rate_counts_only_once_all_tuning_seeds_have_run_it():
    assert protocol.best_rate(tuned("frontier")[:-1], "staged", "frontier") is None


def test_an_arm_without_a_learning_rate_is_not_run():
    with refused(ValueError, ["'frontier'", "staged"], ["tune"]):
        lacking("runs", [], "frontier")


def test_runs_come_seed_by_seed_and_others_than_the_main_arms_on_half_of_the_seeds():
    found = lacking("runs", tuned("uniform", "frontier", "mopps"), "uniform", "frontier", "mopps")
    seeds = [t["seed"] for t in found]
    assert seeds == sorted(seeds)
    assert [sum(t["arm"] == arm for t in found) for arm in ("uniform", "frontier", "mopps")] == [32, 32, 16]


def test_a_seed_that_was_run_on_another_machine_is_not_run_again():
    records = tuned("uniform", "frontier")
    done = runs("runs", "uniform", RATES[1], [300], machine="there")
    done += runs("runs", "frontier", RATES[1], [300], machine="there")
    assert min(t["seed"] for t in lacking("runs", records + done, "uniform", "frontier")) == 301


def test_an_arm_that_another_machine_left_out_is_run_beside_vanilla_on_this_one():
    records = tuned("uniform", "frontier", "mopps")
    done = [
        record
        for arm in ("uniform", "frontier")
        for record in runs("runs", arm, RATES[1], range(300, 332), machine="there")
    ]
    found = lacking("runs", records + done, "mopps")
    assert [t["arm"] for t in found if t["seed"] == 300] == ["mopps", "uniform", "frontier"]


def test_ablations_have_the_learning_rate_of_the_papers_rule():
    records = tuned("uniform", "frontier", "paper")
    (found, *_) = [t for t in lacking("runs", records, "paper, greedy") if t["arm"] == "paper, greedy"]
    assert found["learning_rate"] == RATES[1]


def test_no_regime_has_changed_since_it_was_frozen():
    protocol.check_frozen(PLANS)


def test_a_changed_regime_is_refused(monkeypatch):
    changed = dataclasses.replace(protocol.REGIMES["wide"], temperature=0.7)
    monkeypatch.setitem(protocol.REGIMES, "wide", changed)
    with refused(ValueError, ["wide"], ["frozen.json"]):
        protocol.check_frozen(PLANS)


def test_confirmation_uses_seeds_that_nothing_else_used():
    used = {seed for seeds in (*TUNING_SEEDS.values(), *protocol.SEEDS.values()) for seed in seeds}
    assert not used & {*protocol.CONFIRMING_SEEDS}
