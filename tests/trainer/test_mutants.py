"""TRL as a next release may be: one argument, entry or value more, or a module elsewhere. Each run ends as without it.

A change is written into the source of TRL, so that its own calls are as a release would have them.
"""

import inspect
import re
import sys
import textwrap

import pytest
import torch
import trl
from transformers import Trainer
from trl import GRPOTrainer

from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import largest_difference, says_a_digit, weights
from trl_vade.errors import LibraryError
from trl_vade.trainer.batch_rows import cut_padding
from trl_vade.trainer.seams import lacking

PLACES = {
    "default": {},
    "refills": {"vade_dynamic_sampling": True},
    "D3S": {"vade_down_sampling": "d3s"},
    "uniform": {"vade_sampler": "uniform"},
}
BY_NAME = ("D3S", "uniform")
PREPARE = "_generate_and_score_completions"
CALLERS = {  # of the methods that take what TRL passes
    "_prepare_inputs": (Trainer, "training_step"),
    PREPARE: (GRPOTrainer, "_prepare_inputs"),
    "_generate": (GRPOTrainer, PREPARE),
    "_tokenize_prompts": (GRPOTrainer, "_generate"),
    "_calculate_rewards": (GRPOTrainer, PREPARE),
    "_compute_loss": (GRPOTrainer, "compute_loss"),
    "log": (Trainer, "_maybe_log_save_evaluate"),
}
ENTRIES = {  # of a batch: what is put in, and what the loss does with it
    "of completions": ('{"more": completion_mask * 2}', 'mask = mask * (inputs["more"] > 1)'),
    "of prompts": (
        '{"more": prompt_mask * 2}',
        'attention_mask = torch.cat([(inputs["more"] > 1).long(), completion_mask], dim=1)',
    ),
    "of shifted tokens": (
        '{"more": attention_mask[:, 1:]}',
        'attention_mask = torch.cat([attention_mask[:, :1], inputs["more"]], dim=1)',
    ),
    "of rows": (
        '{"more": prompt_ids.sum(1), "list": [*map(str, prompt_ids.sum(1).tolist())]}',
        'assert inputs["list"] == [*map(str, prompt_ids.sum(1).tolist())] and inputs["more"].equal(prompt_ids.sum(1))',
    ),
    "of the batch": ('{"more": torch.tensor(2.0), "none": None}', 'assert inputs["more"] == 2 and not inputs["none"]'),
}
VALUES = {  # of `_generate`: where it returns one more, and where TRL reads it
    "behind the others": {
        "_generate": (r"(return prompt_ids, .*)", r"\1, 7"),
        PREPARE: (r"tool_images,(\s+\) = self._generate)", r"tool_images, more,\1"),
    },
    "for the rewards": {"_generate": (r"extra_fields = \{\}", 'extra_fields = {"more": completion_ids}')},
}
ENDS = {}  # weights of runs with TRL as it is


def end(run, place, reward=says_a_digit, **settings):
    """Return the weights of a run with TRL as it is now."""
    # SGD: Adam makes a rounding error of a tiny gradient a whole step.
    return weights(run(reward, max_steps=2, optim="sgd", learning_rate=1.0, **PLACES[place] | settings))


def end_before(run, place, **settings):
    """Return the weights of a run with TRL as it is; call it before TRL is changed."""
    key = place, *settings.items()
    if key not in ENDS:
        ENDS[key] = end(run, place, **settings)
    return ENDS[key]


@pytest.fixture
def rewrite(monkeypatch):
    """A function that replaces what a pattern finds in the source of a method."""

    def change(owner, method, pattern, text):
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(getattr(owner, method))))
        source, count = re.subn(pattern, text, source)
        assert count
        source = f"def make(__class__):\n{textwrap.indent(source, ' ')}\n return {method}"  # as `super()` needs it
        exec(source, vars(sys.modules[owner.__module__]), made := {})
        monkeypatch.setattr(owner, method, made["make"](owner))

    return change


