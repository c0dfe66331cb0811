"""Objects and code of the user's: callbacks, optimisers, adapters, tools, environments, subclasses."""

import torch
from transformers import AutoModelForCausalLM, EarlyStoppingCallback, TrainerCallback

from tests.support.agents import Board, board_rows
from tests.support.as_stock import Situation
from tests.support.rows import text_of
from tests.support.runs import says_a_digit

from .data import EVERY_STEP, eight
from .rewards import SUCCESS, length
from .settings import SAVED, resumed

AGENT = {"model": "agent_model_path", "logs": "tools/call_frequency"}
LONG = {"max_completion_length": 12}
LORA = {"r": 2, "target_modules": ["q_proj", "v_proj"]}


def calling(moment, act):
    """Drive with a callback that does `act` with the trainer at a moment (`on_step_end`), and notes that it did."""

    def drive(make, side):
        trainer = make()

        def at_the_moment(self, args, state, control, **columns):
            side.seen.append((moment, state.global_step))
            act(trainer)

        trainer.add_callback(type("Mine", (TrainerCallback,), {moment: at_the_moment})())
        trainer.train()
        assert side.seen
        return trainer

    return drive


def weigh(trainer):
    trainer.reward_weights = trainer.reward_weights * torch.tensor([0.5, 2.0])


def cool(trainer):
    trainer.temperature = trainer.generation_config.temperature = 0.5
    trainer.generation_kwargs["temperature"] = 0.5


def evaluate(trainer):
    trainer.evaluate()


def stop(trainer):
    trainer.control.should_training_stop = trainer.state.global_step == 2


def evaluated(**more):
    return lambda side: {"eval_dataset": eight()} | {name: make() for name, make in more.items()}


BEST = EVERY_STEP | {"save_strategy": "steps", "save_steps": 1, "max_steps": 3, "metric_for_best_model": "eval_reward"}


# ------------------------------------------------------------------------------------------ models and optimisers


def optimised(side):
    model = AutoModelForCausalLM.from_pretrained(side.model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.3)
    return {"model": model, "optimizers": (optimiser, schedule)}


def lora_by_config(side):
    from peft import LoraConfig

    return {"peft_config": LoraConfig(**LORA)}


def lora_by_model(side):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(4)
    return {"model": get_peft_model(AutoModelForCausalLM.from_pretrained(side.model), LoraConfig(**LORA))}


# ------------------------------------------------------------------------------------------- tools and environments


def take(n: int) -> str:
    """
    Take a piece.

    Args:
        n: its number.
    """
    return str(n)


def tools(*some):
    def given(side):
        def turns(completions, **columns):
            side.seen.append([len(each) for each in completions])
            return [float((len(each) + len(text_of(each))) % 2) for each in completions]

        return {"tools": list(some), "reward_funcs": turns}

    return given


class Narrated(Board):
    """An environment that adds to the prompt."""

    def reset(self, board, **columns):
        super().reset(board)
        return f" {len(board)}"


def environments(factory, **more):
    def given(side):
        def moves(environments, **columns):
            assert {len(each.board) + each.moves for each in environments} == {4}  # each takes from a list of its own
            side.seen.append([each.moves for each in environments])
            return [float(number % 2) for number in side.seen[-1]]

        return {"environment_factory": factory, "reward_funcs": moves} | more

    return given


def two_kinds():
    rows = board_rows()
    return rows.add_column("environment", ["board", "narrated"] * (len(rows) // 2))


def rollout(prompts, trainer):
    """A rollout function that generates by itself, and plays on in the prompts that it was handed."""
    prompt_ids = trainer._tokenize_prompts(prompts)[0]
    completion_ids, _ = trainer._generate_single_turn(prompt_ids, None, {}, trainer.num_generations)
    for prompt in prompts:
        assert len(prompt) == 1
        prompt.append({"role": "user", "content": "say"})
    logprobs = [[0.0] * len(ids) for ids in completion_ids]
    lengths = [len(ids) for ids in completion_ids]
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs, "lengths": lengths}


def by_lengths(completions, lengths, **columns):
    return [float(number % 2) + len(text_of(each)) / 10 for number, each in zip(lengths, completions, strict=True)]


# ------------------------------------------------------------------------------------------------------- subclasses


def own_loss(base):
    class Mine(base):
        def _compute_loss(self, model, inputs):
            return 3 * super()._compute_loss(model, inputs)

    return Mine


def own_rewards(base):
    class Mine(base):
        def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            return rewards + torch.tensor([[float(len(ids) % 2)] for ids in completion_ids_list])

    return Mine


def own_init(base):
    class Mine(base):
        def __init__(self, *positional, factor=1.0, **named):
            super().__init__(*positional, **named)
            self.factor = factor

        def compute_loss(self, *positional, **named):
            return self.factor * super().compute_loss(*positional, **named)

    return Mine


CODE = {
    "an optimiser": Situation({}, optimised),
    "LoRA by its settings, with beta": Situation({"beta": 0.1, "max_steps": 3}, lora_by_config, logs="kl"),
    "LoRA as a model": Situation({}, lora_by_model),
    "LoRA, resumed": Situation(SAVED, lora_by_config, drive=resumed),
    "weights of the rewards that a callback changes": Situation(
        {"max_steps": 3},
        lambda side: {"reward_funcs": [says_a_digit, length]},
        drive=calling("on_step_end", weigh),
        ours=SUCCESS,
    ),
    "a temperature that a callback changes": Situation({"max_steps": 3}, drive=calling("on_step_end", cool)),
    "evaluation inside a step": Situation(
        {"per_device_eval_batch_size": 8}, evaluated(), drive=calling("on_step_end", evaluate), logs="eval_reward"
    ),
    "evaluation inside an accumulation": Situation(
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 8},
        evaluated(),
        drive=calling("on_substep_end", evaluate),
        logs="eval_reward",
    ),
    "a callback that stops": Situation({"max_steps": 5}, drive=calling("on_step_end", stop)),
    "early stopping": Situation(
        BEST | {"max_steps": 6}, evaluated(callbacks=lambda: [EarlyStoppingCallback(1)]), logs="eval_reward"
    ),
    "the best model at the end": Situation(BEST | {"load_best_model_at_end": True}, evaluated(), logs="eval_reward"),
    "a tool": Situation(LONG, tools(take), **AGENT),
    "tools, one call": Situation(LONG | {"max_tool_calling_iterations": 1}, tools(take), **AGENT),
    "an environment": Situation(LONG, environments(Board), board_rows, **AGENT),
    "an environment that adds to the prompt": Situation(LONG, environments(Narrated), board_rows, **AGENT),
    "an environment, resumed": Situation(LONG | SAVED, environments(Board), board_rows, drive=resumed, **AGENT),
    "an environment, evaluated": Situation(
        LONG | EVERY_STEP, environments(Board, eval_dataset=board_rows(8)), board_rows, **AGENT
    ),
    "an environment and two iterations": Situation(
        LONG | {"num_iterations": 2, "max_steps": 5}, environments(Board), board_rows, **AGENT
    ),
    "several environments": Situation(LONG, environments({"board": Board, "narrated": Narrated}), two_kinds, **AGENT),
    "a rollout function": Situation({}, lambda side: {"rollout_func": rollout, "reward_funcs": by_lengths}),
    "a loss of the user's": Situation({}, kind=own_loss),
    "rewards of the user's": Situation({}, kind=own_rewards),
    "a trainer with an argument more": Situation({}, lambda side: {"factor": 2.5}, kind=own_init),
}
