"""Chains with hints: their rows, the acceptance of their regime, and the figures and tables of runs with variants."""

from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from transformers import AutoProcessor

from eval.benchmarks.learning import arms, hints, one_run, tables
from eval.benchmarks.learning.chains import DIGITS, ChainSFTSettings, HintedSFTSettings
from eval.benchmarks.learning.fast_grpo import train
from eval.benchmarks.learning.fast_policy import FastPolicy
from eval.benchmarks.learning.pools import load_regime
from eval.benchmarks.learning.regimes import REGIMES
from eval.benchmarks.learning.rollouts import Rollouts, group_advantages
from trl_vade.samplers.problems import VariantRows

pytestmark = pytest.mark.benchmark

SMALL = replace(
    REGIMES["hinted"],
    recipe=HintedSFTSettings(max_steps=2, batch_size=8, first=ChainSFTSettings(max_steps=1, batch_size=8)),
    num_train=14,
    num_validation=7,
)


def chains(**levels):
    """Rows as a regime has them, from digits and numbers of them to be summed up."""
    rows = [
        {"prompt": [{"role": "user", "content": digits}], "answer": "0" * level, "level": level,
         "id": f"chain-{level}-{digits.removeprefix('d')}"}
        for digits, level in levels.items()
    ]  # fmt: skip
    return datasets.Dataset.from_list(rows)


def test_each_original_gets_a_row_for_every_hint_but_the_whole_answer():
    rows = hints.with_hints(chains(d31420213=3, d00000000=2))
    assert rows["kind"] == ["original", "original", "hint-1", "hint-2", "hint-1"]
    assert rows["of"] == [*(["chain-3-31420213", "chain-2-00000000"]), *["chain-3-31420213"] * 2, "chain-2-00000000"]
    assert rows["answer"] == ["000", "00", "000", "000", "00"]
    assert rows["prompt"][3][0]["content"] == "Hint: 34??????. What is the sum of 3 of the digits 31420213?"
    variants = hints.variants_of(rows)
    assert variants.of.tolist() == [0, 1, 0, 0, 1]
    assert variants.kind.tolist() == [0, 0, 1, 2, 1]


def pool_of(*problems):
    """Pass rates (original, hint-1, ...) of problems -> rates (N,) and variants."""
    of = np.concatenate([np.arange(len(problems)), *(np.full(len(p) - 1, i) for i, p in enumerate(problems))])
    kind = np.concatenate([np.zeros(len(problems)), *(np.arange(1, len(p)) for p in problems)])
    rates = np.concatenate([[p[0] for p in problems], *(p[1:] for p in problems)])
    kinds = ("original", *(f"hint-{steps}" for steps in range(1, DIGITS)))
    return rates, VariantRows(of.astype(int), kind.astype(int), kinds)


LONG = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


def test_hints_are_compared_with_one_step_less_on_the_same_hopeless_originals():
    means = hints.by_steps(*pool_of(LONG, [0.0, 0.9], [0.5, 0.6]))
    assert means[:3, 0].tolist() == [2, 2, 1]
    assert means[:3, 1] == pytest.approx([0.0, 0.5, 0.2])
    assert means[1:3, 2] == pytest.approx([0.5, 0.1])  # 0.2 follows 0.1, not 0.5


def test_a_pool_is_accepted_when_every_step_helps_and_the_last_is_enough():
    assert hints.accepted(*pool_of(LONG, [0.0, 0.9]))
    assert hints.all_but_one(*pool_of(LONG, [0.0, 0.9])) == pytest.approx(0.8)
    assert not hints.accepted(*pool_of([rate / 2 for rate in LONG]))
    assert not hints.accepted(*pool_of([*LONG[:4], 0.25, *LONG[5:]]))


def rollouts_of(rewards):
    rewards = torch.tensor(rewards)
    empty = torch.zeros(*rewards.shape, 1)
    return Rollouts(np.arange(len(rewards)), empty.long(), empty.bool(), empty, rewards)


