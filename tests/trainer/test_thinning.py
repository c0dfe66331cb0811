"""`VADEGRPOTrainer` with `vade_down_sampling`: what is trained on, and that lossless thinning is lossless."""

import math

import pytest
import torch

from tests.support.runs import first_letter, logged, train, weights
from trl_vade.selection.rollouts import most_varied
from trl_vade.trainer.batch_rows import loss_mask

# A learning rate at which float32's rounding stays far below what training moves.
EXACT = {"learning_rate": 1e-3, "max_steps": 4, "use_cpu": True, "bf16": False, "optim": "sgd"}


def largest_difference(left, right):
    left, right = weights(left), weights(right)
    return max(float((left[name] - right[name]).abs().max()) for name in left)


class Watched:
    """Notes of each training micro-batch what its loss sees."""

    def __init__(self, trainer_class):
        seen = self.seen = []

        class Watching(trainer_class):
            def _compute_loss(self, model, inputs):
                if model.training:
                    seen.append(inputs)
                return super()._compute_loss(model, inputs)

        self.trainer_class = Watching


def pair(model, rows, make_args, tmp_path, mode="lossless", **settings):
    """Two runs: on every row, and with `mode`."""
    kept = {"reward", "trainer_class", "peft_config"} & settings.keys()
    more = {name: settings.pop(name) for name in kept}
    return [
        train(
            model,
            rows,
            make_args(output_dir=str(tmp_path / each), vade_down_sampling=each, **EXACT | settings),
            **more,
        )
        for each in ("none", mode)
    ]


def skips(trainer):
    """Whether some row was left out."""
    return min(logged(trainer, "vade/kept_rollouts")) < max(logged(trainer, "vade/rollouts")[0], 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "dapo"},
        {"loss_type": "cispo"},
        {"loss_type": "vespo"},
        {"loss_type": "grpo"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "luspo", "importance_sampling_level": "sequence"},
        {"loss_type": "sapo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"loss_type": "dapo", "num_iterations": 2},
        {"loss_type": "grpo", "num_iterations": 2},
        {"loss_type": "dapo", "scale_rewards": "batch"},
        {"loss_type": "dapo", "scale_rewards": "none"},
        {"loss_type": "dapo", "mask_truncated_completions": True},
        {"loss_type": "grpo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"loss_type": "dapo", "pad_to_multiple_of": 4},
        {"loss_type": "dapo", "vade_sampler": "uniform"},
        {"loss_type": "dapo", "vade_dynamic_sampling": True, "vade_max_refills": 1},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_weights_are_the_same_to_rounding(text_model_path, text_rows, make_args, tmp_path, settings):
    every, kept = pair(text_model_path, text_rows, make_args, tmp_path, **settings)
    assert min(logged(kept, "vade/kept_rollouts")) < 16
    base = __import__("transformers").AutoModelForCausalLM.from_pretrained(text_model_path).state_dict()
    print(
        "DIFF",
        settings,
        largest_difference(every, kept),
        max(float((v - base[k]).abs().max()) for k, v in weights(every).items()),
        logged(kept, "vade/kept_rollouts"),
    )
    for name in ("reward", "completions/mean_length", "frac_reward_zero_std", "vade/effective_gradient_ratio"):
        assert logged(every, name) == logged(kept, name)
    assert logged(every, "loss") == pytest.approx(logged(kept, "loss"), abs=1e-6)
