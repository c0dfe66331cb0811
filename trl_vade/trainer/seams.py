"""The seams: what this package needs of methods of TRL and transformers that are no public interface.

Each seam is checked before a model is loaded, so a newer library works, or is refused in one message. What a method
returns is found by the names in its `return`: a value that a newer TRL adds passes through.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        name, function = f"{self.owner.__name__}.{self.method}", getattr(self.owner, self.method, None)
        if function is None:
            yield f"{name} does not exist"
            return
        if function.__module__.partition(".")[0] not in ("trl", "transformers"):
            name += f", which {function.__module__} has patched,"
        try:
            parts = [*ast.walk(_parsed(function))]
        except (OSError, SyntaxError, TypeError):
            yield f"{name} has no source that can be read"
            return
        stored = [each for each in parts if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)]
        for verb, needed, found in (
            ("take", self.takes, [*inspect.signature(function).parameters]),
            ("return", self.returns, returned_names(function)),
            ("set", self.sets, [each.attr for each in stored]),
            ("decide by", self.decides, [ast.unparse(each.test) for each in parts if isinstance(each, ast.If)]),
        ):
            if missing := [each for each in needed if each not in found]:
                yield f"{name} does not {verb} {', '.join(missing)}"


@functools.cache
def _parsed(function: Callable[..., Any]) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))


@functools.cache
def returned_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the values that a function returns, in order. Empty if its returns differ or have none."""
    todo, found = [*_parsed(function).body[0].body], set()
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            found.add(tuple(ast.unparse(value) for value in values))
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return found.pop() if len(found) == 1 else ()


def by_name(function: Callable[..., Any], values: Iterable[Any]) -> dict[str, Any]:
    """Return the `values` that `function`, a method of a library, returned, by their names and in their order."""
    return dict(zip(returned_names(function), values, strict=True))


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
    Seam(Trainer, "_init_training_state", "5.10", returns=("epochs_trained", "steps_trained_in_current_epoch")),
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
