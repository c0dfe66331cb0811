"""`VADEGRPOTrainer` mixed with other trainers, and subclassed: what that changes counts, or is refused by name.

A sampler or a loader of the user's, and who is refused beside it: `test_preflight.py`.
"""

from dataclasses import dataclass

import pytest
import torch
from trl import GRPOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

from tests.support.marks import slow, slow_but
from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights, says_a_digit, weights
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.selection.on_time import logger
from trl_vade.trainer.seams import SEE_ROWS


class VADEFirst(VADEGRPOTrainer, GMPOTrainer):
    pass


class GMPOFirst(GMPOTrainer, VADEGRPOTrainer):
    pass


@dataclass
class MixedConfig(GMPOConfig, VADEGRPOConfig):
    pass


@pytest.mark.parametrize("by_name", [True, slow(False)])
@pytest.mark.parametrize("mixed", [VADEFirst, GMPOFirst])
def test_mixed_with_gmpo_uniform_is_gmpo_and_thompson_chooses(
    text_model_path, text_rows, make_args, tmp_path, mixed, by_name
):
    def end_of(kind, config, **changes):
        folder = str(tmp_path / str(len(list(tmp_path.iterdir()))))
        args = make_args(config, max_steps=3, num_iterations=2, output_dir=folder, **changes)
        named = {"model": text_model_path, "reward_funcs": says_a_digit, "args": args}
        given = {} if by_name else named  # GMPOTrainer takes three arguments by their places
        trainer = kind(*given.values(), **named if by_name else {}, train_dataset=text_rows)
        trainer.train()
        return trainer

    gmpo, uniform = end_of(GMPOTrainer, GMPOConfig), end_of(mixed, MixedConfig, vade_sampler="uniform")
    assert_equal_weights(weights(uniform), weights(gmpo))
    chosen = end_of(mixed, MixedConfig)
    assert not all(value.equal(weights(gmpo)[name]) for name, value in weights(chosen).items())
    assert chosen.selection.sampler.posterior.step == 2


class Paced(GRPOTrainer):
    def __init__(self, *arguments, pace, **named):
        super().__init__(*arguments, **named)
        self.pace = pace


class VADEPaced(VADEGRPOTrainer, Paced):
    pass


def test_a_parent_with_an_argument_of_its_own_receives_it(made):
    assert made(trainer_class=VADEPaced, more={"pace": 3}).pace == 3


def in_order(self, dataset=None):
    sampler = GRPOTrainer._get_train_sampler(self, dataset)
    sampler.shuffle = False
    return sampler


class InOrder(VADEGRPOTrainer):
    _get_train_sampler = in_order


class StockInOrder(GRPOTrainer):
    _get_train_sampler = in_order


def test_with_uniform_an_own_sampler_is_heard_as_in_stock(run, caplog):
    def play(kind, **settings):
        asked = []

        def noting(completions, limit, id, **columns):
            asked.append(id[::4])
            return says_a_digit(completions, limit)

        return run(noting, trainer_class=kind, **settings), asked

    (stock, of_stock), (ours, of_ours) = play(StockInOrder), play(InOrder, vade_sampler="uniform")
    assert of_ours == of_stock
    assert of_ours[0] == [f"row-{number}" for number in range(4)]
    assert_equal_weights(weights(ours), weights(stock))
    assert ours.selection is None
    assert "InOrder._get_train_sampler" in caplog.text


# ---------------------------------------------------------------------------------- subclasses that see the rows


class Noting:
    """What the subclasses below do with a batch: they note its rows, and change the training by all of them."""

    rows = ()

    def note(self, batch):
        self.rows = (*self.rows, len(batch["completion_ids"]))
        return batch

    def a_loss(self, model, batch):
        return 1e-2 * model(self.note(batch)["completion_ids"]).logits.square().mean()


class SeesInputs(Noting, VADEGRPOTrainer):
    def _prepare_inputs(self, generation_batch):
        batch = self.note(super()._prepare_inputs(generation_batch))
        return batch | {"advantages": batch["advantages"] - 0.1}


class SeesSteps(Noting, VADEGRPOTrainer):
    def training_step(self, model, inputs, num_items_in_batch):
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.accelerator.backward(self.a_loss(model, self._buffered_inputs[0]))
        return loss


class SeesLosses(Noting, VADEGRPOTrainer):
    def compute_loss(self, model, inputs, *positional, **named):
        return super().compute_loss(model, inputs, *positional, **named) + self.a_loss(model, inputs)


class SeesInnerLosses(Noting, VADEGRPOTrainer):
    def _compute_loss(self, model, inputs):
        return super()._compute_loss(model, inputs) + self.a_loss(model, inputs)


class SeesPasses(Noting, VADEGRPOTrainer):
    def _get_per_token_logps_and_entropies(self, model, input_ids, *positional, **named):
        self.note({"completion_ids": input_ids})
        return super()._get_per_token_logps_and_entropies(model, input_ids, *positional, **named)


SEEING = dict(zip(SEE_ROWS, (SeesInputs, SeesSteps, SeesLosses, SeesInnerLosses, SeesPasses), strict=True))


@pytest.mark.parametrize("method", slow_but([*SEEING][:2], SEEING))
def test_a_subclass_that_sees_the_rows_gets_all_of_them_and_the_log_says_so(run, caplog, method):
    kind = SEEING[method]
    ends = [run(trainer_class=kind, vade_down_sampling=mode, num_iterations=2) for mode in (None, "none")]
    assert {*ends[0].rows, *ends[1].rows} == {16}
    assert caplog.text.count(f"trained on, too: {kind.__name__}.{method}") == 1  # nobody asks for less with "none"
    assert_equal_weights(*map(weights, ends))


class OwnRewards(VADEGRPOTrainer):
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids):
        return torch.eye(4)[:1].T.repeat(len(prompts) // 4, 1)


def test_a_subclass_whose_rewards_pass_by_the_sampler_is_told_so(run, caplog):
    logger.warning_once.cache_clear()  # said before, in another test
    assert run(trainer_class=OwnRewards, max_steps=2).selection.sampler.posterior.step == 0
    assert "let _calculate_rewards call super()" in caplog.text


class OwnPrompts(VADEGRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        return super()._generate_and_score_completions(inputs)


def test_refills_are_refused_where_a_subclass_would_not_see_them(made):
    with refused(ConfigurationError, ["OwnPrompts._generate_and_score_completions"], ["vade_dynamic_sampling=False"]):
        made(trainer_class=OwnPrompts, vade_dynamic_sampling=True)
