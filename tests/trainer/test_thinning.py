"""`VADEGRPOTrainer` with `vade_down_sampling`: what is trained on, and that lossless thinning is lossless.

Its resume: `test_battery.py`. The rule that chooses rows, against brute force: `tests/selection/test_rollouts.py`.
"""

from collections import defaultdict

import numpy as np
import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.rows import text_of
from tests.support.runs import (
    SPLIT,
    StopAfter,
    always_half,
    assert_equal_weights,
    fifth_letter,
    largest_difference,
    logged,
    rows_with_images,
    says_a_digit,
    weights,
)
from trl_vade import ConfigurationError, VADEGRPOTrainer
from trl_vade.selection.on_time import enough_for
from trl_vade.trainer.batch_rows import loss_mask, most_varied, taken
from trl_vade.trainer.thinning import OF_TRAINED_ROWS, Thinning

# SGD moves weights in proportion to gradients. Adam makes a rounding error of a tiny gradient a whole step.
EXACT = {"learning_rate": 1.0, "optim": "sgd", "max_steps": 4}


def kept_rollouts(trainer):
    return logged(trainer, "vade/kept_rollouts")


def a_second_reward(completions, **columns):
    return [0.1 + 0.2 * (len(text_of(each)) % 3 == 0) for each in completions]


TWO_REWARDS = {"reward": [says_a_digit, a_second_reward]}


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "dapo"},
        slow({"loss_type": "cispo"}),
        slow({"loss_type": "vespo"}),
        slow({"loss_type": "grpo"}),
        slow({"loss_type": "dr_grpo"}),
        slow({"loss_type": "luspo", "importance_sampling_level": "sequence"}),
        slow({"loss_type": "sapo"}),
        slow({"loss_type": "grpo", "importance_sampling_level": "sequence"}),
        {"num_iterations": 2},
        slow({"scale_rewards": "batch"}),
        slow({"scale_rewards": "none"}),
        {"mask_truncated_completions": True, "generation_kwargs": {"suppress_tokens": [1, 3, *range(9, 20)]}},
        slow({"loss_type": "grpo"} | SPLIT),
        SPLIT | {"gradient_accumulation_steps": 8, "steps_per_generation": 4},
        slow({"pad_to_multiple_of": 4}),
        slow({"vade_sampler": "uniform"}),
        {"vade_dynamic_sampling": True},
        slow(TWO_REWARDS),
        slow(TWO_REWARDS | {"multi_objective_aggregation": "normalize_then_sum"}),
        {"more": {"peft_config": LoraConfig(target_modules=["q_proj"], init_lora_weights="gaussian")}},
    ],
    ids=lambda settings: " ".join(f"{k}={v}" for k, v in settings.items() if isinstance(v, str | int)) or "more",
)
def test_lossless_gives_the_weights_of_training_on_every_row(made, run, one_refill, settings):
    every = made(vade_down_sampling="none", **EXACT | settings)
    before = weights(every)
    every.train()
    kept = run(vade_down_sampling="lossless", **EXACT | settings)
    assert min(kept_rollouts(kept)) < min(kept_rollouts(every))
    assert largest_difference(weights(every), weights(kept)) < 2e-5 * largest_difference(weights(every), before)
    for name in ("reward", "completions/mean_length", "frac_reward_zero_std", "vade/effective_gradient_ratio"):
        assert logged(every, name) == logged(kept, name)
    assert logged(every, "loss") == pytest.approx(logged(kept, "loss"), abs=1e-6)
    if kept.args.steps_per_generation == 1:  # else rows fill up a micro-batch
        assert {*logged(kept, "vade/useful_share")} <= {0.0, 1.0}


def test_rewards_that_are_normalised_first_have_the_gradients_that_trl_makes_of_them(run):
    """Their plain weighted sums are all equal."""

    def right(completions, **columns):
        return [float(i % 2) for i in range(len(completions))]

    def wrong(completions, **columns):
        return [2.0 * (1 - i % 2) for i in range(len(completions))]

    settings = {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5], "max_steps": 1}
    trainer = run([right, wrong], vade_success_reward="right", **settings)
    assert (kept_rollouts(trainer), logged(trainer, "vade/effective_gradient_ratio")) == ([16.0], [1.0])


