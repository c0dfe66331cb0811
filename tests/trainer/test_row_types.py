"""What is no `datasets.Dataset` is refused before a model is loaded, each kind with its own way out."""

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


@pytest.fixture
def refuse(make_args):
    """A function that expects a trainer with these rows to be refused, and returns the message."""

    def check(rows, names, offers, environment=None, **changes):
        with refused(ConfigurationError, ["train_dataset", *names], offers) as raised:
            VADEGRPOTrainer(
                "/no/model",
                says_a_digit,
                make_args(**changes),
                rows,
                environment_factory=environment,
            )
        return str(raised.value)

    return check


def test_no_rows_at_all_are_asked_for(refuse):
    assert "streaming" not in refuse(None, ["None"], ["datasets.Dataset"])


def test_an_environment_that_owns_its_data_has_no_rows_to_choose_from(refuse):
    message = refuse(
        None, ["environment", "'thompson'"], ["vade_sampler='uniform'", "train_dataset"], environment=Game
    )
    assert "streaming" not in message


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("length", [None, 40])
def test_the_splits_of_a_dictionary_are_named(refuse, text_rows, streamed, length):
    rows = text_rows.to_iterable_dataset() if streamed else text_rows
    splits = (IterableDatasetDict if streamed else DatasetDict)({"train": rows, "held_out": rows})
    offers = ["train_dataset['train']"]
    refuse(splits, [type(splits).__name__, "train", "held_out"], offers, vade_max_prompt_length=length)


def test_a_list_is_to_be_made_a_data_set(refuse, text_rows):
    refuse(list(text_rows), ["list"], ["datasets.Dataset.from_list"])


@pytest.mark.parametrize(
    ("rows", "error"), [(None, ValueError), ([{"prompt": "say"}], TypeError)], ids=["none", "list"]
)
def test_under_uniform_the_stock_trainer_says_what_it_needs(text_model_path, make_args, rows, error):
    with refused(error, ["`train_dataset`"]):
        VADEGRPOTrainer(text_model_path, says_a_digit, make_args(vade_sampler="uniform"), rows)


def test_an_environment_that_owns_its_data_trains_under_uniform(tmp_path, make_args):
    model, args = make_agent_model(tmp_path / "model"), make_args(vade_sampler="uniform", max_steps=1)
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
