"""`VADEGRPOTrainer` with `vade_down_sampling`: what is trained on, and that lossless thinning is lossless."""

from collections import defaultdict
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

from tests.support.checkpoints import without_later
from tests.support.marks import slow
from tests.support.runs import (
    StopAfter,
    always_half,
    assert_equal_weights,
    logged,
    rows_with_images,
    says_a_digit,
    train,
    weights,
)
from trl_vade import ConfigurationError, VADEGRPOTrainer
from trl_vade.selection.rollouts import enough_for, in_parts, most_varied
from trl_vade.trainer.batch import GenerationBatch
from trl_vade.trainer.batch_rows import loss_mask, taken
from trl_vade.trainer.thinning import OF_TRAINED_ROWS, Thinning

# SGD moves weights in proportion to gradients. Adam makes a rounding error of a tiny gradient a whole step.
EXACT = {"learning_rate": 1.0, "optim": "sgd", "max_steps": 4}


def run(model, rows, make_args, mode, callbacks=None, **settings):
    more = {name: settings.pop(name) for name in {"reward", "trainer_class", "peft_config"} & settings.keys()}
    args = make_args(**{"vade_down_sampling": mode, "output_dir": f"{make_args().output_dir}-{mode}"} | settings)
    return train(model, rows, args, callbacks=callbacks, **more)


def largest(left, right):
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@contextmanager
def watched(monkeypatch):
    """Notes each prepared generation batch, whole, and each micro-batch whose loss is computed."""
    seen = {"batches": [], "micro_batches": []}
    prepare, loss_of = GenerationBatch.make, Thinning.loss_of

    def preparing(self, rows, make):
        batch = prepare(self, rows, make)
        seen["batches"].append(batch)
        return batch

    def losing(self, micro_batch):
        seen["micro_batches"].append(micro_batch)
        return loss_of(self, micro_batch)

    with monkeypatch.context() as patch:
        patch.setattr(GenerationBatch, "make", preparing)
        patch.setattr(Thinning, "loss_of", losing)
        yield seen


def completions(batch):
    return sorted(tuple(row[row != 0].tolist()) for row in batch["completion_ids"])


def fifth_letter(completions, **kwargs):
    return [float(sum(map(ord, completion[0]["content"])) % 5 == 0) for completion in completions]


def a_second_reward(completions, **kwargs):
    return [0.1 + 0.2 * (len(completion[0]["content"]) % 3 == 0) for completion in completions]


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
        slow({"loss_type": "grpo", "num_iterations": 2}),
        slow({"scale_rewards": "batch"}),
        slow({"scale_rewards": "none"}),
        slow({"mask_truncated_completions": True}),
        slow({"loss_type": "grpo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}),
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "steps_per_generation": 4},
        slow({"pad_to_multiple_of": 4}),
        slow({"vade_sampler": "uniform"}),
        {"vade_dynamic_sampling": True, "vade_max_refills": 1},
        slow({"reward": [says_a_digit, a_second_reward]}),
        slow({"reward": [says_a_digit, a_second_reward], "multi_objective_aggregation": "normalize_then_sum"}),
        {"peft_config": LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights="gaussian")},
    ],
    ids=lambda settings: " ".join(
        name if name in ("reward", "peft_config") else f"{name}={settings[name]}" for name in settings
    ),
)
def test_lossless_gives_the_weights_of_training_on_every_row(text_model_path, text_rows, make_args, settings):
    every, kept = (
        run(text_model_path, text_rows, make_args, mode, **EXACT | settings) for mode in ("none", "lossless")
    )
    assert min(logged(kept, "vade/kept_rollouts")) < min(logged(every, "vade/kept_rollouts"))
    start = (
        train(text_model_path, text_rows, make_args(learning_rate=0.0, max_steps=1))
        if "peft_config" in settings
        else None
    )
    before = AutoModelForCausalLM.from_pretrained(text_model_path).state_dict() if start is None else None
    after = weights(every)
    moved = largest(after, before) if before else 1e-3
    assert largest(after, weights(kept)) < 2e-5 * moved
    for name in ("reward", "completions/mean_length", "frac_reward_zero_std", "vade/effective_gradient_ratio"):
        assert logged(every, name) == logged(kept, name)
    assert logged(every, "loss") == pytest.approx(logged(kept, "loss"), abs=1e-6)