def without_half_of_the_images():
    rows = rows_with_images()
    return rows.from_list([{**row, "images": row["images"] * (i % 2)} for i, row in enumerate(rows)], rows.features)


def only_without(completions, images, **columns):
    return [float(not image and number % 2 == 0) for number, image in enumerate(images)]


@pytest.mark.parametrize(
    ("reward", "rows", "settings"),
    [
        slow(fifth_letter, rows_with_images, {"num_iterations": 2}),
        # The rows that are kept may all be without the images that others have.
        slow(only_without, without_half_of_the_images, {}),
        (only_without, without_half_of_the_images, SPLIT),
    ],
)
def test_images_go_with_their_rows(run, vision_model_path, reward, rows, settings):
    every, kept = (
        run(reward, rows(), model=vision_model_path, vade_down_sampling=mode, **EXACT | settings)
        for mode in ("none", "lossless")
    )
    assert min(kept_rollouts(kept)) < 16
    assert largest_difference(weights(every), weights(kept)) < 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        {},
        slow({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "max_completion_length": 1}),
        {"reward": always_half},
        {"loss_type": "vespo", "num_iterations": 2, "vade_down_sampling": "live"},
        {"loss_type": "cispo", "num_iterations": 2, "beta": 0.1, "vade_down_sampling": "live"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 1e-4, "num_iterations": 2},
    ],
)
def test_the_means_that_the_loss_logs_are_stocks_over_the_rows_trained_on(run, monkeypatch, settings):
    """Beside each micro-batch, stock computes the loss of its trained rows alone."""
    expected, compute = defaultdict(list), VADEGRPOTrainer._compute_loss

    def both(self, model, inputs):
        kept, self._metrics["train"] = self._metrics["train"], defaultdict(list)
        live = loss_mask(inputs).any(1).numpy().nonzero()[0]
        if len(live):
            with torch.no_grad():
                GRPOTrainer._compute_loss(self, model, taken(inputs, live))
            for name in {*OF_TRAINED_ROWS} & self._metrics["train"].keys():
                expected[name] += [value for value in self._metrics["train"][name] if value == value]
        self._metrics["train"] = kept
        return compute(self, model, inputs)

    monkeypatch.setattr(VADEGRPOTrainer, "_compute_loss", both)
    base = {"learning_rate": 0.3, "optim": "sgd", "logging_steps": 6, "vade_down_sampling": "lossless"}
    trainer = run(**base | settings)
    assert bool(expected) == (settings.get("reward") is not always_half)
    assert expected.keys() == {*OF_TRAINED_ROWS} & trainer.state.log_history[0].keys()
    for name in expected.keys() - {"clip_ratio/low_min"}:  # a ratio of a whole sequence has no mask
        assert logged(trainer, name) == pytest.approx([np.mean(expected[name])], rel=1e-4, abs=1e-7)


def test_lossless_is_the_default_where_it_is_exact_and_adam_sees_no_difference(run):
    every, kept = (run(vade_down_sampling=mode, learning_rate=1e-3) for mode in ("none", None))
    assert sum(kept_rollouts(kept)) < sum(kept_rollouts(every))
    assert largest_difference(weights(every), weights(kept)) < 2e-6
    assert {*logged(kept, "vade/useful_share")} <= {0.0, 1.0}
    assert kept_rollouts(run(beta=0.04, max_steps=1)) == [16.0]


class NotingPasses(GRPOTrainer):
    """Below VADE's overrides: notes the rows of each pass before the loss."""

    passes = ()

    def _get_per_token_logps_and_entropies(self, model, input_ids, *positional, **named):
        if not torch.is_grad_enabled():
            self.passes = (*self.passes, len(input_ids))
        return super()._get_per_token_logps_and_entropies(model, input_ids, *positional, **named)


