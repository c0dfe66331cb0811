"""A message that names a setting of VADE says where it goes, if the configuration has no place for it."""

import pytest
from trl import GRPOConfig

from tests.support.refusals import refused, says
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import ConfigurationError, SnapshotMismatchError


@pytest.mark.parametrize(
    "changes", [{"shuffle_dataset": False}, {"accelerator_config": {"split_batches": True}}], ids=str
)
def test_a_plain_config_is_told_of_the_one_that_has_the_setting(text_rows, make_args, changes):
    offers = ["vade_sampler='uniform'", "VADEGRPOConfig"]
    with refused(ConfigurationError, ["GRPOConfig", *changes], offers) as raised:
        VADEGRPOTrainer("/no/model", says_a_digit, make_args(GRPOConfig, **changes), text_rows)
    assert raised.value.__cause__ is None


def test_no_config_at_all_is_told_the_same(text_rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
    with refused(ConfigurationError, ["train_dataset"], ["VADEGRPOConfig"]):
        VADEGRPOTrainer("/no/model", says_a_digit, train_dataset=text_rows.to_iterable_dataset())


def test_a_config_that_has_the_setting_is_not(text_rows, make_args):
    with pytest.raises(ConfigurationError) as raised:
        VADEGRPOTrainer("/no/model", says_a_digit, make_args(), text_rows.to_iterable_dataset())
    assert not says(str(raised.value), "VADEGRPOConfig")


def test_nor_is_a_plain_config_by_a_message_about_stock_settings(text_rows, make_args):
    with pytest.raises(ConfigurationError) as raised:
        VADEGRPOTrainer("/no/model", says_a_digit, make_args(GRPOConfig), text_rows.select(range(3)))
    assert not says(str(raised.value), "VADEGRPOConfig")


def test_training_says_so_too(text_model_path, text_rows, make_args, checkpointed_run):
    _, folder = checkpointed_run()
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(GRPOConfig), text_rows)
    with refused(ConfigurationError, [folder], ["resume_from_checkpoint='auto'"]):
        trainer.train()
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(GRPOConfig), text_rows.select(range(12)))
    with refused(SnapshotMismatchError, [24, 12], ["vade_posterior_init", "VADEGRPOConfig"]):
        trainer.train(resume_from_checkpoint=True)