ONE_ROW = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        ONE_ROW,
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "max_completion_length": 1},
        {"reward": always_half},
        {"loss_type": "vespo", "num_iterations": 2, "vade_down_sampling": "live"},
        {"loss_type": "cispo", "num_iterations": 2, "beta": 0.1, "vade_down_sampling": "live"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 1e-4, "num_iterations": 2},
    ],
)
def test_the_means_that_the_loss_logs_are_stocks_over_the_rows_trained_on(
    text_model_path, text_rows, make_args, monkeypatch, settings
):
    """Beside each micro-batch, stock computes the loss of its trained rows alone."""
    expected, compute = [], VADEGRPOTrainer._compute_loss

    def both(self, model, inputs):
        kept, self._metrics["train"] = self._metrics["train"], defaultdict(list)
        live = loss_mask(inputs).any(1).numpy().nonzero()[0]
        if len(live):
            with torch.no_grad():
                GRPOTrainer._compute_loss(self, model, taken(inputs, live))
            expected.append(
                {name: values for name, values in self._metrics["train"].items() if name in OF_TRAINED_ROWS}
            )
        self._metrics["train"] = kept
        return compute(self, model, inputs)

    monkeypatch.setattr(VADEGRPOTrainer, "_compute_loss", both)
    mode = settings.get("vade_down_sampling", "lossless")
    more = {"learning_rate": 0.3, "optim": "sgd", "logging_steps": 6, "max_steps": 6}
    trainer = run(text_model_path, text_rows, make_args, mode, **more | settings)
    names = {name for each in expected for name in each}
    assert bool(names) == (settings.get("reward") is not always_half)
    assert names == {*OF_TRAINED_ROWS} & trainer.state.log_history[0].keys()
    for name in names - {"clip_ratio/low_min"}:  # a ratio of a whole sequence has no mask
        values = [value for each in expected for value in each[name] if value == value]
        assert logged(trainer, name) == pytest.approx([np.mean(values)], rel=1e-4, abs=1e-7)


def test_lossless_is_the_default_where_it_is_exact_and_adam_sees_no_difference(text_model_path, text_rows, make_args):
    every, kept = (run(text_model_path, text_rows, make_args, mode, learning_rate=1e-3) for mode in ("none", None))
    assert sum(logged(kept, "vade/kept_rollouts")) < sum(logged(every, "vade/kept_rollouts"))
    assert largest(weights(every), weights(kept)) < 2e-6
    assert {*logged(kept, "vade/useful_share")} <= {0.0, 1.0}
    elsewhere = {"output_dir": f"{every.args.output_dir}-kl"}
    inexact = run(text_model_path, text_rows, make_args, None, beta=0.04, max_steps=1, **elsewhere)
    assert logged(inexact, "vade/kept_rollouts") == [16.0]


def test_images_go_with_their_rows(vision_model_path, make_args):
    rows = rows_with_images()
    every, kept = (
        run(vision_model_path, rows, make_args, mode, **EXACT | {"reward": fifth_letter, "num_iterations": 2})
        for mode in ("none", "lossless")
    )
    assert min(logged(kept, "vade/kept_rollouts")) < 16
    assert largest(weights(every), weights(kept)) < 1e-6


@pytest.mark.parametrize("mode", ["none", "live"])
def test_the_passes_before_the_loss_leave_out_rows_without_a_gradient(
    text_model_path, text_rows, make_args, monkeypatch, mode
):
    passes = []

    class Noting(GRPOTrainer):
        def _get_per_token_logps_and_entropies(self, model, input_ids, *positional, **named):
            if not torch.is_grad_enabled():
                passes.append(len(input_ids))
            return super()._get_per_token_logps_and_entropies(model, input_ids, *positional, **named)

    class NotingTrainer(VADEGRPOTrainer, Noting):
        pass

    with watched(monkeypatch) as seen:
        settings = {"beta": 0.04, "num_iterations": 2, "max_steps": 4, "trainer_class": NotingTrainer}
        trainer = run(text_model_path, text_rows, make_args, mode, **settings)
    kept = [len(batch["completion_ids"]) for batch in seen["micro_batches"][::2]]
    assert passes == [rows for rows in kept for _ in ("old", "reference")]
    assert (min(kept) < 16) == (mode == "live")
    for batch in seen["micro_batches"]:
        assert all(batch[f"{name}_per_token_logps"].isfinite().all() for name in ("old", "ref"))
    assert all(np.isfinite(logged(trainer, "kl")))


