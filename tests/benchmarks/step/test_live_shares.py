"""The benchmark at live shares: given completions, bytes of tensors, and a run of it. No timing is tested."""

import contextlib

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from eval.benchmarks.step import __main__ as benchmark
from eval.benchmarks.step import live_shares, models, tables
from eval.benchmarks.step.given import Given, lengths, live_groups
from eval.benchmarks.step.memory import TensorMemory

SIZE = 64 * 64 * 4  # bytes of a matrix here


def matrix():
    return torch.ones(64, 64)


# -------------------------------------------------------------------------------------------------------------- memory


def test_bytes_of_tensors_are_counted_while_they_exist():
    with TensorMemory() as memory:
        first = matrix()
        second = first + 1
        view = second[3:]
        del second
        assert memory.allocated() == 2 * SIZE
        del view
        assert memory.allocated() == SIZE
        assert memory.peaks() == {"allocated": 2 * SIZE}
        assert memory.peaks() == {"allocated": SIZE}


def test_tensors_from_before_count_once_they_are_used():
    before = matrix()
    with TensorMemory() as memory:
        assert memory.allocated() == 0
        after = before * 2
        assert memory.allocated() == 2 * SIZE
    del after


def test_activations_count_until_the_backward_pass_is_over_and_gradients_stay():
    weight = matrix().requires_grad_()
    with TensorMemory() as memory:
        hidden = matrix()
        for _ in range(4):
            hidden = torch.tanh(hidden @ weight)
        kept = memory.allocated()
        hidden.sum().backward()
        del hidden
        assert kept >= 6 * SIZE  # the weight, the first input, and what each tanh saves
        assert memory.allocated() == 2 * SIZE


def test_checkpointing_lowers_the_peak():
    def peak(run):
        weight = matrix().requires_grad_()
        with TensorMemory() as memory:
            hidden = matrix()
            for _ in range(4):
                hidden = run(lambda each: torch.tanh(torch.tanh(torch.tanh(each @ weight) @ weight) @ weight), hidden)
            hidden.sum().backward()
            return memory.peaks()["allocated"]

    again = peak(lambda block, hidden: checkpoint(block, hidden, use_reentrant=False))
    assert again < peak(lambda block, hidden: block(hidden))


