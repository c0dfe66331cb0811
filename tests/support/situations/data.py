"""Training and evaluation rows of every form that TRL takes."""

import datetime
import tempfile

from datasets import Dataset, load_from_disk

from tests.support.as_stock import Situation
from tests.support.rows import make_text_rows, text_of
from tests.support.runs import odd_length

from .rewards import of
from .settings import SAVED, resumed


def plain_prompts():
    return make_text_rows().map(lambda row: {"prompt": row["prompt"][0]["content"]}, features=None)


def system_prompts():
    rows = make_text_rows().to_list()
    for row in rows[::3]:
        row["prompt"] = [{"role": "system", "content": "say a digit"}, *row["prompt"]]
    return Dataset.from_list(rows)


def several_turns():
    more = [{"role": "assistant", "content": "say"}, {"role": "user", "content": "digit"}]
    return make_text_rows().map(lambda row: {"prompt": row["prompt"] + more})


def odd_columns():
    rows = make_text_rows().to_list()
    for number, row in enumerate(rows):
        day = datetime.datetime(2026, 1, 1) + datetime.timedelta(number)
        row |= {"info": {"a": [number], "b": None}, "day": day, "nothing": None, "maybe": None if number % 2 else "x"}
    return Dataset.from_list(rows)


def seeing(*names):
    """A reward that notes columns, and follows from them."""

    def given(side):
        def reward(completions, **columns):
            side.seen.append({name: [str(value) for value in columns[name]] for name in names})
            texts = zip(*(columns[name] for name in names), strict=True)
            return [float(len(text_of(each) + str(text)) % 2) for each, text in zip(completions, texts, strict=True)]

        return {"reward_funcs": reward}

    return given


def in_numpy():
    return make_text_rows().with_format("numpy", columns=["limit"], output_all_columns=True)


def reloaded():
    with tempfile.TemporaryDirectory() as folder:
        make_text_rows().save_to_disk(folder)
        return load_from_disk(folder, keep_in_memory=True)


def shouted(batch):
    """A transform without chance."""
    return batch | {"shout": [name.upper() for name in batch["id"]]}


EVERY_STEP = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}


def with_evaluation(rows):
    return lambda side: {"eval_dataset": rows()}


def eight():
    return make_text_rows().select(range(8))


DATA = {
    "prompts that are texts": Situation({}, of(odd_length), plain_prompts),
    "system prompts in some rows": Situation({}, rows=system_prompts),
    "prompts of several turns": Situation({}, rows=several_turns),
    "odd columns": Situation({}, seeing("info", "day", "nothing", "maybe"), odd_columns),
    "numpy's format": Situation({}, seeing("limit"), in_numpy),
    "torch's format": Situation({}, seeing("limit"), lambda: make_text_rows().with_format("torch")),
    "a transform": Situation({}, seeing("shout"), lambda: make_text_rows().with_transform(shouted)),
    "a transform, resumed": Situation(
        SAVED, seeing("shout"), lambda: make_text_rows().with_transform(shouted), drive=resumed
    ),
    "saved to disk": Situation({}, rows=reloaded, as_base=True),
    "shuffled and selected": Situation({}, rows=lambda: make_text_rows().shuffle(seed=1).select(range(3, 20))),
    "a stream": Situation({}, rows=lambda: make_text_rows().to_iterable_dataset(), selected=False),
    "evaluation": Situation(EVERY_STEP, with_evaluation(eight), logs="eval_reward"),
    "evaluation of several sets": Situation(
        EVERY_STEP, with_evaluation(lambda: {"a": eight(), "b": eight()}), logs="eval_b_loss"
    ),
    "evaluation with fewer completions": Situation(
        EVERY_STEP | {"num_generations_eval": 2}, with_evaluation(eight), logs="eval_reward"
    ),
    "evaluation as it starts": Situation(
        EVERY_STEP | {"eval_on_start": True, "eval_steps": 2}, with_evaluation(eight), logs="eval_reward"
    ),
    "evaluation and a schedule that follows it": Situation(
        EVERY_STEP | {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "eval_reward"},
        with_evaluation(eight),
        logs="eval_reward",
    ),
    "evaluation, log and checkpoint of an epoch": Situation(
        {f"{what}_strategy": "epoch" for what in ("eval", "logging", "save")}
        | {"max_steps": -1, "num_train_epochs": 2, "per_device_eval_batch_size": 8},
        with_evaluation(eight),
        logs="eval_reward",
    ),
    "evaluation, resumed": Situation(EVERY_STEP | SAVED, with_evaluation(eight), drive=resumed, logs="eval_reward"),
}
