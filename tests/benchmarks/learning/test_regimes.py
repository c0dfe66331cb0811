"""The regimes of the learning benchmark: pure, disjoint, with the rows that their descriptions promise."""

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
    MAX_COMPLETION_LENGTH,
    MODULUS,
    WINDOW,
    Chain,
    ChainSFTSettings,
    HintedSFTSettings,
    encode_chains,
    finetune_chains,
    graded_reward,
    iter_chains,
    iter_lessons,
)
from eval.benchmarks.learning.fast_policy import FastPolicy
from eval.benchmarks.learning.one_run import fast_policy
from eval.benchmarks.learning.pools import load_regime
from eval.benchmarks.learning.regimes import REGIMES
from trl_vade.testbed.dataset import FEATURES
from trl_vade.testbed.model import build_model
from trl_vade.testbed.processor import build_processor
from trl_vade.testbed.scenes import LEVELS, TASKS
from trl_vade.testbed.sft import IGNORED, SFTSettings

pytestmark = pytest.mark.benchmark

CHAINS = replace(
    REGIMES["staged"], recipe=ChainSFTSettings(max_steps=2, batch_size=8), num_train=48, num_validation=24
)
PICTURES = replace(
    REGIMES["hard_pictures"],
    recipe=SFTSettings(steps=2, batch_size=8, warmup_steps=1),
    num_train=48,
    num_validation=24,
)


@pytest.fixture(scope="module")
def processor():
    return build_processor()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def cells(rows):
    return Counter(zip(rows["task"], rows["level"], strict=True))


def solve(question):
    """Read a chain's question again, by code of its own."""
    length, digits = re.fullmatch(r"What is the sum of (\d) of the digits (\d+)\?", question).groups()
    return "".join(str(sum(map(int, digits[: end + 1])) % 5) for end in range(int(length)))


def test_the_answer_of_a_chain_is_its_running_sums():
    chain = Chain("31420213", 3)
    assert (chain.question, chain.answer) == ("What is the sum of 3 of the digits 31420213?", "343")
    for chain in islice(iter_chains("train", 0, range(1, 9)), 200):
        assert solve(chain.question) == chain.answer
        assert len(chain.answer) == chain.level
        assert len(chain.digits) == DIGITS
        assert set(chain.digits) <= set(map(str, range(MODULUS)))


def test_chains_repeat_are_dealt_in_turn_and_keep_to_their_side():
    train, validation = (list(islice(iter_chains(side, 0, (1, 2, 5)), 90)) for side in ("train", "validation"))
    assert train == list(islice(iter_chains("train", 0, (1, 2, 5)), 90))
    assert train != list(islice(iter_chains("train", 1, (1, 2, 5)), 90))
    assert [chain.level for chain in train] == [1, 2, 5] * 30
    assert len({chain.digits for chain in train}) == 90
    assert not any(chain.validation for chain in train)
    assert all(chain.validation for chain in validation)
    assert not any(chain.validation for chain in islice(iter_chains("sft", 0, (1, 2)), 90))
    shown = Counter(chain.level for chain in islice(iter_chains("sft", 0, (1, 2), (3, 1)), 400))
    assert 260 < shown[1] < 340


def test_a_hint_gives_the_first_sums_at_the_same_distance_from_digits_and_answer():
    chain = Chain("31420213", 3, hint=2)
    assert chain.question == "Hint: 34??????. What is the sum of 3 of the digits 31420213?"
    assert chain.answer == "343"
    lengths = {len(replace(chain, hint=steps).question) for steps in range(1, 8)}
    assert len(lengths) == 1


def test_lessons_with_hints_leave_few_steps_and_never_give_the_whole_answer():
    settings = HintedSFTSettings(hinted=0.5, left=2)
    lessons = list(islice(iter_lessons(settings, 3), 400))
    assert lessons == list(islice(iter_lessons(settings, 3), 400))
    hinted = [chain for chain in lessons if chain.hint]
    assert 160 < len(hinted) < 240
    assert {chain.level - chain.hint for chain in hinted} == {1, 2}
    assert {chain.level for chain in hinted} == set(range(2, 9))
    assert not any(chain.hint for chain in islice(iter_lessons(ChainSFTSettings(), 3), 50))


def test_lessons_with_hints_come_after_those_without(processor, monkeypatch):
    taught = []
    monkeypatch.setattr(
        "eval.benchmarks.learning.chains.encode_chains",
        lambda chains, processor: taught.append(chains) or encode_chains(chains, processor),
    )
    settings = HintedSFTSettings(max_steps=2, batch_size=8, first=ChainSFTSettings(max_steps=1, batch_size=8))
    finetune_chains(build_model(processor, 0), processor, settings, progress=False)
    assert [any(chain.hint for chain in chains) for chains in taught] == [False, True, True]


def test_chains_that_are_used_up_are_an_error(monkeypatch):
    monkeypatch.setattr("eval.benchmarks.learning.chains.DIGITS", 1)
    with pytest.raises(ValueError, match="ask for fewer rows"):
        list(islice(iter_chains("train", 0, (1,)), 6))