@pytest.mark.parametrize(("others", "held"), [([], 0), ([FlopCounterMode(display=False)], 1)])
def test_torchs_counter_of_flops_keeps_what_checkpointing_computes_again(others, held):
    """So bytes are not counted beside FLOPs. Where torch frees it, the counts may share a run (torch 2.15)."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    with contextlib.ExitStack() as stack:
        for other in others:
            stack.enter_context(other)
        memory = stack.enter_context(TensorMemory())
        after = []
        for _ in range(2):
            checkpoint(net, matrix(), use_reentrant=False).sum().backward()
            after.append(memory.allocated())
    assert (after[1] > after[0]) == held


# --------------------------------------------------------------------------------------------------- given completions


@pytest.mark.parametrize(("rows", "share", "places"), [(4, 0.5, [1, 3]), (20, 0.1, [9, 19]), (3, 1.0, [0, 1, 2])])
def test_exactly_the_share_of_the_groups_is_live_and_they_are_spread(rows, share, places):
    assert np.flatnonzero(live_groups(rows, share)).tolist() == places


def test_a_share_that_is_no_whole_number_of_groups_is_refused(capsys):
    with pytest.raises(SystemExit):
        benchmark.parse(["--live_shares", "0.1", "--rows", "8"])
    assert "0.1 of 8 rows" in capsys.readouterr().err


def test_lengths_are_lognormal_and_alike_in_every_group():
    drawn = lengths(500, 8, 2048, seed=1)
    assert drawn.min() >= 1
    assert 0.002 < (drawn == 2048).mean() < 0.03
    assert np.median(drawn) == pytest.approx(512, rel=0.05)
    every = drawn.reshape(500, 8)
    assert (abs((every < 512).sum(1) - 4) <= 1).all()  # half of each group is below the median, but for rounding
    assert len({tuple(group.argsort()) for group in every}) > 400
    assert (lengths(500, 8, 2048, seed=1) == drawn).all()
    assert (lengths(500, 8, 2048, seed=2) != drawn).any()


@pytest.mark.parametrize("shape", ["small", "3b"])
def test_given_completions_hold_no_token_of_the_processors_own(shape):
    processor, config = models.processor_and_config(shape)
    tokenizer, most = processor.tokenizer, 40
    completions = Given(4, 8, most, 0.5, tokenizer).completions()
    assert len(completions) == 32
    special = {config.image_token_id, config.video_token_id, config.vision_start_token_id, config.vision_end_token_id}
    for ids in completions:
        assert len(ids) <= most
        assert not special & {*ids}
        assert (tokenizer.eos_token_id in ids) == (len(ids) < most)
    assert {len(ids) for ids in Given(4, 8, most, 0.5, tokenizer, all_longest=True).completions()} == {most}


def test_generation_batches_differ_and_are_the_same_for_the_next_trainer():
    tokenizer = models.processor_and_config("small")[0].tokenizer
    first, second = (Given(4, 8, 40, 0.5, tokenizer) for _ in range(2))
    assert first.completions() == (one := second.completions())
    assert first.completions() == second.completions() != one


def test_only_live_groups_have_a_gradient_and_in_these_every_completion_has():
    given = Given(4, 8, 40, 0.25, models.processor_and_config("small")[0].tokenizer)
    rewards = np.array(given.given_reward([])).reshape(4, 8)
    assert (rewards.std(1) > 0).tolist() == live_groups(4, 0.25).tolist()
    assert (rewards[3] != rewards[3].mean()).all()


# -------------------------------------------------------------------------------------------------------------- a run


def test_the_third_trainer_is_lossless_where_that_is_exact():
    def trainers(*arguments):
        return benchmark.parse(["--live_shares", "0.5", *arguments]).trainers

    assert trainers() == ["stock", "vade", "lossless"]
    assert trainers("--beta", "0.01") == ["stock", "vade", "live"]
    assert trainers("--trainers", "stock") == ["stock"]


@pytest.mark.slow
def test_the_work_of_an_update_follows_the_live_share_with_thinning_alone():
    few = ["--rows", "4", "--micro_batch", "8", "--repeats", "1"]
    options = vars(benchmark.parse(["--live_shares", "0.25", "1", *few, "--beta", "0.1"]))
    figures = list(live_shares.measure(options))
    counted, weighed, timed = (
        {(each["share"], each["trainer"]): each for each in figures if each["repeat"] == repeat}
        for repeat in ("flops", "memory", 0)
    )
    assert timed.keys() == counted.keys() == weighed.keys()
    assert len(figures) == 3 * len(timed) == 3 * 2 * 3

    def flops(share, name):
        return {phase: counted[share, name]["flops"].get(phase, 0) for phase in ("score", "update")}

    for name in ("stock", "vade"):
        assert flops(0.25, name) == flops(1.0, name) == flops(1.0, "stock")
        assert timed[0.25, name]["counts"]["completions"] == 32
    whole, thin = flops(1.0, "live"), flops(0.25, "live")
    assert 0.15 < thin["update"] / whole["update"] < 0.35
    assert timed[0.25, "live"]["counts"]["completions"] == 8
    assert 0.15 < thin["score"] / whole["score"] < 0.35
    peaks = {key: tables.most(each) for key, each in weighed.items()}
    assert peaks[0.25, "live"] < peaks[0.25, "vade"]
    for each in timed.values():
        assert each["seconds"]["update"] > 0
    table = tables.live_table(figures)
    assert f"| 25% | {tables.NAMES['live']} | 8 |" in table
    assert table.count("stock TRL") == 2
