"""`VADEGRPOTrainer` mixed with other trainers, and subclassed: what that changes counts, or is refused by name."""

from dataclasses import dataclass

import pytest
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights, says_a_digit, train, weights
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.trainer.method_owners import SEE_ROWS


class VADEFirst(VADEGRPOTrainer, GMPOTrainer):
    pass


class GMPOFirst(GMPOTrainer, VADEGRPOTrainer):
    pass


@dataclass
class MixedConfig(GMPOConfig, VADEGRPOConfig):
    pass


# ------------------------------------------------------------------------------------- other subclasses of GRPOTrainer


@pytest.mark.parametrize("by_name", [True, slow(False)])
@pytest.mark.parametrize("mixed", [VADEFirst, GMPOFirst])
def test_mixed_with_gmpo_uniform_is_gmpo_and_thompson_chooses(text_model_path, text_rows, make_args, mixed, by_name):
    ends, folders = [], iter("abc")
    for kind, config, changes in (
        (GMPOTrainer, GMPOConfig, {}),
        (mixed, MixedConfig, {"vade_sampler": "uniform"}),
        (mixed, MixedConfig, {}),
    ):
        folder = make_args().output_dir + next(folders)
        args = make_args(config, max_steps=3, num_iterations=2, output_dir=folder, **changes)
        if by_name:
            named = {"model": text_model_path, "reward_funcs": says_a_digit, "args": args, "train_dataset": text_rows}
            trainer = kind(**named)
        else:  # GMPOTrainer takes three arguments by their places
            trainer = kind(text_model_path, says_a_digit, args, train_dataset=text_rows)
        trainer.train()
        ends.append(weights(trainer))
    assert_equal_weights(ends[0], ends[1])
    assert not all(ends[0][name].equal(ends[2][name]) for name in ends[0])
    assert trainer.selection.sampler.posterior.step == 2


def test_a_parent_with_an_argument_of_its_own_receives_it(text_model_path, text_rows, make_args):
    class Own(GRPOTrainer):
        def __init__(self, *arguments, pace, **named):
            super().__init__(*arguments, **named)
            self.pace = pace

    class Mixed(VADEGRPOTrainer, Own):
        pass

    assert Mixed(text_model_path, says_a_digit, make_args(), text_rows, pace=3).pace == 3


@pytest.mark.parametrize("arguments", [{"paces": 3}, {"model": "another"}])
def test_arguments_that_no_parent_takes_are_refused_as_python_does(text_model_path, text_rows, make_args, arguments):
    with refused(TypeError, [*arguments]):
        VADEGRPOTrainer(text_model_path, says_a_digit, make_args(), text_rows, **arguments)


# ------------------------------------------------------------------------------------------- a sampler of the user's


def in_order(self, dataset=None):
    sampler = GRPOTrainer._get_train_sampler(self, dataset)
    sampler.shuffle = False
    return sampler


class InOrder(VADEGRPOTrainer):
    _get_train_sampler = in_order


class OwnLoader(VADEGRPOTrainer):
    def get_train_dataloader(self):
        return super().get_train_dataloader()


@pytest.mark.parametrize("kind", [InOrder, OwnLoader])
def test_an_own_sampler_or_loader_is_refused_by_name_before_a_model_is_loaded(text_rows, make_args, kind):
    method = "_get_train_sampler" if kind is InOrder else "get_train_dataloader"
    with refused(ConfigurationError, [f"{kind.__name__}.{method}", "'thompson'"], ["vade_sampler='uniform'"]):
        kind("/no/model", says_a_digit, make_args(vade_sampler="thompson"), text_rows)


def test_with_uniform_an_own_sampler_is_heard_as_in_stock(text_model_path, text_rows, make_args, caplog):
    class StockInOrder(GRPOTrainer):
        _get_train_sampler = in_order

    runs = []
    for kind, config, changes in (
        (StockInOrder, GRPOConfig, {}),
        (InOrder, VADEGRPOConfig, {"vade_sampler": "uniform"}),
    ):
        asked = []

        def noting(completions, limit, id, asked=asked, **kwargs):
            asked.append(id[::4])
            return says_a_digit(completions, limit)

        trainer = kind(text_model_path, noting, make_args(config, **changes), text_rows)
        trainer.train()
        runs.append((asked, weights(trainer)))
    assert runs[0][0] == runs[1][0]
    assert runs[1][0][0] == [f"row-{number}" for number in range(4)]
    assert_equal_weights(runs[0][1], runs[1][1])
    assert trainer.selection is None
    assert "InOrder._get_train_sampler" in caplog.text


def test_dynamic_sampling_is_refused_beside_an_own_sampler(text_rows, make_args):
    with refused(ConfigurationError, ["vade_dynamic_sampling=True", "InOrder"], ["vade_dynamic_sampling=False"]):
        InOrder("/no/model", says_a_digit, make_args(vade_sampler="uniform", vade_dynamic_sampling=True), text_rows)


# ---------------------------------------------------------------------------------- subclasses that see the rows


def _seeing(method):
    """A subclass whose `method` notes the rows that it sees, and changes the training by all of them."""

    class Seeing(VADEGRPOTrainer):
        rows = ()

        def note(self, batch):
            self.rows = (*self.rows, len(batch["completion_ids"]))

    def _prepare_inputs(self, generation_batch):
        batch = super(Seeing, self)._prepare_inputs(generation_batch)
        self.note(batch)
        return batch | {"advantages": batch["advantages"] - 0.1}

    def training_step(self, model, inputs, num_items_in_batch):
        loss = super(Seeing, self).training_step(model, inputs, num_items_in_batch)
        self.accelerator.backward(1e-2 * self.a_loss(model, self._prepare_inputs_again(inputs)))
        return loss

    def compute_loss(self, model, inputs, *positional, **named):
        self.note(inputs)
        loss = super(Seeing, self).compute_loss(model, inputs, *positional, **named)
        return loss + 1e-2 * self.a_loss(model, inputs)

    def _compute_loss(self, model, inputs):
        self.note(inputs)
        return super(Seeing, self)._compute_loss(model, inputs) + 1e-2 * self.a_loss(model, inputs)

    def _get_per_token_logps_and_entropies(self, model, input_ids, *positional, **named):
        self.rows = (*self.rows, len(input_ids))
        return super(Seeing, self)._get_per_token_logps_and_entropies(model, input_ids, *positional, **named)

    def a_loss(self, model, batch):
        return model(batch["completion_ids"]).logits.square().mean()

    def _prepare_inputs_again(self, inputs):
        batch = self._buffered_inputs[(self._step - 1) % self.args.steps_per_generation]
        self.note(batch)
        return batch

    Seeing.a_loss, Seeing._prepare_inputs_again = a_loss, _prepare_inputs_again
    setattr(Seeing, method, locals()[method])
    return Seeing


@pytest.mark.parametrize("method", SEE_ROWS)
def test_a_subclass_that_sees_the_rows_gets_all_of_them_and_that_is_said_once(
    text_model_path, text_rows, make_args, caplog, method
):
    ends = []
    for mode in (None, "none"):
        args = make_args(vade_down_sampling=mode, num_iterations=2, output_dir=f"{make_args().output_dir}-{mode}")
        ends.append(train(text_model_path, text_rows, args, trainer_class=_seeing(method)))
        assert {*ends[-1].rows} == {16}
    assert caplog.text.count(f"Seeing.{method} may use every row") == 1
    assert_equal_weights(*map(weights, ends))