class NotingTrainer(VADEGRPOTrainer, NotingPasses):
    pass


@pytest.mark.parametrize("mode", ["none", "live"])
def test_the_passes_before_the_loss_leave_out_rows_without_a_gradient(run, watched, mode):
    settings = {"beta": 0.04, "num_iterations": 2, "max_steps": 4, "learning_rate": 0.0}
    with watched() as (_, micro_batches):
        trainer = run(vade_down_sampling=mode, trainer_class=NotingTrainer, **settings)
    kept = [len(batch["completion_ids"]) for batch in micro_batches[::2]]
    assert trainer.passes == tuple(rows for rows in kept for _ in ("old", "reference"))
    assert (min(kept) < 16) == (mode == "live")
    assert np.isfinite(logged(trainer, "kl")).all()


def completions(batch):
    return sorted(tuple(row[row != 0].tolist()) for row in batch["completion_ids"])


@pytest.mark.parametrize(("share", "steps"), [(0.25, 1), ([0.25, 1.0], 1), (0.5, 4)])
def test_rows_are_the_most_varied_of_the_batch(run, watched, share, steps):
    settings = {"per_device_train_batch_size": 16 // steps, "gradient_accumulation_steps": steps}
    with watched() as (batches, micro_batches):
        trainer = run(vade_down_sampling="rows", vade_keep_rollouts=share, **settings)
    first, last = share if isinstance(share, list) else (share, share)
    for step, batch in enumerate(batches):
        advantages = batch["advantages"].double().numpy()
        advantages[np.abs(advantages) < 1e-3] = 0.0  # rounding, in groups of equal rewards
        live = int((advantages != 0).sum())
        wanted = min(max(round(16 * (first + (last - first) * step / 6) / steps), 1) * steps, enough_for(live, steps))
        places = most_varied(advantages, wanted)
        parts = micro_batches[step * steps : (step + 1) * steps]
        trained = sorted(row for part in parts for row in completions(part))
        assert trained == completions({"completion_ids": batch["completion_ids"][places]})
        assert {len(part["completion_ids"]) for part in parts} == {wanted // steps}
        assert kept_rollouts(trainer)[step] == wanted
        for name, values in (("advantage", advantages), ("kept_advantage", advantages[places])):
            assert logged(trainer, f"vade/{name}_variance")[step] == pytest.approx(np.var(values), abs=1e-6)
        tokens = sum(int(loss_mask(part).sum()) for part in parts)
        assert {int(part["num_items_in_batch"]) for part in parts} == {tokens}


def test_rows_that_fill_up_a_micro_batch_are_not_trained_on_and_padding_is_cut(run, watched):
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "loss_type": "grpo"}

    def rare(completions, **columns):
        return [float(i == 0) for i in range(len(completions))]

    with watched() as (_, micro_batches):
        every, kept = (run(rare, vade_down_sampling=mode, **EXACT | settings) for mode in ("none", "lossless"))
    last = micro_batches[-8:]
    assert [len(part["completion_ids"]) for part in last] == [1] * 8
    assert sum(bool(loss_mask(part).any()) for part in last) == 4
    assert largest_difference(weights(every), weights(kept)) < 1e-7
    for batch in micro_batches[len(micro_batches) // 2 :]:
        assert batch["prompt_mask"].any(0).all()
        assert batch["completion_mask"].any(0).all()
    with watched() as (_, parts):
        run(rare, vade_down_sampling="rows", vade_keep_rollouts=1.0, max_steps=1, **settings)
    assert {int(part["num_items_in_batch"]) for part in parts} == {sum(int(loss_mask(part).sum()) for part in parts)}


def test_a_row_without_an_advantage_that_is_chosen_takes_no_place_of_another(made):
    """As where the rows with a negative one are truncated."""
    thinning = made(vade_down_sampling="rows", vade_keep_rollouts=0.5)._batch.thinning
    thinning._scored = np.arange(4)
    assert 3 in thinning._kept(np.array([1.0, 1.0, 1.0, 0.0]), 1)


def test_a_batch_without_any_gradient_trains_nothing(run, text_model_path):
    def dead(completions, **columns):
        return [0.1 + 1e-8 * (i % 2) for i in range(len(completions))]  # TRL makes advantages of rounding errors

    trainer = run(dead, vade_down_sampling="lossless", **EXACT)
    assert kept_rollouts(trainer) == [1.0] * 4
    assert logged(trainer, "vade/useful_share") == [0.0] * 4
    assert_equal_weights(weights(trainer), AutoModelForCausalLM.from_pretrained(text_model_path).state_dict())


# ----------------------------------------------------------------------------------------------------- D3S's tokens


class Raw(GRPOTrainer):
    """Below VADE's overrides: keeps the log-probabilities of the model and their gradients."""

    raw: list

    def _get_per_token_logps_and_entropies(self, *positional, **named):
        logps, entropies, *others = super()._get_per_token_logps_and_entropies(*positional, **named)
        if logps.requires_grad:
            logps.retain_grad()
            self.raw.append((logps, entropies.detach()))
        return logps, entropies, *others

    def training_step(self, *positional, **named):
        self.raw = []
        loss = super().training_step(*positional, **named)
        self.after_step(*self.raw[0], self._buffered_inputs[(self._step - 1) % self.args.steps_per_generation])
        return loss


class TokenTrainer(VADEGRPOTrainer, Raw):
    """Compares the tokens that get a gradient with those of D3S's rule."""

    shares = ()

    def after_step(self, logps, entropies, batch):
        mask = loss_mask(batch).bool().numpy()
        key = (batch["advantages"].abs()[:, None] * entropies).numpy()
        chosen = mask & (key >= np.quantile(key[mask], 1 - self.args.vade_keep_tokens))
        np.testing.assert_array_equal(logps.grad.ne(0).numpy(), chosen & (key > 0))
        self.shares = [*self.shares, chosen.sum() / mask.sum()]


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "dapo"},
        {"loss_type": "cispo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.04},
    ],
    ids=str,
)
def test_only_the_chosen_tokens_get_a_gradient(run, settings):
    d3s = {"vade_down_sampling": "d3s", "vade_keep_rollouts": 0.5, "vade_keep_tokens": 0.25, "max_steps": 3}
    trainer = run(trainer_class=TokenTrainer, **d3s | settings)
    assert max(trainer.shares) < 0.6
    assert logged(trainer, "vade/kept_tokens_share") == pytest.approx(trainer.shares)
    assert logged(trainer, "vade/trained_completions")[-1] == sum(kept_rollouts(trainer))


