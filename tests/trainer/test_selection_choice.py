"""Settings -> sampler: every setting arrives, and a sampler of a user's own tells of itself.

Resume with such a sampler: `test_battery.py`. A wrong path of one: `test_preflight.py`.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.own_samplers import OWN, WorstLast
from trl_vade import load_posterior
from trl_vade.data.row_views import prompt_texts
from trl_vade.samplers.priors import prompt_words
from trl_vade.samplers.problems import VariantRows
from trl_vade.selection.report.summary import summarise
from trl_vade.trainer.report import live_run
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler


def settings_of(sampler):
    return sampler.state_dict()["settings"]


def test_every_setting_of_the_thompson_sampler_arrives(make_args):
    args = make_args(vade_cooldown=0.5, num_generations=8, seed=9)
    sampler = make_sampler(args, 8, num_groups=2)
    wanted = {"gain": "asymmetric", "greedy": False, "cooldown": 2, "decay_sampled": 0.2, "decay_unsampled": 0.999}
    wanted |= {"prior": "prompts", "even_rest": 4, "num_generations": 8, "signal_aware_decay": True}
    assert settings_of(sampler).items() >= wanted.items()
    assert sampler.state_dict()["seed"] == 9
    strata = make_sampler(make_args(vade_stratify_by="source"), 8, num_groups=2, stratify=["x", "y", "y", "y"] * 2)
    assert len(settings_of(strata)["stratify"]) == 64


def test_a_cooldown_is_a_share_of_an_epoch(make_args):
    cases = {(0.2, 8524, 512): 3, (0, 9, 3): 0, (0.2, 8, 8): 0, (0.2, 1000, 50): 4}
    assert {case: cooldown_steps(*case) for case in cases} == cases
    assert settings_of(make_sampler(make_args(vade_preset="frontier"), 1000, num_groups=50))["cooldown"] == 4


def test_the_epoch_of_problems_counts_them_and_not_their_variants(make_args):
    kinds = ("original", *(f"hint-{number}" for number in range(1, 10)))
    variants = VariantRows(np.repeat(np.arange(0, 400, 10), 10), np.tile(np.arange(10), 40), kinds)
    of = {"num_groups": 4, "variants": variants}
    pairs = settings_of(make_sampler(make_args(vade_variants="of"), 400, **of))
    assert pairs["cooldown"] == 10  # 0.5 of the 20 generation batches with two of the 40 problems each
    rows = settings_of(make_sampler(make_args(vade_variants="of", vade_variant_groups=0), 400, **of))
    assert (rows["cooldown"], rows["prior"]) == (50, "prompts")


def test_the_prompts_arrive_and_without_them_rows_differ_by_nothing_that_the_prior_knows(made, text_rows, make_args):
    assert made().selection.sampler._words.tolist() == prompt_words(prompt_texts(text_rows)).tolist()
    for prompts, rates in ((["a long question", "a short question"] * 20, [0.2, 0.8]), (None, [0.5, 0.5])):
        sampler = make_sampler(make_args(), 40, num_groups=4, prompts=prompts)
        sampler.observe(np.arange(36), np.tile([1, 7], 18), np.full(36, 8))
        a, b = sampler.belief([36, 37])
        assert (a / (a + b)).tolist() == pytest.approx(rates, abs=0.1)


@pytest.mark.parametrize("sampler", [WorstLast(24), OWN], ids=["an object", "a path"])
def test_its_path_stands_in_settings_posterior_and_summary(run, sampler):
    trainer = run(vade_sampler=sampler, max_steps=2)
    assert "vade/failed_last" in trainer.state.log_history[0]
    trainer.save_model()
    args, folder = trainer.args, Path(trainer.args.output_dir)
    saved = torch.load(folder / "training_args.bin", weights_only=False).vade_sampler
    assert [saved, json.loads(args.to_json_string())["vade_sampler"], args.to_dict()["vade_sampler"]] == [OWN] * 3
    assert OWN in str(args)
    assert load_posterior(folder).metadata["sampler"] == OWN
    assert summarise(live_run(trainer))["sampler"] == trainer.selection.sampler.kind


def test_a_second_training_starts_with_the_object_as_it_was_given(run):
    # Rows that were right come last, so that a sampler that remembers them begins with others.
    trainer = run(lambda completions, **columns: [1.0] * len(completions), vade_sampler=WorstLast(24), max_steps=2)
    first = trainer.selection.feedback.log.read()
    trainer.train()
    assert trainer.selection.feedback.log.read()[0]["sample_index"] == first[0]["sample_index"]
