"""The seams: what this package needs of methods of TRL and transformers that are no public interface.

Each seam is checked before a model is loaded, so a newer library works, or is refused in one message. What a method
returns is found by the names in its `return`: a value that a newer TRL adds passes through.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import transformers
import trl
from transformers import Trainer
from trl import GRPOTrainer
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from trl_vade.errors import LibraryError
from trl_vade.version import TESTED_TRL, __version__

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Seam:
    """A method of a library, and what this package needs of it.

    Attributes:
        owner: the class that has the method.
        method: its name.
        since: the oldest release that was found to have all of it.
        takes: names of its parameters.
        returns: names in its `return`.
        sets: attributes that it sets.
        decides: conditions of its `if` statements.
        issue: of huggingface/trl; with its solution the seam could go. Empty if none is known.
    """

    owner: type[Any]
    method: str
    since: str
    takes: Sequence[str] = ()
    returns: Sequence[str] = ()
    sets: Sequence[str] = ()
    decides: Sequence[str] = ()
    issue: str = ""

    def lacks(self) -> Iterator[str]:
        """Yield what the installed library lacks of it."""
        name = f"{self.owner.__name__}.{self.method}"
        if not hasattr(self.owner, self.method):
            yield f"{name} does not exist"
            return
        try:
            defined = definition(self.owner, self.method)
        except (OSError, SyntaxError, TypeError):
            yield f"{name} has no source that can be read"
            return
        parts = [*ast.walk(defined)]
        stored = [each for each in parts if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)]
        for verb, needed, found in (
            ("take", self.takes, parameters_of(defined)),
            ("return", self.returns, returned_names(defined)),
            ("set", self.sets, [each.attr for each in stored]),
            ("decide by", self.decides, [ast.unparse(each.test) for each in parts if isinstance(each, ast.If)]),
        ):
            if missing := [each for each in needed if each not in found]:
                yield f"{name} does not {verb} {', '.join(missing)}"


def definition(owner: type[Any], method: str) -> Function:
    """Return the library's source of a method, parsed. A user may have put a function of another module in its place.

    Raises:
        OSError, TypeError: there is no source.
    """
    within = next(each for each in owner.__mro__ if method in vars(each))
    function = inspect.unwrap(vars(within)[method])
    theirs = within.__module__.partition(".")[0]
    own = (getattr(function, "__module__", None) or theirs).partition(".")[0] == theirs
    for source in (function, within) if own else (within,):  # a decorator's own function has another name
        if found := next((each for each in _functions(source) if each.name == method), None):
            return found
    raise OSError(f"{within.__name__} has no source of {method}")


@functools.cache
def _functions(source: Any) -> list[Function]:
    parsed = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(source))))
    return [each for each in parsed if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def parameters_of(defined: Function) -> list[str]:
    """Return the names of a function's parameters, those by keyword alone last."""
    return [each.arg for each in (*defined.args.posonlyargs, *defined.args.args, *defined.args.kwonlyargs)]


@functools.cache  # asked several times a generation batch, and a millisecond to find
def returned_names(defined: Function) -> tuple[str, ...]:
    """Return the names of the values that a function returns, in order. Empty if its returns differ or have none."""
    todo, found = [*defined.body], set()
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            found.add(tuple(ast.unparse(value) for value in values))
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return found.pop() if len(found) == 1 else ()


