"""Train a vision-language model by GRPO with prompts chosen by VADE.

    accelerate launch scripts/train_vade.py                             # the quickstart: minutes on a CPU
    accelerate launch scripts/train_vade.py --vade_sampler uniform      # the same with vanilla GRPO
    accelerate launch scripts/train_vade.py --config recipe.yaml        # your recipe; flags go before its values
    accelerate launch scripts/train_vade.py --help                      # every option
    python scripts/train_vade.py --config recipe.yaml --plan            # what the recipe means; trains nothing

Without `--config`, `--model_name_or_path` and `--dataset_name` it runs `scripts/recipes/quickstart.yaml`: a tiny, real
Qwen2.5-VL on a data set drawn on the spot. At the end it prints a table and leaves `vade_summary.json` and
`vade_report.png` in the output directory, beside the model and its posterior.

`--plan` reads the model's config.json and no weights, looks at no GPU, and needs no launcher.
"""

import importlib
import os
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path

from transformers import HfArgumentParser
from trl import ModelConfig, ScriptArguments, TrlParser, get_peft_config, get_quantization_config

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

QUICKSTART = Path(__file__).parent / "recipes" / "quickstart.yaml"
TESTBED = "testbed"  # as a model's or a data set's name: the embedded one
NOT_LAUNCHED = " (Planned as launched here. --plan_accelerate scripts/accelerate/fsdp2.yaml plans for that launch.)"


@dataclass
class PlanArguments:
    """What `--plan` is for; without it these do nothing."""

    plan: bool = field(
        default=False,
        metadata={"help": "Print what the recipe means (batches, updates, rollouts, GPU memory) and train nothing."},
    )
    plan_accelerate: str | None = field(
        default=None,
        metadata={
            "help": "Accelerate configuration that the run will be launched with: gives the number of processes and "
            "what they share. Without it: WORLD_SIZE processes (1 where it is not set), sharing nothing."
        },
    )
    plan_processes: int | None = field(default=None, metadata={"help": "Number of processes, in place of that one."})
    plan_rows: int | None = field(
        default=None,
        metadata={"help": "Rows of the training split. Without it the data set is loaded from its folder."},
    )
    plan_prompt_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of the longest prompt, image tokens included. Without it: vade_max_prompt_length, else "
            "vllm_max_model_length - max_completion_length."
        },
    )
    plan_image_tokens: int = field(
        default=1024,
        metadata={"help": "Image tokens of a row, on average: one for 28 x 28 pixels, so 1024 are 896 x 896 pixels."},
    )
    plan_gpu_memory: float = field(
        default=139.0, metadata={"help": "Memory of a GPU in GiB, as CUDA counts it. An H200 has 139."}
    )


@dataclass
class VADEScriptArguments(PlanArguments, ScriptArguments):
    """What to train on, and by which rewards."""

    reward_funcs: list[str] = field(
        default_factory=lambda: ["accuracy_reward"],
        metadata={
            "help": "Reward functions: names of trl.rewards (accuracy_reward, think_format_reward, ...) or dotted "
            "import paths (my_package.rewards.my_reward). With several, set --vade_success_reward."
        },
    )
    testbed_seed: int = field(default=0, metadata={"help": "Seed of the embedded data set and model."})


def main(script_args: VADEScriptArguments, training_args: VADEGRPOConfig, model_args: ModelConfig) -> None:
    # 1. Data and model. The testbed is built once and cached, so the other processes wait for the first.
    with training_args.main_process_first(desc="building the testbed"):
        dataset = load_splits(script_args)
        if model_args.model_name_or_path == TESTBED:
            from trl_vade.testbed import load_testbed_model

            model_args.model_name_or_path = str(load_testbed_model(seed=script_args.testbed_seed))
    train_dataset = dataset[script_args.dataset_train_split]
    eval_dataset = dataset[script_args.dataset_test_split] if training_args.eval_strategy != "no" else None

    # 2. The trainer. A model given by name is loaded by TRL, with these arguments.
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    trainer = VADEGRPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=[load_reward(name) for name in script_args.reward_funcs],
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
    )

    # 3. Train. `--resume_from_checkpoint true` goes on from the newest checkpoint, with its posterior.
    resume = training_args.resume_from_checkpoint
    trainer.train(resume_from_checkpoint=resume == "true" if resume in ("true", "false") else resume)

    # 4. Keep what was learned: weights, posterior, state.
    trainer.save_model()
    trainer.save_state()
    if trainer.accelerator.is_main_process and trainer.selection is not None:
        report(training_args.output_dir, trainer.train_dataset)  # without what was too long
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)
    trainer.end()


