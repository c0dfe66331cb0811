"""A run with a sampler of a user's own: it trains and tells of itself. Its resume: `test_battery.py`."""

import json
from pathlib import Path

import pytest
import torch

from tests.support.own_samplers import OWN, WorstLast
from tests.support.runs import train
from trl_vade import load_posterior


@pytest.mark.parametrize("sampler", [WorstLast(24), OWN], ids=["an object", "a path"])
def test_its_path_stands_in_settings_posterior_and_summary(text_model_path, text_rows, make_args, sampler):
    args = make_args(vade_sampler=sampler, max_steps=2, save_strategy="steps", save_steps=2)
    trainer = train(text_model_path, text_rows, args, report=True)
    assert "vade/failed_last" in trainer.state.log_history[0]
    trainer.save_model()
    folder = Path(args.output_dir)
    saved = torch.load(folder / "training_args.bin", weights_only=False).vade_sampler
    assert [saved, json.loads(args.to_json_string())["vade_sampler"], args.to_dict()["vade_sampler"]] == [OWN] * 3
    assert OWN in str(args)
    assert load_posterior(folder).metadata["sampler"] == OWN
    assert json.loads((folder / "vade_summary.json").read_text())["sampler"] == trainer.selection.sampler.kind


def test_a_second_training_starts_with_the_object_as_it_was_given(run):
    trainer = run(vade_sampler=WorstLast(24), max_steps=2)
    first = trainer.selection.feedback.log.read()
    trainer.train()
    assert trainer.selection.feedback.log.read()[0]["sample_index"] == first[0]["sample_index"]