def test_local_advantages_of_pairs_are_those_of_the_groups():
    batch = rollouts_of([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    means = np.array([0.5, 0.5])
    local = hints.pair_advantages("local", batch, means, variant_groups=1)
    assert torch.allclose(local, group_advantages(batch.rewards), atol=1e-3)
    both = hints.pair_advantages("local+global", batch, means, variant_groups=1)
    assert (both[1] < 0).all()  # a dead group, which the rollouts of its problem hide


def test_the_figures_of_a_run_with_pairs_worked_by_hand():
    history = {
        "steps": {
            "sample_index": [np.array([0, 2]), np.array([1, 3])],
            "successes": [np.array([0.0, 4.0]), np.array([0.0, 1.0])],
            "has_spread": [np.array([False, False]), np.array([False, True])],
            "trained_completions": [8, 4],
        },
        "evaluations": {
            "step": [0, 2], "rollouts": [0, 16], "score": [0.1, 0.2], "greedy": [0.1, 0.2],
            "pool_pass_rates": [np.array([0.0, 0.5]), np.array([0.3, 0.7])],
        },
    }  # fmt: skip
    kept = hints.figures(history, np.array([0, 0, 1, 1]), 4, together=2)
    assert kept["live"] == {"0": 0.0, "1": 0.5}
    assert kept["pass_rate"] == {"0": 0.0, "1": 0.625}
    assert (kept["live_all"], kept["live_problems"]) == (0.25, 1.0)
    assert (kept["zero_rows"], kept["zero_after"], kept["others_after"]) == (1, 0.3, 0.7)
    assert kept["trained_completions"] == [0, 12]


def test_the_tables_pair_each_arm_with_its_control():
    def record(arm, seed, score):
        kinds = {"0": 0.25, "1": 0.5} if "pairs" in arm else {"0": 0.25}
        return {
            "stage": "hinted", "regime": "hinted", "arm": arm, "learning_rate": 4e-4, "seed": seed, "batches": 10,
            "rollouts": [0, 2560], "score": [0.1, score], "trained_completions": [0, 1500], "live": kinds,
            "drawn": kinds, "pass_rate": kinds, "live_all": 0.4, "live_problems": 0.6, "zero_after": score,
        }  # fmt: skip

    records = [record("uniform + none", seed, 0.2 + seed) for seed in (1, 2)]
    records += [record("uniform + pairs", seed, 0.3 + seed) for seed in (1, 2)]
    lines = tables.studies(records).splitlines()
    payoff, live, _ = [line for line in lines if line.startswith("| uniform + pairs |")]
    assert "| +0.100 ± 0.000 | +0.050 ± 0.000 |" in payoff
    assert "| uniform | pairs pay | 2 | +0.100 ± 0.000 |" in "\n".join(lines)
    assert "| 0.25 / 0.25 / 0.25 | 0.50 / 0.50 / 0.50 | - |" in live


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return load_regime(SMALL, 0, tmp_path_factory.mktemp("cache"), progress=False)


@pytest.mark.parametrize("arm", arms.HINTED)
def test_every_arm_with_variants_runs_and_keeps_its_figures(arm, small, monkeypatch):
    monkeypatch.setattr(one_run, "load_regime", lambda *_, **__: small)
    monkeypatch.setattr(one_run, "ROLLOUTS_A_BATCH", 32)
    kept = one_run.run("hinted", arm, 1e-4, 0, 2, evaluate_every=1)
    assert kept["rollouts"] == [0, 32, 64]
    assert sum(kept["drawn"].values()) == pytest.approx(1, abs=1e-3)
    if "pairs" in arm:
        assert kept["drawn"]["0"] == 0.5
    if "none" in arm:
        assert kept["drawn"] == {"0": 1.0}


def test_advantages_of_ones_own_are_trained_on(small):
    directory, originals, validation = small
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(directory)
    policies = [FastPolicy(model, AutoProcessor.from_pretrained(directory), rows) for rows in (originals, validation)]
    history = train(
        policies[0],
        arms.sampler_of("uniform", 14, num_groups=4, num_generations=2, seed=0, labels=["a"] * 14),
        steps=1,
        num_groups=4,
        num_generations=2,
        learning_rate=1e-4,
        seed=0,
        validation=policies[1],
        evaluate_every=1,
        advantages=lambda batch, means: torch.ones_like(batch.rewards),
        watched=np.arange(5),
    )
    assert history["steps"]["trained_completions"] == [8]
    assert history["steps"]["grad_norm"][0] > 0
    assert [rates.shape for rates in history["evaluations"]["pool_pass_rates"]] == [(5,), (5,)]


@pytest.mark.slow
def test_the_hints_of_the_regime_help_before_any_arm_is_run():
    assert hints.accepted(*hints.pass_rates(11))