@pytest.mark.parametrize("method", CALLERS)
@pytest.mark.parametrize("place", ["default", "refills", "D3S", slow("uniform")])
def test_one_argument_more_goes_to_trl(run, rewrite, monkeypatch, place, method):
    expected = end_before(run, place)
    stock, arrived = getattr(GRPOTrainer, method), []
    known = inspect.signature(stock)
    more = inspect.Parameter("more", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    changed_signature = known.replace(parameters=[*known.parameters.values(), more])

    def changed(*positional, **named):
        call = changed_signature.bind(*positional, **named)
        arrived.append(call.arguments.pop("more", None))
        return stock(*call.args, **call.kwargs)

    changed.__signature__ = changed_signature
    given = "more=7" if place in BY_NAME else "7"
    rewrite(*CALLERS[method], rf"self\.{method}\((.*?)\)", rf"self.{method}(\1, {given})")
    monkeypatch.setattr(GRPOTrainer, method, changed)
    assert largest_difference(end(run, place), expected) == 0
    assert 7 in arrived or place != "uniform"  # of a batch that is scored first, TRL's calls end with the answer


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("place", ["default", *map(slow, ["refills", "D3S", "uniform"])])
def test_one_entry_more_in_a_batch_goes_to_the_loss(run, rewrite, place, entry):
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "max_completion_length": 12}
    expected = end_before(run, place, **settings)
    made, read = ENTRIES[entry]
    rewrite(GRPOTrainer, PREPARE, "return output", f"return output | {made}")
    rewrite(GRPOTrainer, "_compute_loss", r"( +)(mask = .*)", rf"\1\2\n\1{read}")
    assert largest_difference(end(run, place, **settings), expected) < 1e-6


@pytest.mark.parametrize("where", VALUES)
@pytest.mark.parametrize("place", ["default", "refills", "D3S", slow("uniform")])
def test_with_one_value_more_a_batch_is_scored_when_trl_does_it(run, rewrite, caplog, place, where):
    expected, found = end_before(run, place), []

    def noting(completions, limit, more=None, **columns):
        found.append(more)
        return says_a_digit(completions, limit)

    for method, change in VALUES[where].items():
        rewrite(GRPOTrainer, method, *change)
    if place == "refills":
        with refused(LibraryError, [trl.__version__, "GRPOTrainer._generate", "vade_dynamic_sampling"]):
            end(run, place, noting)
        return
    assert largest_difference(end(run, place, noting), expected) < 1e-6
    assert caplog.text.count("rows without a gradient are left out only in the loss") == (place != "uniform")
    assert where != "for the rewards" or None not in found


@pytest.mark.parametrize("place", ["default", "refills", "D3S", slow("uniform")])
def test_without_the_modules_of_vllm_a_run_is_as_before_and_vllm_is_refused(made, run, monkeypatch, place):
    expected = end_before(run, place)
    for name in ("vllm_client", "vllm_generation"):  # TRL has them elsewhere
        monkeypatch.setitem(sys.modules, f"trl.generation.{name}", None)
        monkeypatch.delattr(trl.generation, name)
    lacking.cache_clear()
    assert largest_difference(end(run, place), expected) == 0
    with refused(LibraryError, [trl.__version__, "VLLMClient.generate", "use_vllm"], ["trl>=1.15"]):
        made(model="no/such-model", use_vllm=True, **PLACES[place])
    lacking.cache_clear()


@pytest.mark.parametrize("version", ["1.16.0", "1.17.0"])
def test_a_release_never_tried_is_named_at_the_start_and_in_an_error_of_the_run(made, monkeypatch, caplog, version):
    monkeypatch.setattr(trl, "__version__", version)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, inputs: inputs["elsewhere"])
    trainer = made()
    with pytest.raises(KeyError, match="elsewhere") as raised:
        trainer.train()
    said = [*caplog.messages, *getattr(raised.value, "__notes__", [])]
    assert ["1.17.0" in each and "never tried" in each for each in said].count(True) == 2 * (version == "1.17.0")


@pytest.mark.parametrize(
    ("more", "widths"),
    [
        ({}, (2, 2)),
        ({"more": torch.ones(2, 20), "list": ["x", "y"], "plain": 3, "none": None}, (2, 2)),
        ({"more": torch.ones(2, 1, 5)}, (3, 5)),
        ({"completion_mask": torch.tensor([[0, 0, 0, 0, 1]] * 2)}, (2, 5)),
        ({"old_per_token_logps": torch.ones(2, 8)}, (3, 5)),
    ],
    ids=["known", "of rows", "of tokens, in the third dimension", "padded on the other side", "of another width"],
)
def test_padding_is_cut_where_every_entry_is_known_or_has_no_columns_of_tokens(more, widths):
    batch = {"prompt_mask": torch.tensor([[0, 1, 1]] * 2), "completion_mask": torch.tensor([[1, 1, 0, 0, 0]] * 2)}
    cut = cut_padding(batch | more)
    assert (cut["prompt_mask"].shape[1], cut["completion_mask"].shape[1]) == widths
    assert cut.keys() == batch.keys() | more.keys()