def test_only_the_answer_of_a_chain_is_taught_and_the_longest_fits(processor):
    chains = list(islice(iter_chains("sft", 0, range(1, 9)), 8))
    batch = encode_chains(chains, processor)
    for chain, ids, labels in zip(chains, batch["input_ids"], batch["labels"], strict=True):
        taught = labels != IGNORED
        assert processor.tokenizer.decode(ids[taught]) == f"<answer>{chain.answer}</answer><|im_end|>"
        assert not taught[: -taught.sum()].any()
    assert (batch["labels"] != IGNORED).sum(dim=1).max() == MAX_COMPLETION_LENGTH == CHAINS.max_completion_length
    assert PICTURES.max_completion_length == 12


def test_teaching_chains_repeats_ends_at_its_loss_and_leaves_the_random_state_alone(processor):
    def teach(settings, seed=0):
        model = build_model(processor, seed)
        return finetune_chains(model, processor, settings, seed, progress=False), model.state_dict()

    state = torch.random.get_rng_state()
    short = ChainSFTSettings(max_steps=3, batch_size=4)
    losses, weights = teach(short)
    again, same = teach(short)
    assert losses == again
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert losses != teach(short, seed=1)[0]
    assert torch.equal(state, torch.random.get_rng_state())
    # The first window is always below a loss this high.
    assert len(teach(ChainSFTSettings(until_loss=50.0, max_steps=30, batch_size=2))[0]) == WINDOW


@pytest.mark.parametrize("name", REGIMES)
def test_the_parts_of_a_regime_are_cells_that_exist_and_fill_it(name):
    regime = REGIMES[name]
    assert regime.name == name
    assert len(regime.description) > 100
    chains = isinstance(regime.recipe, ChainSFTSettings)
    for task, level in regime.parts:
        assert (task == "chain" and level in regime.recipe.lengths) if chains else (task in TASKS and level in LEVELS)
    for size in (regime.num_train, regime.num_validation, 37):
        quotas = regime.quotas(size)
        assert sum(quotas.values()) == size
        total = sum(regime.parts.values())
        assert all(abs(quotas[cell] - size * parts / total) < 1 for cell, parts in regime.parts.items())


@pytest.mark.parametrize("regime", [CHAINS, PICTURES], ids=["chains", "pictures"])
def test_a_regime_is_a_pure_function_of_its_seed_and_cached(regime, cache, tmp_path, monkeypatch):
    directory, train, validation = load_regime(regime, 0, cache, progress=False)
    other_directory, other_train, _ = load_regime(regime, 0, tmp_path, progress=False)
    assert train.to_dict() == other_train.to_dict()
    assert train._fingerprint == other_train._fingerprint != validation._fingerprint
    assert (directory / "model.safetensors").read_bytes() == (other_directory / "model.safetensors").read_bytes()
    third_directory, third_train, _ = load_regime(regime, 1, cache, progress=False)
    assert third_directory != directory
    assert not set(third_train["id"]) & set(train["id"])

    monkeypatch.setattr(pools, "draw_pool", lambda *_, **__: pytest.fail("built a second time"))
    assert load_regime(regime, 0, cache, progress=False)[1].to_dict() == train.to_dict()
    described = replace(regime, description="other words")
    assert load_regime(described, 0, cache, progress=False)[0] == directory


@pytest.mark.parametrize("regime", [CHAINS, PICTURES], ids=["chains", "pictures"])
def test_a_regime_has_its_shares_on_two_sides_that_never_meet(regime, cache):
    _, train, validation = load_regime(regime, 0, cache, progress=False)
    for rows, size in ((train, 48), (validation, 24)):
        assert rows.features == FEATURES
        assert cells(rows) == {cell: count for cell, count in regime.quotas(size).items() if count}
        assert len(set(rows["id"])) == size
    assert not set(train["id"]) & set(validation["id"])
    other_validation = load_regime(regime, 1, cache, progress=False)[2]
    assert not set(train["id"]) & set(other_validation["id"])


def test_rows_of_both_worlds_go_through_the_policy(cache):
    for regime, images in ((CHAINS, 0), (PICTURES, 1)):
        directory, train, _ = load_regime(regime, 0, cache, progress=False)
        assert {len(row) for row in train["images"]} == {images}
        model = AutoModelForImageTextToText.from_pretrained(directory)
        rates = FastPolicy(model, AutoProcessor.from_pretrained(directory), train).pass_rates()
        assert rates.shape == (48,)
        assert ((rates >= 0) & (rates <= 1)).all()


