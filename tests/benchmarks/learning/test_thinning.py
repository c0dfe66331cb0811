"""What of a generation batch is trained on: golden choices, and gradients against plain sums over completions."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from eval.benchmarks.learning.fast_policy import FastPolicy
from eval.benchmarks.learning.gradient import divergence
from eval.benchmarks.learning.packing import grow_tree
from eval.benchmarks.learning.rollouts import Rollouts
from eval.benchmarks.learning.thinning import Thinning, choose, figures, most_informative
from trl_vade.testbed import build_dataset, load_testbed_model
from trl_vade.testbed.sft import SFTSettings

pytestmark = pytest.mark.benchmark

# The model of test_fast_policy.py, in the same place: it is built once.
BRIEF = SFTSettings(steps=100, batch_size=12)
KL_ON_ALL, KL_ON_LIVE = Thinning(beta=0.5), Thinning(beta=0.5, kl_on="live")


def rollouts_with(rewards):
    rewards = torch.tensor(rewards)
    mask = torch.ones(*rewards.shape, 3, dtype=torch.bool)
    return Rollouts(np.arange(len(rewards)), torch.zeros_like(mask).long(), mask, torch.zeros(mask.shape), rewards)


THREE = rollouts_with([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("thinning", "progress", "places"),
    [
        (Thinning("batch", 2 / 12), 0.0, [0, 10]),
        (Thinning("batch", 0.5), 0.0, [0, 1, 8, 9, 10, 11]),
        (Thinning("batch", (2 / 12, 1.0)), 0.4, [0, 1, 8, 9, 10, 11]),  # 0.6 * 2 + 0.4 * 12 rows
        (Thinning("batch", 1.0), 0.0, [0, 1, 2, 3, 8, 9, 10, 11]),  # no more than have a gradient
        (Thinning("live", 0.5), 0.0, [0, 3, 9, 10]),
        (Thinning("group", 0.5), 0.0, [0, 3, 6, 7, 9, 10]),
    ],
)
def test_the_most_varied_advantages_are_kept(thinning, progress, places):
    chosen = choose(THREE, thinning, progress)
    assert chosen.kept.flatten().nonzero()[:, 0].tolist() == places
    assert torch.equal(chosen.advantages[chosen.kept], choose(THREE).advantages[chosen.kept])
    assert not chosen.advantages[~chosen.kept].any()


def test_pods_computes_advantages_anew_among_the_kept():
    chosen = choose(THREE, Thinning("group", 0.5, renormalised=True))
    assert chosen.advantages[0].tolist() == pytest.approx([0.7071, 0, 0, -0.7071], abs=1e-3)
    assert not chosen.advantages[1].any()


def test_tokens_are_those_with_the_largest_keys():
    entropy = torch.tensor([[0.1, 0.9, 0.3, 0.0], [2.0, 0.2, 1.0, 0.6], [3.0, 3.0, 0, 0], [0.05, 1.2, 0.4, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    key = torch.tensor([1.5, 0.5, 0.0, 0.8])[:, None] * entropy
    three = [[0, 1], [1, 0], [3, 1]]
    assert most_informative(key, mask, 0.2).nonzero().tolist() == three
    assert most_informative(key, mask, 0.25).nonzero().tolist() == sorted([*three, [1, 2]])
    assert int(most_informative(key, mask, 0.5).sum()) == 7
    assert torch.equal(most_informative(key, mask, 1.0), mask)


def test_the_counts_of_a_batch_worked_by_hand():
    chosen = choose(THREE, Thinning("batch", 2 / 12))
    counts = figures(THREE, chosen, 6)
    assert counts["kept_advantage_variance"] == pytest.approx(1.3990, abs=1e-3)
    assert counts["advantage_variance"] == pytest.approx(0.4998, abs=1e-3)
    names = ("tokens", "trained_completions", "trained_tokens", "kept_completions", "live_completions")
    assert [counts[name] for name in names] == [36, 2, 6, 2, 8]
    everything = figures(THREE, choose(THREE), 24)
    assert [everything[name] for name in names] == [36, 8, 24, 8, 8]
    assert everything["kept_advantage_variance"] == pytest.approx(0.7497, abs=1e-3)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    directory = load_testbed_model(cache_dir=tmp_path_factory.getbasetemp() / "brief", settings=BRIEF, progress=False)
    model = AutoModelForImageTextToText.from_pretrained(directory).eval()
    rows = build_dataset(24, 12, progress=False)["train"]
    return FastPolicy(model, AutoProcessor.from_pretrained(directory), rows)


@pytest.fixture(scope="module")
def rollouts(policy):
    made = policy.sample(np.arange(24), 8, torch.Generator().manual_seed(0))
    assert 0 < made.has_spread.sum() < 24
    return made


@pytest.fixture(scope="module")
def reference(policy):
    frozen = policy.frozen()
    with torch.no_grad():
        for number, parameter in enumerate(frozen.model.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            parameter.add_(0.05 * noise * parameter.abs().mean())
    return frozen


def gradients(policy):
    return torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])


def one_by_one(policy, rollouts, thinning, reference):
    """The loss as TRL writes it, every completion by itself, without a tree that is shared."""
    chosen = choose(rollouts, thinning)
    size = rollouts.rewards.shape[1]
    apart = rollouts.take(np.repeat(np.arange(24), size))
    pick = torch.arange(24 * size) % size
    names = ("completion_ids", "completion_mask", "token_logps", "rewards")
    single = Rollouts(apart.sample_index, *(getattr(apart, n)[torch.arange(24 * size), pick][:, None] for n in names))

    tree = grow_tree(single.completion_ids, single.completion_mask)
    mask = single.completion_mask[:, 0]

    def tokens(of):
        every = of.edge_logps(single, tree)[tree.edge_of[:, 0].clamp(min=0)]
        return every, every.gather(2, single.completion_ids[:, 0, :, None])[..., 0]

    every, logps = tokens(policy)
    with torch.no_grad():
        _, base = tokens(reference)
        entropy = -(every.exp() * every).sum(-1)
    advantages, kept = chosen.advantages.flatten()[:, None], chosen.kept.flatten()[:, None]
    teaches = mask & kept
    if chosen.tokens < 1:
        key = advantages.abs() * entropy
        teaches = teaches & (key >= torch.quantile(key[teaches], 1 - chosen.tokens))
    loss = -(torch.exp(logps - logps.detach()) * advantages * teaches)
    loss = loss + chosen.beta * (torch.exp(base - logps) - (base - logps) - 1) * chosen.with_kl.flatten()[:, None]
    policy.model.zero_grad()
    ((loss * mask).sum() / (mask & kept).sum()).backward()
    return gradients(policy)


@pytest.mark.parametrize(
    "thinning",
    [
        Thinning(), KL_ON_ALL, KL_ON_LIVE, Thinning("batch", 0.125), Thinning("batch", 0.25, 0.2),
        Thinning("live", 0.25), Thinning("group", 0.25, renormalised=True),
    ],
    ids=["all", "kl", "kl on live", "rows", "rows and tokens", "live", "pods"],
)  # fmt: skip
def test_gradients_are_those_of_the_completions_one_by_one(policy, rollouts, reference, thinning):
    expected = one_by_one(policy, rollouts, thinning, reference)
    policy.model.zero_grad()
    policy.backward(rollouts, choose(rollouts, thinning), reference)
    ours = gradients(policy)
    assert float(expected.abs().max()) > 0
    assert float((ours - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


def test_rollouts_without_a_gradient_may_be_left_out_and_a_kl_term_on_all_of_them_may_not(policy, rollouts, reference):
    """The same weights with every rollout and without those of advantage 0: what `lossless` stands on."""

    def gradient(thinning, **options):
        policy.model.zero_grad()
        policy.backward(rollouts, choose(rollouts, thinning), reference, **options)
        return gradients(policy)

    everything = gradient(None, skip_dead_groups=False)
    assert float((gradient(None) - everything).abs().max()) <= 1e-6 * float(everything.abs().max())
    assert float((gradient(KL_ON_LIVE) - gradient(KL_ON_ALL)).abs().max()) > 1e-3 * float(everything.abs().max())


def test_the_divergence_from_itself_is_zero_and_from_another_policy_positive(policy, rollouts, reference):
    assert divergence(policy, policy.frozen(), rollouts) == 0.0
    assert divergence(policy, reference, rollouts) > 1e-6
