"""Reward functions of every form that TRL takes."""

import functools

import torch

from tests.support.as_stock import Situation
from tests.support.runs import always_half, says_a_digit

SUCCESS = {"vade_success_reward": "says_a_digit"}


def length(completions, **columns):
    """A second reward, in fractions."""
    return [len(each[0]["content"]) / 30 for each in completions]


async def later(completions, **columns):
    return length(completions)


def scaled(completions, factor, **columns):
    return [factor * score for score in length(completions)]


def of(function):
    return lambda side: {"reward_funcs": function}


def as_tensor(completions, **columns):
    return torch.tensor(length(completions))


def some_none(completions, **columns):
    return [None if i % 3 == 0 else score for i, score in enumerate(length(completions))]


def only_none(completions, **columns):
    return [None] * len(completions)


def some_nan(completions, **columns):
    return [float("nan") if i % 3 == 0 else score for i, score in enumerate(length(completions))]


def by_the_step(completions, trainer_state, **columns):
    return [score if trainer_state.global_step else -score for score in length(completions)]


def logging(side):
    def noting(completions, completion_ids, log_metric, log_extra, **columns):
        side.seen.append(completion_ids)
        log_extra("length", [len(ids) for ids in completion_ids])
        log_metric("longest", max(map(len, completion_ids)))
        return length(completions)

    return {"reward_funcs": noting}


def writing(prompts, completions, **columns):
    """A judge that writes each completion behind its prompt."""
    for prompt, completion in zip(prompts, completions, strict=True):
        assert len(prompt) == 1
        prompt += completion
    return length(completions)


def model(side):
    from transformers import AutoTokenizer, Qwen2ForSequenceClassification

    torch.manual_seed(5)
    scorer = Qwen2ForSequenceClassification.from_pretrained(side.model, num_labels=1, pad_token_id=0)
    torch.nn.init.normal_(scorer.score.weight, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(5)
    return {"reward_funcs": scorer, "reward_processing_classes": AutoTokenizer.from_pretrained(side.model)}


def two(**args):
    return Situation(args, of([says_a_digit, length]), ours=SUCCESS, logs="rewards/length/mean")


REWARDS = {
    "a function with numbers": Situation({}, of(length)),
    "a partial": Situation({}, of(functools.partial(scaled, factor=3))),
    "a tensor": Situation({}, of(as_tensor)),
    "no score for some": Situation({}, of(some_none)),
    "no score for any": Situation({}, of(only_none)),
    "no score for any by the second": Situation({}, of([says_a_digit, only_none]), ours=SUCCESS, as_base=True),
    "NaN": Situation({}, of(some_nan)),
    "async": Situation({}, of(later)),
    "async beside sync": Situation({}, of([says_a_digit, later, length]), ours=SUCCESS, logs="rewards/later/mean"),
    "by the state of the trainer": Situation({}, of(by_the_step)),
    "that log": Situation({"log_completions": True}, logging, logs="longest"),
    "that write into the prompts": Situation({}, of(writing)),
    "a model": Situation({}, model),
    "two": two(),
    "two with weights": two(reward_weights=[0.3, 1.7]),
    "two, normalised first": two(multi_objective_aggregation="normalize_then_sum"),
    "two, no name says success": Situation({}, of([says_a_digit, length])),
    "always the same": Situation({}, of(always_half)),
}
