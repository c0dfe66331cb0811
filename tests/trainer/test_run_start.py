"""What each `train()` begins with: the rows that the trainer has by then, and a posterior that is about this run."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainerCallback, set_seed
from transformers.trainer_utils import HPSearchBackend
from trl import GRPOTrainer

from tests.support.as_stock import full_history, plain_history
from tests.support.marks import slow, slow_but
from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights, assert_same_end, logged, says_a_digit, weights
from trl_vade import VADEGRPOTrainer
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


def with_a_list(base):
    class Replacing(base):
        """A class whose rows come after `super().__init__`, and are no `Dataset`."""

        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.train_dataset = list(self.train_dataset)

    return Replacing


@pytest.mark.parametrize("sampler", [None, "uniform"])
def test_replaced_rows_that_no_sampler_can_choose_from_are_trained_on_as_in_stock_until_there_are_others(
    run, text_rows, caplog, sampler
):
    settings = {"save_strategy": "steps", "save_steps": 1, "max_steps": 2, "logging_steps": 2}
    stock = run(trainer_class=with_a_list(GRPOTrainer), **settings)
    ours = run(trainer_class=with_a_list(VADEGRPOTrainer), vade_sampler=sampler, **settings)
    assert_equal_weights(weights(ours), weights(stock))
    assert plain_history(ours) == plain_history(stock) == full_history(ours)
    assert (ours.selection, ours._batch) == (None, None)
    assert caplog.text.count("This run is plain GRPO") == 1
    assert not [*Path(ours.args.output_dir).glob("**/*posterior*")]
    ours.args.max_steps = 3
    ours.train(resume_from_checkpoint=True)
    assert ours.state.global_step == 3
    ours.train_dataset, ours.args.output_dir = text_rows.select(range(12)), f"{ours.args.output_dir}-2"
    ours.train()
    assert (ours.selection.sampler.kind, len(ours.selection.dataset)) == (sampler or "thompson", 12)
    assert ours.selection.sampler.posterior.step == 3
    assert ours._batch.thinning.mode == ("lossless" if sampler is None else "none")


@pytest.mark.parametrize("settings", [{"vade_dynamic_sampling": True}, {"vade_stratify_by": "limit"}])
def test_replaced_rows_are_refused_where_a_setting_needs_a_posterior_and_the_next_run_is_as_without_them(
    made, run, text_rows, settings
):
    trainer, rows = made(max_steps=2, **settings), text_rows.to_iterable_dataset()
    trainer.train_dataset, first = rows, trainer.train_dataset
    with refused(ConfigurationError, settings):
        trainer.train()
    trainer.train_dataset = first
    trainer.train()
    assert_equal_weights(weights(trainer), weights(run(max_steps=2, **settings)))


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
    offers = [f"vade_posterior_init='{trainer.args.output_dir}/checkpoint-2'"]
    with refused(ValueError, ["rows was 24 and is 12"], offers) as error:
        trainer.train(resume_from_checkpoint=True)
    assert "fingerprint" not in str(error.value)  # hashes


def test_a_model_that_trains_nothing_is_refused(made):
    for beta in (0.0, 0.1):
        trainer = made(beta=beta)
        trainer.model.requires_grad_(False)
        with refused(ConfigurationError, ["requires_grad"], ["is_trainable=True", "peft_config"]):
            trainer.train()


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


def fails(when, reward=says_a_digit):
    """A reward that fails when `when`, of the number of calls and the trainer's state, is true for the first time."""
    calls = []

    def judge(completions, trainer_state, **columns):
        calls.append(None)
        if when is not None and when(len(calls), trainer_state) and not judge.failed:
            judge.failed = True
            raise ConnectionError("the judge is gone")
        return reward(completions, **columns)

    judge.failed = False
    return judge


class FailsAt(TrainerCallback):
    def __init__(self, event):
        setattr(self, f"on_{event}", self.fail)

    def fail(self, *given, **more):
        vars(self).clear()
        raise ConnectionError


class FailsInItsLoss(VADEGRPOTrainer):
    sound = ()  # steps

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if self.state.global_step == 1 and not self.sound:
            self.sound = (1,)
            raise ConnectionError
        return loss