def test_a_filter_takes_only_rows_in_its_range_and_asks_about_no_other(monkeypatch):
    asked = []

    class Measured:
        """A pass rate that can be read off the row: the share of the digits of its id that are below 8."""

        def __init__(self, model, processor, rows):
            asked.extend(rows["level"])
            self.rates = [rate(row_id) for row_id in rows["id"]]

        def pass_rates(self):
            return np.array(self.rates)

    def rate(row_id):
        letters = row_id.rsplit("-", 1)[1]
        return sum(letter < "8" for letter in letters) / len(letters)

    monkeypatch.setattr(pools, "FastPolicy", Measured)
    regime = replace(PICTURES, pass_range={3: (0.5, 0.6)}, num_train=32)
    rows = pools.draw_pool(regime, "train", 32, 0, None, None, progress=False)
    assert set(asked) == {3}
    assert all(0.5 <= rate(row["id"]) <= 0.6 for row in rows if row["level"] == 3)
    assert not all(0.5 <= rate(row["id"]) <= 0.6 for row in rows if row["level"] < 3)
    assert Counter((row["task"], row["level"]) for row in rows) == {
        cell: count for cell, count in regime.quotas(32).items() if count
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """One cache for all regimes: some share a base policy."""
    return tmp_path_factory.mktemp("regimes")


@pytest.mark.parametrize(
    ("completion", "reward"),
    [("343", 1), ("340", 2 / 3), ("043", 0), ("3", 1 / 3), ("34300", 3 / 5), ("", 0)],
)
def test_a_graded_reward_is_the_share_of_steps_before_the_first_slip(completion, reward):
    assert graded_reward([f"<answer>{completion}</answer>"], ["343"]) == [pytest.approx(reward)]
    assert graded_reward([completion], ["343"]) == [0]  # no answer is marked


@pytest.mark.slow
@pytest.mark.parametrize(("name", "off"), [("staged", 0.02), ("graded", 0.08)])
def test_the_exact_chances_of_a_gradient_are_those_of_sampled_groups(name, off, built):
    """For graded rewards they are a lower bound: answers of another length earn other shares."""
    directory, train, _ = load_regime(name, 10, built, progress=False)
    model, processor = AutoModelForImageTextToText.from_pretrained(directory), AutoProcessor.from_pretrained(directory)
    policy = fast_policy(REGIMES[name], model, processor, train.select(range(128)))
    rates, mixed = policy.chances(8)
    assert rates.tolist() == policy.pass_rates().tolist()
    chance, every = torch.Generator().manual_seed(0), np.arange(128)
    came = np.mean([policy.sample(every, 8, chance).has_spread for _ in range(20)], axis=0)
    assert -0.02 < came.mean() - mixed.mean() < off
    assert np.corrcoef(came, mixed)[0, 1] > 0.9


def test_what_does_not_exist_is_an_error(tmp_path):
    names = "paper_like, staged, graded, wide, hinted, hinted_long, many_impossible, hard_pictures, no_headroom"
    with pytest.raises(ValueError, match=f"there are {names}"):
        load_regime("other", 0, tmp_path)
    with pytest.raises(ValueError, match="seeds from 0 on"):
        load_regime("staged", -1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REGIMES if name != "hard_pictures"])  # that one takes 40 s
def test_the_base_policies_stand_where_their_regimes_say(name, built):
    """The shares of rows and groups that the descriptions promise, for one seed, with some room."""
    regime = REGIMES[name]
    directory, train, _ = load_regime(name, 10, built, progress=False)
    model = AutoModelForImageTextToText.from_pretrained(directory)
    policy = fast_policy(regime, model, AutoProcessor.from_pretrained(directory), train)
    rates, levels = policy.pass_rates(), np.array(train["level"])
    ratio = np.mean(1 - rates**8 - (1 - rates) ** 8)
    impossible, mastered = np.mean(rates < 0.02), np.mean(rates > 0.98)
    if name == "paper_like":
        assert 0.05 < ratio < 0.25
        assert mastered > 0.5
        assert impossible < 0.2
    elif name in ("staged", "graded", "wide"):
        assert rates[levels == 1].mean() > 0.95
        assert 0.1 < rates[levels == 3].mean() < 0.7
        assert rates[levels >= 6].mean() < 0.05
        assert 0.35 < impossible < 0.65
    elif name == "hinted_long":
        assert impossible > 0.3
    elif name == "hinted":
        assert rates[levels == 2].mean() > 0.5
        assert impossible > 0.1
    elif name == "many_impossible":
        assert 0.45 < impossible < 0.7
    else:
        assert ratio > 0.9
        assert 0.2 <= rates.min() <= rates.max() <= 0.8


def test_wrong_labels_are_in_the_training_rows_alone_and_as_many_as_declared(tmp_path):
    regime = replace(CHAINS, wrong_labels=0.25)
    _, train, validation = load_regime(regime, 0, tmp_path, progress=False)
    _, right, same_validation = load_regime(CHAINS, 0, tmp_path, progress=False)
    assert validation["answer"] == same_validation["answer"]
    pairs = list(zip(train["answer"], right["answer"], strict=True))
    assert train["id"] == right["id"]
    assert sum(wrong != correct for wrong, correct in pairs) == 12  # a quarter of 48
    for wrong, correct in pairs:
        assert wrong[:-1] == correct[:-1]
        assert wrong[-1] in "01234"