def test_what_was_not_passed_over_is_the_same_for_the_rows_that_were(
    text_model_path, text_rows, make_args, monkeypatch
):
    found = []
    for mode in ("none", "live"):
        with watched(monkeypatch) as seen:
            run(
                text_model_path,
                text_rows,
                make_args,
                mode,
                beta=0.04,
                num_iterations=2,
                max_steps=3,
                learning_rate=0.0,
            )
        found.append({})
        for batch in seen["micro_batches"]:
            for i, mask in enumerate(batch["completion_mask"].bool()):
                key = tuple(
                    torch.cat(
                        [batch["prompt_ids"][i][batch["prompt_mask"][i].bool()], batch["completion_ids"][i][mask]]
                    ).tolist()
                )
                found[-1][key] = [batch[f"{name}_per_token_logps"][i][mask] for name in ("old", "ref")]
    every, kept = found
    assert 0 < len(kept) < len(every)
    for key, (old, reference) in kept.items():
        torch.testing.assert_close(old, every[key][0])
        torch.testing.assert_close(reference, every[key][1])


@pytest.mark.parametrize(("share", "steps"), [(0.25, 1), ([0.25, 1.0], 1), (0.5, 4)])
def test_rows_are_the_most_varied_of_the_batch(text_model_path, text_rows, make_args, monkeypatch, share, steps):
    settings = {"per_device_train_batch_size": 16 // steps, "gradient_accumulation_steps": steps}
    with watched(monkeypatch) as seen:
        trainer = run(text_model_path, text_rows, make_args, "rows", vade_keep_rollouts=share, **settings)
    first, last = share if isinstance(share, list) else (share, share)
    for step, batch in enumerate(seen["batches"]):
        advantages = batch["advantages"].double().numpy()
        advantages[np.abs(advantages) < 1e-3] = 0.0  # rounding, in groups of equal rewards
        live = int((advantages != 0).sum())
        wanted = min(in_parts(16 * (first + (last - first) * step / 6), steps), enough_for(live, steps))
        places = most_varied(advantages, wanted)
        parts = seen["micro_batches"][step * steps : (step + 1) * steps]
        trained = sorted(row for part in parts for row in completions(part))
        assert trained == completions({"completion_ids": batch["completion_ids"][places]})
        assert {len(part["completion_ids"]) for part in parts} == {wanted // steps}
        assert logged(trainer, "vade/kept_rollouts")[step] == wanted
        assert logged(trainer, "vade/advantage_variance")[step] == pytest.approx(np.var(advantages), abs=1e-6)
        kept_variance = np.var(advantages[places])
        assert logged(trainer, "vade/kept_advantage_variance")[step] == pytest.approx(kept_variance, abs=1e-6)
        tokens = sum(int(loss_mask(part).sum()) for part in parts)
        assert {int(part["num_items_in_batch"]) for part in parts} == {tokens}


def test_rows_that_fill_up_a_micro_batch_are_not_trained_on(text_model_path, text_rows, make_args, monkeypatch):
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "loss_type": "grpo"}
    rare = {"reward": lambda completions, **kwargs: [float(i == 0) for i in range(len(completions))]}
    with watched(monkeypatch) as seen:
        every, kept = (
            run(text_model_path, text_rows, make_args, mode, **EXACT | settings | rare)
            for mode in ("none", "lossless")
        )
    last = seen["micro_batches"][-8:]
    assert [len(part["completion_ids"]) for part in last] == [1] * 8
    assert sum(bool(loss_mask(part).any()) for part in last) == 4
    assert largest(weights(every), weights(kept)) < 1e-7


def test_padding_is_cut_to_the_longest_row_of_each_micro_batch(text_model_path, text_rows, make_args, monkeypatch):
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}
    with watched(monkeypatch) as seen:
        run(text_model_path, text_rows, make_args, "lossless", max_steps=2, num_iterations=1, **settings)
    for batch in seen["micro_batches"]:
        for part in ("prompt", "completion"):
            assert batch[f"{part}_mask"].any(0).all()
            assert batch[f"{part}_mask"].shape == batch[f"{part}_ids"].shape


