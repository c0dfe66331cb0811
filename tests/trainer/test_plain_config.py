"""A message that names a setting of VADE says where it goes, if the configuration has no place for it."""

import pytest
from trl import GRPOConfig

from tests.support.refusals import refused, says
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import ConfigurationError, SnapshotMismatchError


@pytest.mark.parametrize("args", [None, GRPOConfig, VADEGRPOConfig])
def test_a_config_without_the_setting_is_told_of_the_one_that_has_it(
    text_rows, make_args, tmp_path, monkeypatch, args
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    rewards = [says_a_digit, says_a_digit]  # two of one name
    monkeypatch.setattr("trl_vade.trainer.preflight.make_signal", refuse)
    with refused(ConfigurationError, ["vade_success_reward"]) as raised:
        VADEGRPOTrainer("/no/model", rewards, args and make_args(args), text_rows)
    assert says(str(raised.value), "VADEGRPOConfig") == (args is not VADEGRPOConfig)


def refuse(*arguments):
    raise ConfigurationError("Set vade_success_reward.")


def test_training_says_so_too(text_model_path, text_rows, make_args, checkpointed_run):
    _, folder = checkpointed_run()
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(GRPOConfig), text_rows)
    with refused(ConfigurationError, [folder], ["resume_from_checkpoint='auto'"]):
        trainer.train()
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(GRPOConfig), text_rows.select(range(12)))
    with refused(SnapshotMismatchError, [24, 12], ["vade_posterior_init", "VADEGRPOConfig"]):
        trainer.train(resume_from_checkpoint=True)