def load_splits(script_args: VADEScriptArguments):
    """The data set by name: the testbed, a Hub repository or a local folder."""
    if script_args.dataset_name == TESTBED:
        from trl_vade.testbed import load_testbed_dataset

        return load_testbed_dataset(seed=script_args.testbed_seed)
    from datasets import load_dataset

    return load_dataset(
        script_args.dataset_name, name=script_args.dataset_config, streaming=script_args.dataset_streaming
    )


def load_reward(name: str):
    """A reward function of `trl.rewards` by its name, or any other by its import path."""
    module, _, function = name.rpartition(".")
    sys.path.insert(0, "")  # rewards in the user's working directory, as TRL's own scripts allow
    try:
        return getattr(importlib.import_module(module or "trl.rewards"), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"--reward_funcs {name}: {error}. Give a name of trl.rewards (accuracy_reward, think_format_reward, ...) "
            "or the import path of a function (my_package.rewards.my_reward)."
        ) from error
    finally:
        sys.path.pop(0)


def report(output_dir: str, train_dataset) -> None:
    """Print the table and draw the picture."""
    from trl_vade.errors import VADEError
    from trl_vade.report import REPORT_FILE, summary_rows, write_report

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


def print_table(title: str, rows: list[tuple[str, str]]) -> None:
    """Print names and values, with lines around them where rich is installed (it is in the `report` extra)."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        width = max(len(name) for name, _ in rows)
        print("\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)]))
        return
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    Console().print(table)


def show_plan(arguments: list[str], plan_args: PlanArguments) -> None:
    """Print what the recipe means. Raises `ConfigurationError` or TRL's `ValueError` for what cannot work."""
    from trl_vade.launch import Launch, read_launch
    from trl_vade.plan import make_plan, planned_config
    from trl_vade.plan_report import plan_rows

    launch = Launch() if plan_args.plan_accelerate is None else read_launch(plan_args.plan_accelerate)
    if plan_args.plan_processes is not None:
        launch = Launch(plan_args.plan_processes, launch.sharding, launch.mixed_precision)
    elif plan_args.plan_accelerate is None:
        launch = Launch(int(os.environ.get("WORLD_SIZE", "1")))
    parser = TrlParser((VADEScriptArguments, planned_config(launch.processes), ModelConfig))
    script_args, args, model_args = parser.parse_args_and_config(arguments)
    refuse_plan_in_recipe(script_args, plan_args)
    plan = make_plan(args, number_of_rows(script_args))
    print_table("The plan", plan_rows(plan, launch))
    show_memory(script_args, args, model_args, launch)


def refuse_plan_in_recipe(script_args: VADEScriptArguments, plan_args: PlanArguments) -> None:
    """Refuse a plan's options in a recipe: they are read before it, and would be passed over."""
    from trl_vade.errors import ConfigurationError

    for option in fields(PlanArguments):
        if getattr(script_args, option.name) != getattr(plan_args, option.name):
            raise ConfigurationError(
                f"The recipe sets {option.name}={getattr(script_args, option.name)!r}. A plan's options decide how "
                f"the recipe is read, so they are flags of the command: give --{option.name} there."
            )