def arguments_of(owner: type[Any], method: str, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of a library's method by their names, without `self`."""
    return dict(zip(parameters_of(definition(owner, method))[1:], positional, strict=False)) | dict(named)


def by_name(owner: type[Any], method: str, values: Iterable[Any]) -> dict[str, Any]:
    """Return the `values` that a library's method returned, by their names and in their order."""
    return dict(zip(returned_names(definition(owner, method)), values, strict=True))


CHOOSE, SCORE_FIRST = "#3474", "#3708"

OF_TRL = (
    Seam(
        GRPOTrainer,
        "__init__",
        "1.15",
        sets=(
            *("_buffered_inputs", "_dist", "_is_vlm", "_metrics", "_pending_extra_logs", "_step", "_tokenizer"),
            *("aux_loss_enabled", "chat_template", "chat_template_kwargs", "environment_factories", "eos_token_ids"),
            *("generation_config", "generation_kwargs", "log_multimodal", "mask_truncated_completions"),
            *("multi_objective_aggregation", "num_iterations", "reward_weights", "use_adaptive_entropy"),
            "vllm_generation",
        ),
    ),
    # The rows of a generation batch.
    Seam(GRPOTrainer, "_get_train_sampler", "1.9", takes=("dataset",), issue=CHOOSE),
    Seam(
        GRPOTrainer,
        "_prepare_inputs",
        "1.9",
        takes=("generation_batch",),
        sets=("_buffered_inputs",),
        decides=("self._step % generate_every == 0 or self._buffered_inputs is None",),
        issue=CHOOSE,
    ),
    # Scores before the passes over the completions, refills, and the passes over a part of the rows.
    Seam(GRPOTrainer, "_generate_and_score_completions", "1.9", takes=("inputs",), issue=SCORE_FIRST),
    Seam(
        GRPOTrainer,
        "_generate",
        "1.9",
        takes=("prompts",),
        returns=("completion_ids", "completions", "extra_fields", "images"),
        issue=SCORE_FIRST,
    ),
    Seam(GRPOTrainer, "_generate_single_turn", "1.9", returns=("completion_ids",), issue=SCORE_FIRST),
    Seam(
        GRPOTrainer,
        "_calculate_rewards",
        "1.9",
        takes=("inputs", "prompts", "completions", "completion_ids_list"),
        issue=SCORE_FIRST,
    ),
    Seam(
        GRPOTrainer,
        "_get_per_token_logps_and_entropies",
        "1.15",
        takes=("model", "input_ids", "num_images"),
        returns=("logps", "entropies"),
        issue=SCORE_FIRST,
    ),
    Seam(GRPOTrainer, "_compute_loss", "1.9", takes=("model", "inputs")),
    Seam(GRPOTrainer, "get_high_entropy_mask", "1.9", takes=("entropies", "mask", "threshold")),
    # Each image once.
    Seam(GRPOTrainer, "_tokenize_prompts", "1.9", ("prompts",), ("prompt_ids", "images", "multimodal_fields")),
    # Corrections of the engines.
    Seam(VLLMGeneration, "_init_vllm", "1.9", sets=("llm", "vllm_client")),
    Seam(VLLMGeneration, "sync_weights", "1.9"),
    Seam(VLLMGeneration, "_iter_fsdp2_params", "1.11", takes=("module",)),
    Seam(VLLMGeneration, "_place_features", "1.11", takes=("features", "prompt_ids")),
    Seam(VLLMClient, "generate", "1.11", takes=("prompts", "features", "n", "generation_kwargs")),
)

OF_TRANSFORMERS = (
    Seam(Trainer, "_inner_training_loop", "5.10", takes=("resume_from_checkpoint", "trial")),
    Seam(Trainer, "_run_epoch", "5.10"),
    # Checkpoints.
    Seam(Trainer, "_get_output_dir", "5.10", takes=("trial",)),
    Seam(Trainer, "_issue_warnings_after_load", "5.10", takes=("load_result",)),
    Seam(Trainer, "_load_best_model", "5.10"),
    Seam(Trainer, "_load_from_checkpoint", "5.10", takes=("resume_from_checkpoint", "model")),
    Seam(Trainer, "_load_optimizer_and_scheduler", "5.10", takes=("checkpoint",)),
    Seam(Trainer, "_save", "5.10", takes=("output_dir", "state_dict")),
    Seam(Trainer, "_save_checkpoint", "5.10", takes=("model", "trial")),
    Seam(Trainer, "save_model", "5.10", takes=("output_dir", "_internal_call")),
    # Uploads.
    Seam(Trainer, "_push_from_checkpoint", "5.10", takes=("checkpoint_folder",)),
    Seam(Trainer, "init_hf_repo", "5.10", takes=("token",)),
    # Pixels on the device.
    Seam(Trainer, "_prepare_input", "5.10", takes=("data",)),
)


@functools.cache
def check_seams(seams: tuple[Seam, ...] = (*OF_TRL, *OF_TRANSFORMERS)) -> None:
    """Refuse libraries that lack something this package needs.

    Raises:
        LibraryError: with the versions, the methods, and what to install.
    """
    lacking = [each for seam in seams for each in seam.lacks()]
    if lacking:
        raise LibraryError(
            f"trl_vade {__version__} does not work with TRL {trl.__version__} and transformers "
            f"{transformers.__version__}: {'; '.join(lacking)}. Install 'trl{TESTED_TRL}' with a transformers of its "
            "time, or a newer trl_vade."
        )
