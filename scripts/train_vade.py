"""Train a vision-language model by GRPO with prompts chosen by VADE.

    accelerate launch scripts/train_vade.py                             # the quickstart: minutes on a CPU
    accelerate launch scripts/train_vade.py --vade_sampler uniform      # the same with vanilla GRPO
    accelerate launch scripts/train_vade.py --config recipe.yaml        # your recipe; flags go before its values
    accelerate launch scripts/train_vade.py --help                      # every option
    python scripts/train_vade.py --config recipe.yaml --plan            # what the recipe means; trains nothing

Without `--config`, `--model_name_or_path` and `--dataset_name` it runs `scripts/recipes/quickstart.yaml`: a tiny, real
Qwen2.5-VL on a data set drawn on the spot. At the end it prints a table and leaves `vade_summary.json` and
`vade_report.png` in the output directory, beside the model and its posterior. `{vade_sampler}` in the name of that
directory stands for the sampler. A directory that holds another run is refused.

`--plan` reads the model's config.json and no weights, looks at no GPU, and needs no launcher;
`trl-vade plan` prints the same.
"""

import importlib
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from trl import ModelConfig, TrlParser, get_peft_config, get_quantization_config

from trl_vade import VADEEvalCallback, VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.cli.plan.command import print_plan
from trl_vade.cli.tables import print_table
from trl_vade.cli.training_arguments import (
    TESTBED,
    VADEScriptArguments,
    load_splits,
    pick_split,
    read_plan_arguments,
    refuse_contradictions,
    refuse_plan_in_recipe,
)
from trl_vade.errors import CheckpointIncompleteError, ConfigurationError, HubError, VADEError
from trl_vade.evaluation.callback import planned
from trl_vade.trainer.checkpoint.completeness import resolve_checkpoint
from trl_vade.trainer.checkpoint.output_folder import refuse_another_run

SCRIPTS = Path(__file__).parent
QUICKSTART = SCRIPTS / "recipes" / "quickstart.yaml"


def main(script_args: VADEScriptArguments, training_args: VADEGRPOConfig, model_args: ModelConfig) -> None:
    training_args.output_dir = training_args.output_dir.replace("{vade_sampler}", training_args.vade_sampler)
    asked = training_args.resume_from_checkpoint
    resume = resolve_checkpoint(asked == "true" if asked in ("true", "false") else asked, training_args.output_dir)
    refuse_another_run(training_args, resume)
    refuse_contradictions(training_args)
    rewards = [load_reward(name) for name in script_args.reward_funcs]
    lmms_options = script_args.lmms_options()
    if lmms_options:
        try:
            planned(training_args, **lmms_options)  # refused, if it has to be, before a model is loaded
        except ConfigurationError as error:
            raise ConfigurationError(
                f"Benchmarks during the training (--lmms_tasks, --lmms_data, --lmms_steps, --lmms_limit): {error}"
            ) from error

    # 1. Data and model. The testbed is built once and cached, so the other processes wait for the first.
    with training_args.main_process_first(desc="building the testbed"):
        dataset = load_splits(script_args)
        if model_args.model_name_or_path == TESTBED:
            from trl_vade.testbed import load_testbed_model

            model_args.model_name_or_path = str(load_testbed_model(seed=script_args.testbed_seed))
    train_dataset, eval_dataset = pick_split(dataset, "dataset_train_split", script_args), None
    if training_args.eval_strategy != "no":
        eval_dataset = pick_split(dataset, "dataset_test_split", script_args)

    # 2. The trainer. A model given by name is loaded by TRL, with these arguments.
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    trainer = VADEGRPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=rewards,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
    )

    if lmms_options:
        trainer.add_callback(VADEEvalCallback(trainer, **lmms_options))

    # 3. Train. `--resume_from_checkpoint true` goes on from the newest checkpoint, with its posterior.
    with suppress(HubError):  # all is saved here; what is not on the Hub is tried again below
        trainer.train(resume_from_checkpoint=resume)

    # 4. Keep what was learned: weights, posterior, state.
    with suppress(HubError):
        trainer.save_model()
    trainer.save_state()
    if trainer.accelerator.is_main_process and trainer.selection is not None:
        report(training_args.output_dir, trainer.train_dataset)  # without what was too long
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)
    trainer.publication.finish()  # an error if anything is not on the Hub that is to be there
    trainer.end()


def load_reward(name: str):
    """A reward function of `trl.rewards` by its name, or any other by its import path."""
    module, _, function = name.rpartition(".")
    sys.path.insert(0, "")  # rewards in the user's working directory, as TRL's own scripts allow
    try:
        return getattr(importlib.import_module(module or "trl.rewards"), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"--reward_funcs {name}: {error}. Give a name of trl.rewards (accuracy_reward, think_format_reward, ...) "
            "or the import path of a function (my_package.rewards.my_reward)."
        ) from error
    finally:
        sys.path.pop(0)


def report(output_dir: str, train_dataset) -> None:
    """Print the table and draw the picture."""
    from trl_vade.selection.report.summary import REPORT_FILE, summary_rows, write_report

    columns = [column for column in ("task", "level") if column in train_dataset.column_names]
    strata = None
    if columns:
        strata = [" ".join(map(str, values)) for values in zip(*(train_dataset[c] for c in columns), strict=True)]
    try:
        summary = write_report(output_dir, strata)
    except VADEError as error:  # the model and its posterior are saved: a missing picture must not look like a failure
        print(f"No report: {error}")
        return
    print_table("What the sampler did", summary_rows(summary))
    print(f"Picture: {Path(output_dir) / REPORT_FILE}")


def command_line(arguments: list[str]) -> list[str]:
    """The arguments, with the quickstart recipe where they name neither a recipe nor a model nor a data set.

    Who switches the recipe's evaluation off switches off the one at the start, too.
    """
    words = [word for argument in arguments for word in argument.split("=", 1)]
    words = ["--" + word[2:].replace("-", "_") if word.startswith("--") else word for word in words]
    if {"--config", "--model_name_or_path", "--dataset_name", "--help", "-h"} & {*words}:
        return arguments
    off = ("--eval_strategy", "no") in pairwise(words) and "--eval_on_start" not in words
    return ["--config", str(QUICKSTART), *arguments, *(["--eval_on_start", "false"] if off else [])]


def parse(arguments: list[str]) -> tuple:
    """Read arguments and recipe; an unknown option, and what TRL refuses at this stage, is a `ConfigurationError`."""
    try:
        return TrlParser((VADEScriptArguments, VADEGRPOConfig, ModelConfig)).parse_args_and_config(arguments)
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def run(arguments: list[str]) -> None:
    """Train, or print the plan. Settings that cannot work end with their message and exit code 1."""
    arguments = command_line(arguments)
    plan_args = read_plan_arguments(arguments)
    try:
        if plan_args.plan:
            print_plan(arguments)
            return
        parsed = parse(arguments)
        refuse_plan_in_recipe(parsed[0], plan_args)
        main(*parsed)
    except (CheckpointIncompleteError, ConfigurationError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    # Python put this folder first, and lmms-eval's `import evaluate` would find the script of that name.
    sys.path[:] = [folder for folder in sys.path if Path(folder) != SCRIPTS]
    run(sys.argv[1:])