def number_of_rows(script_args: VADEScriptArguments) -> int:
    """Rows of the training split; a data set is loaded only where that takes no network."""
    from trl_vade.errors import ConfigurationError

    if script_args.plan_rows is not None:
        return script_args.plan_rows
    name = script_args.dataset_name
    if name != TESTBED and not Path(name or "").exists():
        raise ConfigurationError(
            f"dataset_name={name!r} is no folder here, and a plan downloads nothing. Give the number of rows of the "
            "training split, such as --plan_rows 8524 (90 % of the paper's 9,471)."
        )
    return len(load_splits(script_args)[script_args.dataset_train_split])


def show_memory(script_args, args, model_args, launch) -> None:
    """Print the estimate of GPU memory, or why there is none."""
    from trl_vade.memory import GIB, Lengths, estimate_memory, gib, why_no_estimate
    from trl_vade.model_shape import read_model_shape
    from trl_vade.plan_report import memory_rows, verdict

    reason = "use_cpu is set" if args.planned_on_cpu else why_no_estimate(args, model_args)
    prompt = script_args.plan_prompt_tokens or args.vade_max_prompt_length
    if prompt is None and args.vllm_max_model_length is not None:
        prompt = args.vllm_max_model_length - args.max_completion_length
    if reason is None and prompt is None:
        reason = "the longest prompt is not known: set --plan_prompt_tokens or vade_max_prompt_length"
    if reason is not None:
        print(f"No estimate of GPU memory: {reason}.")
        return
    shape = read_model_shape(model_args.model_name_or_path, revision=model_args.model_revision)
    lengths = Lengths(prompt, min(script_args.plan_image_tokens, prompt), args.max_completion_length)
    estimate = estimate_memory(
        args,
        shape,
        launch,
        lengths,
        gpu=int(script_args.plan_gpu_memory * GIB),
        dtype=(args.model_init_kwargs or {}).get("dtype", model_args.dtype),
        flash="flash" in str(model_args.attn_implementation),
    )
    print_table(f"Estimated memory of one GPU, which has {gib(estimate.gpu)}", memory_rows(estimate))
    print(
        f"{shape.parameters:,} parameters. Micro-batches of {args.per_device_train_batch_size} rows, padded to\n"
        f"prompts of {prompt:,} tokens and completions of {lengths.completion:,}, with {lengths.image:,} image\n"
        "tokens a row on average.\n"
        "* certain; the rest is an estimate. Left out: fragmentation, the CUDA context, communication buffers."
    )
    if estimate.kv_cache_tokens is not None:
        print(
            f"vLLM's share: at most {estimate.kv_cache_tokens:,} tokens of KV cache in each engine, or "
            f"{estimate.parallel_sequences:,} of the longest sequences at a time."
        )
    estimate.refuse_what_cannot_fit()
    print(verdict(estimate))


def command_line(arguments: list[str]) -> list[str]:
    """The arguments, with the quickstart recipe where they name neither a recipe nor a model nor a data set."""
    named = {argument.split("=")[0] for argument in arguments}
    if named & {"--config", "--model_name_or_path", "--dataset_name", "--help", "-h"}:
        return arguments
    return ["--config", str(QUICKSTART), *arguments]


def run(arguments: list[str]) -> None:
    """Train, or print the plan. A plan that cannot work ends with its message and exit code 1."""
    arguments = command_line(arguments)
    early = HfArgumentParser(PlanArguments, add_help=False, allow_abbrev=False)
    plan_args, _ = early.parse_args_into_dataclasses(
        arguments, return_remaining_strings=True, look_for_args_file=False
    )
    if not plan_args.plan:
        parsed = TrlParser((VADEScriptArguments, VADEGRPOConfig, ModelConfig)).parse_args_and_config(arguments)
        refuse_plan_in_recipe(parsed[0], plan_args)
        main(*parsed)
        return
    try:
        show_plan(arguments, plan_args)
    except (ValueError, OSError) as error:  # ConfigurationError is one; TRL refuses by ValueError, too; no such file
        here = "" if plan_args.plan_accelerate or plan_args.plan_processes else NOT_LAUNCHED
        sys.exit(f"This recipe cannot run so. {error}{here}")


if __name__ == "__main__":
    run(sys.argv[1:])