def test_a_batch_without_any_gradient_trains_nothing(text_model_path, text_rows, make_args):
    dead = {"reward": lambda completions, **kwargs: [0.1] * len(completions)}  # 0.1 has rounding errors
    trainer = run(text_model_path, text_rows, make_args, "lossless", **EXACT | dead)
    assert logged(trainer, "vade/kept_rollouts") == [1.0] * 4
    assert logged(trainer, "vade/useful_share") == [0.0] * 4
    assert_equal_weights(weights(trainer), AutoModelForCausalLM.from_pretrained(text_model_path).state_dict())


class Raw(GRPOTrainer):
    """Below VADE's overrides: keeps the log-probabilities of the model and their gradients."""

    def _get_per_token_logps_and_entropies(self, *positional, **named):
        logps, entropies, *others = super()._get_per_token_logps_and_entropies(*positional, **named)
        if logps.requires_grad:
            logps.retain_grad()
            self.raw.append((logps, entropies.detach()))
        return logps, entropies, *others


class TokenTrainer(VADEGRPOTrainer, Raw):
    """Compares the tokens that get a gradient with those of D3S's rule."""

    raw: list
    shares: list

    def training_step(self, *positional, **named):
        self.raw = []
        loss = super().training_step(*positional, **named)
        ((logps, entropies),) = self.raw
        batch = self._buffered_inputs[(self._step - 1) % self.args.steps_per_generation]
        mask, share = loss_mask(batch).bool(), self.args.vade_keep_tokens
        key = (batch["advantages"].abs()[:, None] * entropies).numpy()
        chosen = mask.numpy() & (key >= np.quantile(key[mask.numpy()], 1 - share))
        np.testing.assert_array_equal(logps.grad.ne(0).numpy(), chosen & (key > 0))
        self.shares = [*getattr(self, "shares", []), chosen.sum() / mask.sum().item()]
        return loss


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "dapo"},
        {"loss_type": "dapo", "beta": 0.04},
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"loss_type": "cispo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.04},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_only_the_chosen_tokens_get_a_gradient(text_model_path, text_rows, make_args, settings):
    d3s = {"vade_keep_rollouts": 0.5, "vade_keep_tokens": 0.25, "trainer_class": TokenTrainer, "max_steps": 3}
    trainer = run(text_model_path, text_rows, make_args, "d3s", **d3s | settings)
    assert max(trainer.shares) < 0.6
    assert logged(trainer, "vade/kept_tokens_share") == pytest.approx(trainer.shares)
    assert logged(trainer, "vade/trained_completions")[-1] == sum(logged(trainer, "vade/kept_rollouts"))


