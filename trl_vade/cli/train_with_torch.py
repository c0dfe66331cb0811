"""A training from its arguments to its uploads. This is the part of `trl-vade train` that loads torch."""

import gc
import importlib
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

import trl.rewards
from trl import ModelConfig, get_peft_config, get_quantization_config

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.checkpoints import find_checkpoint
from trl_vade.errors import ConfigurationError, HubError, VADEError
from trl_vade.hub.uploading import is_hub_id
from trl_vade.trainer.presets import setting

from .parsing import VADEScriptArguments
from .recipes import TESTBED, meant, pick_split


def train(*settings: Any) -> None:
    """Run a training as `Parser.read` has read its settings."""
    main(*settings)
    # The trainer holds gloo's threads, which may abort the process at its exit (torch 2.15, pytorch/pytorch#179291).
    gc.collect()


def main(script_args: VADEScriptArguments, training_args: VADEGRPOConfig, model_args: ModelConfig) -> None:
    """Train, save and push as the arguments say. A failed push is a `HubError` after everything is saved here."""
    training_args.output_dir = training_args.output_dir.replace("{vade_sampler}", setting(training_args, "sampler"))
    resume = training_args.resume_from_checkpoint
    resume = resume == "true" if resume in ("true", "false") else resume
    find_checkpoint(resume, training_args.output_dir)  # refused, if it has to be, before a model is loaded
    try:
        trainer = make_trainer(script_args, training_args, model_args)
    except VADEError:
        raise
    except (ValueError, ImportError, NotImplementedError) as error:  # what TRL or transformers refuse
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigurationError(f"{error} ({type(error).__name__}, {place.filename}:{place.lineno})") from error
    trainer.dataset_name = script_args.dataset_name

    # Train. `--resume_from_checkpoint auto` goes on from the newest checkpoint, with its posterior, or begins anew.
    try:
        trainer.train(resume_from_checkpoint=resume)
    except HubError:
        pass  # all is saved here; what is not on the Hub is tried again below
    except VADEError:
        raise
    except OSError as error:  # it may be of a reward function, and a command prints the message of one alone
        raise RuntimeError(f"The training failed: {error}") from error

    # Keep what was learned: weights, posterior, state.
    with suppress(HubError):
        trainer.save_model()
    trainer.save_state()
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)
    trainer.publication.finish()  # an error if anything is not on the Hub that is to be there
    trainer.end()
    trainer.accelerator.end_training()


def make_trainer(
    script_args: VADEScriptArguments, training_args: VADEGRPOConfig, model_args: ModelConfig
) -> VADEGRPOTrainer:
    """Load data, rewards and model as the arguments say, and return the trainer."""
    model, data = model_args.model_name_or_path, script_args.dataset_name
    if not model or not data or not (os.path.exists(model) or is_hub_id(model)):
        raise ConfigurationError(
            f"model_name_or_path={model!r} and dataset_name={data!r}: a training needs both. Set them to folders, to "
            f"names on the Hub such as user/name, or to {TESTBED!r}; or give --recipe NAME."
        )
    rewards = [load_reward(name) for name in script_args.reward_funcs]

    # 1. Data and model. The testbed is built once and cached, so the other processes wait for the first.
    with training_args.main_process_first(desc="building the testbed"):
        dataset = script_args.load_splits()
        if model == TESTBED:
            from trl_vade.testbed import load_testbed_model

            model_args.model_name_or_path = str(load_testbed_model(seed=script_args.testbed_seed))
    train_dataset, eval_dataset = pick_split(dataset, "--dataset_train_split", script_args.dataset_train_split), None
    if training_args.eval_strategy == "no":
        training_args.eval_on_start = False  # there is nothing to evaluate, though the quickstart asks for it
    else:
        eval_dataset = pick_split(dataset, "--dataset_test_split", script_args.dataset_test_split)

    # 2. The trainer. A model given by name is loaded by TRL, with these arguments.
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    return VADEGRPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=rewards,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
    )


def load_reward(name: str):
    """Return a reward function: of `trl.rewards` by its name, or any other by its import path."""
    module, _, function = name.rpartition(".")
    sys.path.insert(0, "")  # rewards in the user's working directory, as TRL's own scripts allow
    try:
        return getattr(importlib.import_module(module or "trl.rewards"), function)
    except (ImportError, AttributeError) as error:
        close = "" if module else meant(name, trl.rewards.__all__)
        ways = "a name of trl.rewards, or the import path of a function (my_package.rewards.my_reward)"
        raise ConfigurationError(f"--reward_funcs {name}: {error}.{close} Give {ways}.") from error
    finally:
        sys.path.pop(0)
