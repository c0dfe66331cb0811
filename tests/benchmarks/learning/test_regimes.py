"""The regimes of the learning benchmark: pure, disjoint, with the rows that the documentation promises."""

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from eval.benchmarks.learning import pools
from eval.benchmarks.learning.chains import (
    DIGITS,
    MODULUS,
    ChainSFTSettings,
    encode_chains,
    graded_reward,
    iter_chains,
)
from eval.benchmarks.learning.one_run import fast_policy
from eval.benchmarks.learning.pools import load_regime
from eval.benchmarks.learning.regimes import REGIMES
from trl_vade.testbed.dataset import FEATURES
from trl_vade.testbed.model import IGNORED, SFTSettings
from trl_vade.testbed.processor import build_processor

pytestmark = pytest.mark.benchmark

SMALL = {"num_train": 48, "num_validation": 24}
CHAINS = replace(REGIMES["staged"], recipe=ChainSFTSettings(max_steps=2, batch_size=8), **SMALL)
PICTURES = replace(
    REGIMES["hard_pictures"], recipe=SFTSettings(steps=2, batch_size=8, warmup_steps=1), pass_range={}, **SMALL
)


@pytest.fixture(scope="module")
def processor():
    return build_processor()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def solve(question):
    """Read a chain's question again, by code of its own."""
    what, length, digits = re.fullmatch(r"What is the (\w+) of (\d) of the digits (\d+)\?", question).groups()
    parts = [[int(digit) for digit in digits[:end]] for end in range(1, int(length) + 1)]
    if what == "value":
        return ", ".join(f"{-sum(part[:-1]) % 5}-{part[-1]}={-sum(part) % 5}" for part in parts)
    return "".join(str((sum(part) if what == "sum" else math.prod(part)) % 5) for part in parts)


def test_chains_repeat_are_dealt_in_turn_and_keep_to_their_side(monkeypatch):
    train, validation = (list(islice(iter_chains(side, 0, (1, 2, 5)), 90)) for side in ("train", "validation"))
    assert train == list(islice(iter_chains("train", 0, (1, 2, 5)), 90))
    assert train != list(islice(iter_chains("train", 1, (1, 2, 5)), 90))
    assert [chain.level for chain in train] == [1, 2, 5] * 30
    for chain in train:
        assert solve(chain.question) == chain.answer
        assert len(chain.digits) == DIGITS
        assert {*chain.digits} <= {*map(str, range(MODULUS))}
    assert len({chain.digits for chain in train}) == 90
    assert [any(chain.validation for chain in train), all(chain.validation for chain in validation)] == [False, True]
    assert not any(chain.validation for chain in islice(iter_chains("sft", 0, (1, 2)), 90))
    monkeypatch.setattr("eval.benchmarks.learning.chains.DIGITS", 1)
    with pytest.raises(ValueError, match="ask for fewer rows"):
        list(islice(iter_chains("train", 0, (1,)), 6))


def test_only_the_answer_of_a_chain_is_taught(processor):
    chains = list(islice(iter_chains("sft", 0, (1, 8, 4), skills=("chain", "written", "products")), 30))
    batch = encode_chains(chains, processor)
    assert [solve(chain.question) for chain in chains] == [chain.answer for chain in chains]
    for chain, ids, labels in zip(chains, batch["input_ids"], batch["labels"], strict=True):
        assert processor.tokenizer.decode(ids[labels != IGNORED]) == f"<answer>{chain.answer}</answer><|im_end|>"
    assert (batch["labels"] != IGNORED).sum(dim=1).max() == REGIMES["two_skills"].max_completion_length


def cells(rows):
    return Counter(zip(rows["task"], rows["level"], strict=True))


@pytest.mark.parametrize(("regime", "images"), [(CHAINS, 0), (PICTURES, 1)], ids=["chains", "pictures"])
def test_a_regime_is_a_pure_function_of_its_seed_with_its_shares_on_two_sides(
    regime, images, cache, tmp_path, monkeypatch
):
    state = torch.random.get_rng_state()
    directory, train, validation = load_regime(regime, 0, cache, progress=False)
    assert torch.equal(state, torch.random.get_rng_state())
    other_directory, other_train, _ = load_regime(regime, 0, tmp_path, progress=False)
    assert train.to_dict() == other_train.to_dict()
    assert train._fingerprint == other_train._fingerprint != validation._fingerprint
    assert (directory / "model.safetensors").read_bytes() == (other_directory / "model.safetensors").read_bytes()
    _, third_train, third_validation = load_regime(regime, 1, cache, progress=False)
    assert not {*third_train["id"]} & {*train["id"]}
    for rows, size in ((train, 48), (validation, 24)):
        assert rows.features == FEATURES
        assert cells(rows) == {cell: count for cell, count in regime.quotas(size).items() if count}
        assert len({*rows["id"]}) == size
        assert {len(row) for row in rows["images"]} == {images}
    assert not {*train["id"]} & {*validation["id"], *third_validation["id"]}
    monkeypatch.setattr(pools, "draw_pool", lambda *_, **__: pytest.fail("built a second time"))
    assert load_regime(regime, 0, cache, progress=False)[1].to_dict() == train.to_dict()


def test_wrong_labels_are_in_the_training_rows_alone_and_as_many_as_declared(cache):
    _, train, validation = load_regime(replace(CHAINS, wrong_labels=0.25), 0, cache, progress=False)
    _, right, same_validation = load_regime(CHAINS, 0, cache, progress=False)
    assert validation["answer"] == same_validation["answer"]
    assert train["id"] == right["id"]
    wrong = [(a, b) for a, b in zip(train["answer"], right["answer"], strict=True) if a != b]
    assert len(wrong) == 12  # a quarter of 48
    assert all(a[:-1] == b[:-1] and a[-1] in "01234" for a, b in wrong)


def test_a_graded_reward_is_the_share_of_steps_before_the_first_slip():
    rewards = {"343": 1, "340": 2 / 3, "043": 0, "3": 1 / 3, "34300": 3 / 5, "": 0}
    for completion, reward in rewards.items():
        assert graded_reward([f"<answer>{completion}</answer>", completion], ["343"] * 2) == [pytest.approx(reward), 0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "off"), [("staged", 0.02), ("graded", 0.12)])
def test_the_exact_chances_of_a_gradient_are_those_of_sampled_groups(name, off, tmp_path):
    """For graded rewards they are a lower bound: answers of another length earn other shares."""
    directory, train, _ = load_regime(name, 10, tmp_path, progress=False)
    model = AutoModelForImageTextToText.from_pretrained(directory)
    policy = fast_policy(REGIMES[name], model, AutoProcessor.from_pretrained(directory), train)
    _, mixed = policy.chances(8, np.arange(512))
    chance, rows = torch.Generator().manual_seed(0), np.arange(0, 512, 4)
    came = np.mean([policy.sample(rows, 8, chance).has_spread for _ in range(20)], axis=0)
    assert -0.02 < came.mean() - mixed[rows].mean() < off
    assert np.corrcoef(came, mixed[rows])[0, 1] > 0.9