A = torch.tensor([1.5, -0.5, 0.0, 0.8])
H = torch.tensor([[0.1, 0.9, 0.3, 0.0], [2.0, 0.2, 1.0, 0.6], [3.0, 3.0, 0.0, 0.0], [0.05, 1.2, 0.4, 0.0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("share", "chosen"),
    [
        (0.2, {(0, 1), (1, 0), (3, 1)}),
        (0.25, {(0, 1), (1, 0), (3, 1), (1, 2)}),
        (0.5, {(0, 1), (0, 2), (1, 0), (1, 2), (1, 3), (3, 1), (3, 2)}),
        (1.0, {tuple(place) for place in MASK.nonzero().tolist()}),
    ],
)
def test_the_tokens_chosen_are_the_golden_ones(text_model_path, text_rows, make_args, share, chosen):
    args = make_args(vade_down_sampling="d3s", vade_keep_tokens=share)
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    logps = torch.zeros(4, 4, requires_grad=True)
    batch = {"advantages": A, "completion_mask": MASK, "completion_ids": MASK}
    with trainer._batch.thinning.loss_of(batch):
        selected, entropies, _ = trainer._batch.thinning.logps(lambda: (logps, H, None))
    (selected * MASK).sum().backward()
    assert {tuple(place) for place in logps.grad.nonzero().tolist()} == chosen
    assert entropies.equal(H)


def test_trls_entropy_quantile_selects_no_tokens_of_a_sequence_ratio(text_model_path, text_rows, make_args):
    """Why D3S has a seam of its own (TRL 1.16). When this fails, `get_high_entropy_mask` may serve for both."""
    shares = []

    class Noting(Raw):
        def training_step(self, *positional, **named):
            self.raw = []
            loss = super().training_step(*positional, **named)
            ((logps, _),) = self.raw
            mask = loss_mask(self._buffered_inputs[0]).bool()
            moved = logps.grad.ne(0) & mask
            shares.append((moved.sum() / mask[moved.any(1)].sum()).item())  # of the tokens of rows with a gradient
            return loss

    from trl import GRPOConfig

    for level in ("token", "sequence"):
        args = make_args(
            GRPOConfig, importance_sampling_level=level, top_entropy_quantile=0.2, max_steps=1, loss_type="grpo"
        )
        train(text_model_path, text_rows, args, trainer_class=Noting)
    assert shares[0] < 0.6
    assert shares[1] == 1.0


def test_counts_are_of_what_went_through_the_loss_and_go_on_after_a_resume(
    text_model_path, text_rows, make_args, tmp_path
):
    settings = {"num_iterations": 2, "save_strategy": "steps", "save_steps": 3, "output_dir": str(tmp_path / "run")}
    whole = run(text_model_path, text_rows, make_args, "lossless", **settings)
    rows = logged(whole, "vade/kept_rollouts")
    assert logged(whole, "vade/trained_completions")[-1] == 2 * sum(rows)
    assert logged(whole, "vade/trained_tokens")[-1] <= 4 * 2 * sum(rows)
    resumed = VADEGRPOTrainer(
        text_model_path, says_a_digit, make_args(vade_down_sampling="lossless", **settings), text_rows
    )
    resumed.train(resume_from_checkpoint=without_later(tmp_path / "run" / "checkpoint-3"))  # inside a generation batch
    for name in ("vade/trained_completions", "vade/trained_tokens", "vade/kept_rollouts", "loss"):
        assert logged(resumed, name) == logged(whole, name)
    assert_equal_weights(weights(resumed), weights(whole))
    whole.args.output_dir = str(tmp_path / "another run")
    whole.train()
    assert logged(whole, "vade/trained_completions")[0] <= 16


def test_a_run_of_d3s_resumes_inside_a_generation_batch(text_model_path, text_rows, make_args, tmp_path):
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    settings |= {"save_strategy": "steps", "save_steps": 1, "output_dir": str(tmp_path / "run")}
    whole = run(text_model_path, text_rows, make_args, "d3s", **settings)
    resumed = VADEGRPOTrainer(
        text_model_path, says_a_digit, make_args(vade_down_sampling="d3s", **settings), text_rows
    )
    resumed.train(resume_from_checkpoint=without_later(tmp_path / "run" / "checkpoint-3"))
    assert_equal_weights(weights(resumed), weights(whole))
    assert logged(resumed, "vade/kept_tokens_share") == logged(whole, "vade/kept_tokens_share")


def test_a_function_in_the_place_of_generate_is_called_once_a_batch(text_model_path, text_rows, make_args):
    trainer = VADEGRPOTrainer(text_model_path, fifth_letter, make_args(max_steps=2), text_rows)
    asked = []

    def constant(prompts):
        asked.append(len(prompts))
        ids = trainer._tokenize_prompts(prompts)[0]
        completions = [[{"role": "assistant", "content": str(number % 10)}] for number in range(len(ids))]
        return ids, [[5, 6]] * len(ids), None, completions, None, {}, None, []

    trainer._generate = constant
    trainer.train()
    assert asked == [16, 16]


def test_a_subclass_that_gives_advantages_of_its_own_trains_on_them(text_model_path, text_rows, make_args):
    class OfItsOwn(VADEGRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            batch = super()._generate_and_score_completions(inputs)
            return batch | {"advantages": batch["advantages"] + 1.0}

    own = {"trainer_class": OfItsOwn, "max_steps": 2}
    trainer = run(text_model_path, text_rows, make_args, "lossless", num_iterations=2, **own)
    assert logged(trainer, "vade/kept_rollouts") == [16.0]


class WithPenalty(VADEGRPOTrainer):
    def _calculate_rewards(self, *positional, **named):
        return super()._calculate_rewards(*positional, **named) - 0.25


@pytest.mark.parametrize("refills", [False, True])
def test_a_subclass_that_changes_the_rewards_changes_them_once(text_model_path, text_rows, make_args, refills):
    settings = {"max_steps": 2, "vade_dynamic_sampling": refills, "vade_max_refills": 1}
    for mode in ("none", "lossless"):
        one, other = (
            run(
                *(text_model_path, text_rows, make_args, mode),
                **settings | {"trainer_class": kind, "output_dir": f"{make_args().output_dir}-{mode}-{kind.__name__}"},
            )
            for kind in (VADEGRPOTrainer, WithPenalty)
        )
        expected = [reward - 0.25 for reward in logged(one, "reward")]
        assert logged(other, "reward") == pytest.approx(expected, abs=1e-6)
        assert largest(weights(one), weights(other)) < 1e-6


class WithAnotherLoss(VADEGRPOTrainer):
    def _compute_loss(self, model, inputs):
        return GRPOTrainer._compute_loss(self, model, inputs)


def test_a_loss_that_passes_by_ours_ends_the_first_step(text_model_path, text_rows, make_args):
    with pytest.raises(ConfigurationError, match="_compute_loss"):
        run(text_model_path, text_rows, make_args, "d3s", trainer_class=WithAnotherLoss)
    automatic = run(text_model_path, text_rows, make_args, None, trainer_class=WithAnotherLoss, max_steps=1)
    assert logged(automatic, "vade/kept_rollouts") == [16.0]


def test_evaluation_and_initial_rollouts_are_whole(text_model_path, text_rows, make_args):
    settings = {"vade_posterior_init": "rollout", "eval_strategy": "steps", "eval_steps": 1, "max_steps": 2}
    settings |= {"per_device_eval_batch_size": 8, "num_generations_eval": 4}
    found = []
    for mode in ("none", "rows"):
        args = make_args(vade_down_sampling=mode, learning_rate=0.0, **settings)
        args.output_dir += mode
        trainer = VADEGRPOTrainer(
            text_model_path, says_a_digit, args, text_rows, eval_dataset=text_rows.select(range(4))
        )
        trainer.train()
        found.append([logged(trainer, name) for name in ("eval_loss", "eval_reward", "vade/effective_gradient_ratio")])
    assert found[0] == found[1]
    assert logged(trainer, "vade/trained_completions")[-1] < 2 * 16


def test_rollout_functions_that_add_fields_work_too(text_model_path, text_rows, make_args):
    from trl.trainer.grpo_trainer import GRPOTrainer as Stock

    assert hasattr(Stock, "_generate_single_turn")

    def roll_out(prompts, trainer):
        size = len(prompts)
        ids = [[5 + (i + trainer.state.global_step) % 8, 2] for i in range(size)]
        prompt_ids = [
            trainer.processing_class.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"]
            for prompt in prompts
        ]
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": ids,
            "logprobs": [[-1.0, -1.0]] * size,
            "mark": list(range(size)),
        }

    def by_mark(completions, mark, **kwargs):
        return [float(number % 4 == 0 and number < 8) for number in mark]

    args = make_args(vade_down_sampling="lossless", max_steps=2)
    trainer = VADEGRPOTrainer(text_model_path, by_mark, args, text_rows, rollout_func=roll_out)
    trainer.train()
    assert logged(trainer, "vade/kept_rollouts") == [8.0, 8.0]


def test_a_plain_data_set_stream_can_be_thinned(text_model_path, text_rows, make_args):
    """Without a selection VADE leaves the trainer stock, and D3S alone is a stock trainer with fewer rows."""
    args = make_args(vade_down_sampling="rows", vade_sampler="uniform", vade_keep_rollouts=0.25, shuffle_dataset=False)
    trainer = train(text_model_path, text_rows, args, callbacks=[StopAfter(2)])
    assert trainer.selection is None
    assert max(logged(trainer, "vade/kept_rollouts")) == 4.0


@pytest.mark.parametrize("steps", [slow(1), 4])
def test_kept_rows_may_all_be_without_the_images_that_others_have(vision_model_path, make_args, steps):
    rows = rows_with_images()
    empty = [{**row, "images": row["images"] if i % 2 else []} for i, row in enumerate(rows)]
    mixed = rows.from_list(empty, features=rows.features)

    def only_without(completions, images, **kwargs):
        return [float(not image and number % 2 == 0) for number, image in enumerate(images)]

    settings = {
        "reward": only_without,
        "per_device_train_batch_size": 16 // steps,
        "gradient_accumulation_steps": steps,
    }
    every, kept = (run(vision_model_path, mixed, make_args, mode, **EXACT | settings) for mode in ("none", "lossless"))
    assert min(logged(kept, "vade/kept_rollouts")) < 16
    assert largest(weights(every), weights(kept)) < 1e-6
