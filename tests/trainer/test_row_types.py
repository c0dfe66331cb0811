"""What is no `datasets.Dataset` is left to TRL, or refused before a model is loaded."""

import pytest
from datasets import DatasetDict, IterableDatasetDict

from tests.support.agents import agent_tokenizer, board_rows, make_agent_model
from tests.support.refusals import refused
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import ConfigurationError


class Game:
    def reset(self, **row):
        return "say a digit"

    def get_reward(self):
        return 1.0


@pytest.mark.parametrize("kind", ["NoneType", "IterableDataset", "DatasetDict", "IterableDatasetDict", "list"])
def test_what_is_no_data_set_is_refused_by_name_where_a_choice_was_asked_for(make_args, text_rows, kind):
    stream = text_rows.to_iterable_dataset()
    rows = {
        "NoneType": None,
        "IterableDataset": stream,
        "DatasetDict": DatasetDict({"train": text_rows}),
        "IterableDatasetDict": IterableDatasetDict({"train": stream}),
        "list": list(text_rows),
    }
    with refused(ConfigurationError, ["train_dataset", kind], ["datasets.Dataset", "vade_sampler='uniform'"]):
        VADEGRPOTrainer("/no/model", says_a_digit, make_args(vade_sampler="thompson"), rows[kind])


@pytest.mark.parametrize(
    ("rows", "error"), [(None, ValueError), ([{"prompt": "say"}], TypeError)], ids=["none", "list"]
)
def test_otherwise_the_stock_trainer_says_what_it_needs(text_model_path, make_args, rows, error):
    with refused(error, ["`train_dataset`"]):
        VADEGRPOTrainer(text_model_path, says_a_digit, make_args(), rows)


def test_an_environment_that_owns_its_data_trains(tmp_path, make_args):
    model, args = make_agent_model(tmp_path / "model"), make_args(max_steps=1)
    tokenizer = agent_tokenizer(model)
    trainer = VADEGRPOTrainer(model, None, args, processing_class=tokenizer, environment_factory=Game)
    trainer.train()
    assert trainer.selection is None
    assert trainer.state.global_step == 1


def test_tasks_of_an_environment_that_share_a_prompt_are_rows_of_their_own(tmp_path, make_args, caplog):
    model, args = make_agent_model(tmp_path / "model"), make_args(max_steps=2)
    tasks = board_rows(12).map(lambda row: {"prompt": [{"role": "user", "content": "say 1"}]})
    trainer = VADEGRPOTrainer(
        model, None, args, tasks, processing_class=agent_tokenizer(model), environment_factory=Game
    )
    trainer.train()
    assert "equal an earlier row" not in caplog.text
    assert trainer.selection.sample_keys[1] == 0
