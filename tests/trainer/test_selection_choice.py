"""Settings -> sampler: every setting arrives, every kind is made, what does not fit is refused."""

import numpy as np
import pytest

from tests.support.own_samplers import OWN
from trl_vade.samplers.problems import VariantRows
from trl_vade.trainer.own_sampler import SAMPLERS
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler


def settings_of(sampler):
    return sampler.state_dict()["settings"]


def test_a_preset_arrives_with_the_cooldown_in_generation_batches(make_args):
    made = settings_of(make_sampler(make_args(vade_preset="frontier"), 1000, num_groups=50))
    assert made["gain"] == "asymmetric"
    assert made["signal_aware_decay"] is True
    assert made["cooldown"] == 4  # 0.2 of the 20 generation batches of an epoch


@pytest.mark.parametrize(
    ("share", "num_samples", "num_groups", "steps"), [(0.2, 8524, 512, 3), (0, 9, 3, 0), (0.2, 8, 8, 0)]
)
def test_a_cooldown_is_a_share_of_an_epoch(share, num_samples, num_groups, steps):
    assert cooldown_steps(share, num_samples, num_groups) == steps


def test_the_epoch_of_problems_counts_them_and_not_their_variants(make_args):
    kinds = ("original", *(f"hint-{number}" for number in range(1, 10)))
    of, kind = np.repeat(np.arange(0, 400, 10), 10), np.tile(np.arange(10), 40)
    pairs = make_args(vade_variants="of")
    made = settings_of(make_sampler(pairs, 400, num_groups=4, variants=VariantRows(of, kind, kinds)))
    assert made["cooldown"] == 10  # 0.5 of the 20 generation batches with two of the 40 problems each
    rows = make_args(vade_variants="of", vade_variant_groups=0)
    made = settings_of(make_sampler(rows, 400, num_groups=4, variants=VariantRows(of, kind, kinds)))
    assert (made["cooldown"], made["prior"]) == (50, "prompts")


def test_every_setting_of_the_thompson_sampler_arrives(make_args):
    args = make_args(
        vade_information_gain="asymmetric",
        vade_decay_sampled=0.3,
        vade_decay_unsampled=0.9,
        vade_cooldown=0.5,
        vade_stratify_by="source",
        seed=9,
    )
    sampler = make_sampler(args, 8, num_groups=2, stratify=["x", "y", "y", "y"] * 2)
    made = settings_of(sampler)
    assert len(made.pop("stratify")) == 64
    assert made == {
        "gain": "asymmetric",
        "greedy": False,
        "cooldown": 2,
        "prior": "prompts",
        "even_rest": 4,
        "num_generations": 4,
        "decay_sampled": 0.3,
        "decay_unsampled": 0.9,
        "signal_aware_decay": True,
    }
    assert sampler.state_dict()["seed"] == 9


def test_rows_rest_by_even_draws_and_the_prompts_arrive(make_args):
    prompts = ["a long question", "a short question"] * 20
    sampler = make_sampler(make_args(num_generations=8), 40, num_groups=4, prompts=prompts)
    made = settings_of(sampler)
    assert (made["cooldown"], made["even_rest"], made["num_generations"], made["prior"]) == (5, 10, 8, "prompts")
    sampler.observe(np.arange(36), np.tile([1, 7], 18), np.full(36, 8))
    a, b = sampler.belief([36, 37])
    assert (a / (a + b)).tolist() == pytest.approx([0.2, 0.8], abs=0.1)


def test_without_prompts_rows_differ_by_nothing_that_the_prior_knows(make_args):
    sampler = make_sampler(make_args(), 40, num_groups=4)
    sampler.observe(np.arange(36), np.tile([1, 7], 18), np.full(36, 8))
    a, b = sampler.belief([36, 37])
    assert a.tolist() == pytest.approx(b.tolist(), abs=0.02)


@pytest.mark.parametrize("kind", ["thompson", "greedy"])
def test_a_stratified_sampler_takes_its_shares(make_args, kind):
    args = make_args(vade_sampler=kind, vade_stratify_by="task")
    sampler = make_sampler(args, 40, num_groups=4, stratify=["a", "b", "b", "b"] * 10)
    for _ in range(5):
        assert np.count_nonzero(sampler.draw(4).sample_index % 4 == 0) == 1


@pytest.mark.parametrize("kind", [*SAMPLERS, OWN])
def test_every_kind_is_made_and_draws_and_learns(make_args, kind):
    sampler = make_sampler(make_args(vade_sampler=kind), 40, num_groups=4)
    for _ in range(3):
        rows = sampler.draw(4).sample_index
        sampler.observe(rows, np.full(4, 3), np.full(4, 8))
    assert sampler.posterior.step == 3
