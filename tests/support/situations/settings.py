"""Settings of `GRPOConfig` alone."""

from tests.support.as_stock import Situation
from tests.support.rows import make_text_rows

LOSSES = {
    "cispo": {},
    "grpo": {},
    "dr_grpo": {},
    "sapo": {},
    "vespo": {},
    "luspo": {"importance_sampling_level": "sequence"},
}
BETA = {"beta": 0.1}
SAVED = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3}
MICRO = {"per_device_train_batch_size": 4}


def resumed(make, side):
    """Train one step, and go on from its checkpoint with another trainer."""
    from tests.support.runs import StopAfter

    first = make()
    first.add_callback(StopAfter(1))
    first.train()
    trainer = make()
    trainer.train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-1")
    return trainer


SETTINGS = {
    **{f"loss {loss}": Situation({"loss_type": loss, "num_iterations": 2} | more) for loss, more in LOSSES.items()},
    "loss dapo": Situation({"loss_type": "dapo"}, as_base=True),
    "loss bnpo": Situation({"loss_type": "bnpo"}, as_base=True),
    "importance by sequence": Situation({"importance_sampling_level": "sequence", "num_iterations": 2}),
    "rewards scaled by the batch": Situation({"scale_rewards": "batch"}),
    "rewards not scaled": Situation({"scale_rewards": False}),
    "beta": Situation(BETA, logs="kl"),
    "beta, synced": Situation(BETA | {"sync_ref_model": True, "ref_model_sync_steps": 1, "max_steps": 3}, logs="kl"),
    "two iterations": Situation({"num_iterations": 2, "max_steps": 4}),
    "three iterations": Situation({"num_iterations": 3, "max_steps": 4}),
    "steps per generation": Situation(MICRO | {"steps_per_generation": 8, "max_steps": 9}),
    "generation batch size": Situation(MICRO | {"generation_batch_size": 32, "max_steps": 9}),
    "accumulation": Situation(MICRO | {"gradient_accumulation_steps": 4}),
    "accumulation that is no multiple": Situation(
        MICRO | {"gradient_accumulation_steps": 3, "steps_per_generation": 4, "max_steps": 3}
    ),
    "delta": Situation({"delta": 1.01, "num_iterations": 2, "max_steps": 4}),
    "wider clipping": Situation({"epsilon": 0.01, "epsilon_high": 0.02, "num_iterations": 2}),
    "off-policy mask": Situation({"off_policy_mask_threshold": 1e-4, "num_iterations": 2}),
    "top entropy": Situation({"top_entropy_quantile": 0.3}),
    "entropy bonus": Situation({"entropy_coef": 0.1}, logs="policy_loss"),
    "adaptive entropy": Situation({"use_adaptive_entropy": True, "entropy_target": 9.0}, logs="entropy_coef"),
    "adaptive entropy, resumed": Situation(
        {"use_adaptive_entropy": True, "entropy_target": 9.0, "save_strategy": "steps", "save_steps": 1},
        drive=resumed,
        logs="entropy_coef",
    ),
    "truncated ones masked": Situation({"mask_truncated_completions": True}),
    "gradient checkpointing": Situation({"gradient_checkpointing": True}, as_base=True),
    "bfloat16": Situation({"model_init_kwargs": {"dtype": "bfloat16"}}),
    "no dropout": Situation({"disable_dropout": True}, as_base=True),
    "head in float32": Situation({"model_init_kwargs": {"dtype": "bfloat16"}, "cast_lm_head_to_fp32": True}),
    "SGD": Situation({"optim": "sgd"}),
    "Adafactor": Situation({"optim": "adafactor"}),
    "cosine": Situation({"lr_scheduler_type": "cosine", "warmup_steps": 1, "weight_decay": 0.1, "max_grad_norm": 0.1}),
    "NEFTune": Situation({"neftune_noise_alpha": 5.0}),
    "half an epoch": Situation({"max_steps": -1, "num_train_epochs": 0.5}),
    "rows that do not divide": Situation(
        {"max_steps": -1, "num_train_epochs": 1.5}, rows=lambda: make_text_rows().select(range(18))
    ),
    "several epochs": Situation({"max_steps": 14}),
    "another seed": Situation({"seed": 8}),
    "another seed of the data": Situation({"data_seed": 8}, as_base=True),
    "two completions": Situation({"num_generations": 2}),
    "sampling": Situation({"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1}),
    "generation_kwargs": Situation({"generation_kwargs": {"suppress_tokens": [7], "no_repeat_ngram_size": 1}}),
    "padding": Situation({"pad_to_multiple_of": 16}, as_base=True),
    "greedy decoding": Situation({"generation_kwargs": {"do_sample": False}}),
    "a static cache": Situation({"cache_implementation": "static"}, as_base=True),
    "longer completions": Situation({"max_completion_length": 9}),
    "a log of two steps": Situation({"logging_steps": 2, "max_steps": 4, "logging_first_step": True}),
    "the tokens counted": Situation({"include_num_input_tokens_seen": True}, as_base=True, logs="num_tokens"),
    "completions logged": Situation({"log_completions": True, "num_completions_to_print": 1}, as_base=True),
    "unique prompts logged": Situation({"log_completions": True, "log_unique_prompts": True}, as_base=True),
    "loader workers": Situation({"dataloader_num_workers": 2, "max_steps": 8}),
    "persistent workers": Situation(
        {"dataloader_num_workers": 1, "dataloader_persistent_workers": True, "max_steps": 8}
    ),
    "rows in their order": Situation({"shuffle_dataset": False}, selected=False),
    "unused columns removed": Situation({"remove_unused_columns": True}, lambda side: {"reward_funcs": by_length}),
    "a resume": Situation(SAVED, drive=resumed),
    "a resume with accumulation": Situation(SAVED | MICRO | {"gradient_accumulation_steps": 4}, drive=resumed),
    "a resume into the next epoch": Situation(
        SAVED | {"per_device_train_batch_size": 48, "max_steps": 8}, drive=resumed
    ),
    "a resume with beta": Situation(SAVED | BETA, drive=resumed, logs="kl"),
}  # fmt: skip


def by_length(completions, **columns):
    """A reward that needs no column."""
    assert not {"limit", "id"} & columns.keys()
    return [float(len(each[0]["content"]) % 2) for each in completions]