# ------------------------------------------------------------------------------------------------- code of the user's


class WithAdvantages(VADEGRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        return batch | {"advantages": batch["advantages"] + 1.0}


def test_a_subclass_that_gives_advantages_of_its_own_trains_on_them(run):
    settings = {"num_iterations": 2, "max_steps": 2, "vade_down_sampling": "lossless"}
    assert kept_rollouts(run(trainer_class=WithAdvantages, **settings)) == [16.0]


class NoisyJudge(VADEGRPOTrainer):
    """Its verdicts differ whenever it is asked: half of the groups are split."""

    asked = answered = 0

    def _generate(self, prompts):
        self.answered += len(prompts)
        return super()._generate(prompts)

    def _calculate_rewards(self, inputs, prompts, completions, *more):
        rewards = super()._calculate_rewards(inputs, prompts, completions, *more)
        self.asked += len(completions)
        split = torch.rand(len(rewards) // 4, generator=torch.Generator().manual_seed(self.asked)) < 0.5
        return rewards + 0.5 * torch.kron(split, torch.tensor([0.0, 1.0, 0.0, 1.0]))[:, None]


@pytest.mark.parametrize("refills", [False, True])
def test_a_subclass_that_judges_is_asked_once_an_answer_and_its_verdicts_are_trained_on(run, one_refill, refills):
    settings = {"max_steps": 3, "vade_dynamic_sampling": refills, "num_iterations": 2}
    ends = [run(trainer_class=NoisyJudge, vade_down_sampling=mode, **settings) for mode in ("none", "lossless")]
    assert [end.asked for end in ends] == [end.selection.feedback.rollouts for end in ends]
    assert [end.answered for end in ends] == [end.asked for end in ends]
    assert logged(ends[0], "reward") == logged(ends[1], "reward")
    assert largest_difference(*map(weights, ends)) < 1e-6


class WithAnotherLoss(VADEGRPOTrainer):
    def _compute_loss(self, model, inputs):
        return GRPOTrainer._compute_loss(self, model, inputs)


def test_a_loss_that_passes_by_ours_ends_the_first_step(run):
    with pytest.raises(ConfigurationError, match="_compute_loss"):
        run(trainer_class=WithAnotherLoss, vade_down_sampling="d3s")
    assert kept_rollouts(run(trainer_class=WithAnotherLoss, max_steps=1)) == [16.0]


def test_evaluation_and_initial_rollouts_are_whole(run, text_rows):
    settings = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8, "max_steps": 2}
    settings |= {"vade_posterior_init": "rollout", "learning_rate": 0.0}
    settings |= {"more": {"eval_dataset": text_rows.select(range(4))}}
    every, kept = (run(vade_down_sampling=mode, **settings) for mode in ("none", "rows"))
    for name in ("eval_loss", "eval_reward", "vade/effective_gradient_ratio"):
        assert logged(every, name) == logged(kept, name)
    assert logged(kept, "vade/trained_completions")[-1] < 2 * 16


@pytest.mark.parametrize(("masks", "useful"), [(False, 1.0), (True, 0.5)])
def test_rollout_functions_that_add_fields_work_too(run, watched, masks, useful):
    """Their second token is not in the loss. Of two groups with a gradient one is truncated."""

    def roll_out(prompts, trainer):
        size = len(prompts)
        return {
            "prompt_ids": trainer._tokenize_prompts(prompts)[0],
            "completion_ids": [[5 + (i + trainer.state.global_step) % 8, 2 if i < 4 else 5] for i in range(size)],
            "logprobs": [[-1.0, -1.0]] * size,
            "env_mask": [[1, 0]] * size,
            "mark": list(range(size)),
        }

    def by_mark(completions, mark, **columns):
        return [float(number % 4 == 0 and number < 8) for number in mark]

    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "max_steps": 2}
    more = {"mask_truncated_completions": masks, "more": {"rollout_func": roll_out}}
    with watched() as (_, micro_batches):
        trainer = run(by_mark, vade_down_sampling="lossless", **settings, **more)
    assert (kept_rollouts(trainer), logged(trainer, "vade/useful_share")) == ([8.0, 8.0], [useful, useful])
    assert sum(int(loss_mask(batch).sum()) for batch in micro_batches) == 2 * 8 * useful


def test_a_generation_of_the_object_s_own_is_called_once_a_batch(made):
    trainer, calls = made(max_steps=2), []
    generate = trainer._generate
    trainer._generate = lambda prompts: calls.append(len(prompts)) or generate(prompts)
    trainer.train()
    assert calls == [16, 16]


def test_the_router_loss_of_a_mixture_of_experts_acts_on_every_row(made):
    trainer = made(vade_down_sampling="lossless")
    trainer.aux_loss_enabled = True
    with refused(ConfigurationError, ["vade_down_sampling='lossless'", "mixture-of-experts"]):
        Thinning(trainer)
    trainer.args.vade_down_sampling = None
    assert Thinning(trainer).mode == "none"


def test_a_run_without_a_selection_can_be_thinned(run):
    """It is a stock trainer with fewer rows."""
    settings = {"vade_sampler": "uniform", "shuffle_dataset": False, "more": {"callbacks": [StopAfter(2)]}}
    trainer = run(vade_down_sampling="rows", vade_keep_rollouts=0.25, **settings)
    assert trainer.selection is None
    assert max(kept_rollouts(trainer)) == 4.0