EVALUATED = {"eval_strategy": "steps", "eval_steps": 1}
PHASES = {  # of a `train()`: what fails in it, and other settings
    "initial rollouts": (fails(lambda call, state: call == 3), {"vade_posterior_init": "rollout"}),
    "a later generation batch": (fails(lambda call, state: call == 2), {}),
    "a refill": (
        fails(lambda call, state: call == 3, lambda completions, **_: [0.0] * len(completions)),
        {"vade_dynamic_sampling": True},
    ),
    "the loss": (says_a_digit, {"trainer_class": FailsInItsLoss, "num_iterations": 2, "ignore_data_skip": True}),
    "the end of a step": (says_a_digit, {"event": "step_end", "vade_sampler": "uniform", "ignore_data_skip": True}),
    "a save": (says_a_digit, {"event": "save", "save_strategy": "steps", "save_steps": 1, "save_total_limit": 3}),
    "an evaluation": (fails(lambda call, state: call == 3), EVALUATED | {"max_steps": 2}),
}


def second_and_first(trainer, make):
    """The ends of another `train()` of a trainer, and of the first one of a new trainer with its weights."""
    new = make()
    new.model.load_state_dict(trainer.model.state_dict())
    trainer.optimizer = trainer.lr_scheduler = None  # as in a search; else the moments go on, as in stock
    for each in (trainer, new):
        set_seed(3)
        each.args.output_dir = f"{each.args.output_dir}-again"
        each.train()
    return trainer, new


@pytest.mark.parametrize("phase", PHASES)
def test_a_run_that_fails_leaves_nothing_of_itself_to_the_next(made, text_rows, phase):
    reward, settings = PHASES[phase]
    event = settings.get("event")
    settings = {name: value for name, value in settings.items() if name != "event"} | {"max_steps": 3}

    def make(failing=False):
        callbacks = [FailsAt(event)] if event and failing else []
        more = {"callbacks": callbacks, "eval_dataset": text_rows.select(range(4))}
        trainer = made(reward, more=more, **settings)
        trainer.sound = () if failing else (1,)
        return trainer

    trainer = make(failing=True)
    with pytest.raises(ConnectionError):
        trainer.train()
    again, first = second_and_first(trainer, make)
    assert_same_end(again, first)
    assert full_history(again)[:-1] == full_history(first)[:-1]


SETTINGS = {
    "default, ended inside a generation batch": {"num_iterations": 2},
    "dynamic sampling and a transform": {"vade_dynamic_sampling": True},
    "d3s": {"vade_down_sampling": "d3s"},
    "initial rollouts": {"vade_posterior_init": "rollout"},
    "the entropy's controller": {"use_adaptive_entropy": True, "entropy_coef_delta": 0.1},
    "uniform": {"vade_sampler": "uniform", "num_iterations": 2},
}


@pytest.mark.parametrize("case", slow_but(list(SETTINGS)[:3], SETTINGS))
def test_another_training_is_the_first_one_of_a_new_trainer(run, made, text_rows, case):
    rows = text_rows.with_transform(dict) if "transform" in case else text_rows
    settings = {"max_steps": 3} | SETTINGS[case]
    again, first = second_and_first(run(rows=rows, **settings), lambda: made(rows=rows, **settings))
    assert_same_end(again, first)
    assert full_history(again)[:-1] == full_history(first)[:-1]


@pytest.mark.parametrize("sampler", slow_but(["thompson"], ["uniform", "thompson"]))
def test_the_trials_of_a_hyperparameter_search_can_be_compared(begin, monkeypatch, sampler):
    """The trainer is called as `run_hp_search_optuna` of transformers 5.23 does it."""
    monkeypatch.setattr("transformers.integrations.hp_params", lambda trial: trial.params)  # it asks for optuna
    trainer, batches = begin(sampler)
    model, first, ends = trainer.model, weights(trainer), []
    trainer.model_init = lambda: model.load_state_dict(first) and model  # TRL has changed its forward
    trainer.hp_search_backend, trainer.hp_name = HPSearchBackend.OPTUNA, None
    trainer.hp_space = lambda trial: trial.params
    for number in range(3):
        trainer.train(trial=SimpleNamespace(number=number, params={"seed": 5}))
        ends.append(weights(trainer))
    assert batches[0] == batches[6]  # that the trainer was made with another seed makes no difference
    assert batches[6:12] == batches[12:]  # transformers 5.23 samples a trial's completions with the seed before
    assert_equal_weights(ends[1], ends[2])
    assert trainer.selection.sampler.posterior.step == 6
    assert len(list(trainer.selection.feedback.log.path.parent.glob("vade_selection-*"))) == 2
