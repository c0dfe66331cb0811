"""What each `train()` begins with: the rows that the trainer has by then, and a posterior that is about this run."""

from types import SimpleNamespace

import pytest
from transformers.trainer_utils import HPSearchBackend
from trl import GRPOTrainer

from tests.support.marks import slow, slow_but
from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights, logged, says_a_digit, weights
from trl_vade.errors import ConfigurationError
from trl_vade.selection.log import SelectionLog


@pytest.fixture
def begin(made):
    """A function that returns a trainer on 24 rows, and the ids that it is asked about in each generation batch."""

    def make(sampler="thompson", **settings):
        asked = []

        def noting(completions, limit, id, **columns):
            asked.append(id[::4])
            return says_a_digit(completions, limit)

        kind = {"trainer_class": GRPOTrainer} if sampler == "stock" else {"vade_sampler": sampler}
        return made(noting, **kind | settings), asked

    return make


def replace_rows(trainer, text_rows):
    for rows in (range(12, 24), range(4, 16), range(4, 16)):
        trainer.train_dataset = text_rows.select(rows)
        trainer.train()


def train_twice(trainer, text_rows):
    for steps in (4, 8):
        trainer.args.max_steps = steps
        trainer.train()


@pytest.mark.parametrize("play", [slow(replace_rows), train_twice])
def test_with_uniform_further_trainings_and_replaced_rows_are_as_in_stock(begin, text_rows, play):
    found = []
    for sampler in ("stock", "uniform"):
        trainer, asked = begin(sampler)
        play(trainer, text_rows)
        found.append((asked, weights(trainer)))
    assert found[0][0] == found[1][0]
    assert_equal_weights(found[0][1], found[1][1])


# --------------------------------------------------------------------------------------------------- other rows


def test_replaced_rows_are_looked_at_as_those_of_the_beginning(begin, text_rows):
    trainer, _ = begin(vade_stratify_by="limit")
    for rows, words in (
        (text_rows.select(range(3)), ["train_dataset", "3 rows"]),
        (text_rows.to_iterable_dataset(), ["train_dataset", "IterableDataset"]),
        (text_rows.remove_columns("limit"), ["vade_stratify_by='limit'"]),
    ):
        trainer.train_dataset = rows
        with refused(ConfigurationError, words):
            trainer.train()


def test_replaced_rows_are_trained_on_and_those_that_are_too_long_are_dropped(begin, text_rows):
    trainer, asked = begin(vade_max_prompt_length=40)
    trainer.train()
    asked.clear()
    long = [{"role": "user", "content": "say a digit " * 30}]
    trainer.train_dataset = text_rows.map(
        lambda row, number: {"prompt": long if number < 8 else row["prompt"]}, with_indices=True
    )
    trainer.train()
    assert (trainer.selection.sampler.posterior.num_samples, trainer.selection.sampler.posterior.step) == (16, 6)
    assert not {name for batch in asked for name in batch} & {f"row-{number}" for number in range(8)}


def test_a_resume_on_replaced_rows_is_a_mismatch(begin, text_rows):
    trainer, _ = begin(save_strategy="steps", save_steps=1, max_steps=2)
    trainer.train()
    trainer.train_dataset = text_rows.select(range(12))
    with refused(ValueError, ["rows", 24, 12], ["vade_posterior_init"]):
        trainer.train(resume_from_checkpoint=True)


# ------------------------------------------------------------------------------------------------- another train()


def test_another_training_on_the_same_rows_begins_anew_and_keeps_the_log_of_the_first(begin):
    trainer, asked = begin()
    trainer.train()
    log = SelectionLog(trainer.args.output_dir)
    first = log.read()
    trainer.args.max_steps = 2
    trainer.train()
    assert asked[6] == asked[0]  # nothing is known, so the first draw is the same one
    assert trainer.selection.sampler.posterior.step == 2
    assert trainer.selection.feedback.rollouts == 2 * 16
    assert logged(trainer, "vade/trained_completions")[-1] <= 2 * 16
    assert [line["step"] for line in log.read()] == [1, 2]
    log.path.with_name("vade_selection-1.jsonl").replace(log.path)
    assert log.read() == first


def test_a_resume_in_the_same_trainer_goes_on(begin):
    trainer, _ = begin(save_strategy="steps", save_steps=1, max_steps=2)
    trainer.train()
    trainer.args.max_steps = 3
    trainer.train(resume_from_checkpoint=True)
    assert trainer.selection.sampler.posterior.step == 3
    assert len(trainer.selection.feedback.log.read()) == 3


@pytest.fixture
def try_seeds(begin, monkeypatch):
    """A function that runs a trial for each seed, as `run_hp_search_optuna` of transformers 5.23 calls the trainer.

    It returns the trainer, the rows of all generation batches, and the weights at the end of each trial.
    """
    monkeypatch.setattr("transformers.integrations.hp_params", lambda trial: trial.params)  # it asks for optuna

    def run(sampler, *seeds):
        trainer, asked = begin(sampler)
        model, first = trainer.model, weights(trainer)
        trainer.model_init = lambda: model.load_state_dict(first) and model  # TRL has changed its forward
        trainer.hp_search_backend, trainer.hp_name, ends = HPSearchBackend.OPTUNA, None, []
        trainer.hp_space = lambda trial: trial.params
        for number, seed in enumerate(seeds):
            trainer.train(trial=SimpleNamespace(number=number, params={"seed": seed}))
            ends.append(weights(trainer))
        return trainer, asked, ends

    return run


@pytest.mark.parametrize("sampler", slow_but(["thompson"], ["uniform", "thompson"]))
def test_the_trials_of_a_hyperparameter_search_can_be_compared(try_seeds, sampler):
    trainer, batches, ends = try_seeds(sampler, 5, 5, 5)
    assert batches[0] == batches[6]  # that the trainer was made with another seed makes no difference
    assert batches[6:12] == batches[12:]  # transformers 5.23 samples a trial's completions with the seed before
    assert_equal_weights(ends[1], ends[2])
    assert trainer.selection.sampler.posterior.step == 6
    assert len(list(trainer.selection.feedback.log.path.parent.glob("vade_selection-*"))) == 2
    if sampler == "uniform":
        _, stock, theirs = try_seeds("stock", 5, 5, 5)
        assert batches == stock
        for mine, other in zip(ends, theirs, strict=True):
            assert_equal_weights(mine, other)
