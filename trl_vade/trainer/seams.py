"""Do the libraries have the seams: methods of TRL and transformers that are no public interface?

Their signatures are checked before a model is loaded. What the choice of rows and the checkpoints need stood still
over six releases. Each other feature has seams of its own, and is off where one is missing.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

import transformers
import trl
from packaging.specifiers import SpecifierSet
from trl import GRPOTrainer

from trl_vade.errors import LibraryError
from trl_vade.version import TESTED_TRL, __version__

LOGPS = "_get_per_token_logps_and_entropies(model, input_ids, num_images)"
GRPO, TRAINER = "trl:GRPOTrainer", "transformers:Trainer"  # texts: a run imports no module that it does not use
ENGINE, CLIENT = "trl.generation.vllm_generation:VLLMGeneration", "trl.generation.vllm_client:VLLMClient"
SEAMS: dict[str, dict[str, Sequence[str]]] = {
    "": {
        GRPO: (
            "_prepare_inputs(generation_batch)",
            *("_generate_and_score_completions(inputs)", "_generate(prompts)"),
            "_calculate_rewards(inputs, prompts, completions, completion_ids_list)",
        ),
        TRAINER: (
            *("_inner_training_loop(resume_from_checkpoint, trial)", "_run_epoch()", "_get_output_dir(trial)"),
            *("_save_checkpoint(model, trial)", "save_model(output_dir, _internal_call)", "_load_best_model()"),
            *("_save(output_dir, state_dict)", "_load_from_checkpoint(resume_from_checkpoint, model)"),
            *("_load_optimizer_and_scheduler(checkpoint)", "_issue_warnings_after_load(load_result)"),
            *("_push_from_checkpoint(checkpoint_folder)", "init_hf_repo(token)"),
        ),
    },
    "vade_down_sampling": {
        GRPO: (LOGPS, "_compute_loss(model, inputs)", "get_high_entropy_mask(entropies, mask, threshold)")
    },
    "vade_images_once": {
        GRPO: (LOGPS, "_tokenize_prompts(prompts)", "_generate_single_turn()"),
        TRAINER: ("_prepare_input(data)",),
    },
    "use_vllm": {
        ENGINE: ("_init_vllm()", "sync_weights()", "_iter_fsdp2_params(module)", "_place_features(features)"),
        CLIENT: ("generate(prompts, features, n, generation_kwargs)",),
    },
}
"""By feature, the methods that it needs with their parameters; "" is the choice of rows and the checkpoints."""


SEE_ROWS = ("_prepare_inputs", "training_step", "compute_loss", "_compute_loss", "_get_per_token_logps_and_entropies")
"""Methods through which a subclass sees the rows that are trained on, and their pixels."""


@functools.cache
def lacking(feature: str) -> str:
    """Return what the installed libraries lack of the seams of a feature, or an empty text."""
    found = []
    for place, methods in SEAMS[feature].items():
        owner = None
        with suppress(ImportError, AttributeError):
            owner = resolve_name(place)
        for name, parameters in (method.rstrip(")").split("(") for method in methods):
            method = getattr(owner, name, None)
            known = inspect.signature(method).parameters if method else {}
            open_ended = any(each.kind is each.VAR_KEYWORD for each in known.values())  # a user's function around it
            if method is None or not (open_ended or {*filter(None, parameters.split(", "))} <= known.keys()):
                found.append(f"{place.partition(':')[2]}.{name}({parameters})")
    installed = f"TRL {trl.__version__} with transformers {transformers.__version__}"
    return f"{installed} lacks {', '.join(found)}" if found else ""


def never_tried() -> str:
    """Return a sentence about an installed TRL that is none of `TESTED_TRL`, or an empty text."""
    known = SpecifierSet(TESTED_TRL).contains(trl.__version__, prereleases=True)
    where = f"If an error is not of your own code, install 'trl{TESTED_TRL}' or a newer trl_vade."
    return "" if known else f"TRL {trl.__version__} was never tried with trl_vade {__version__}. {where}"


def check_seams(args: Any, say: Callable[[str], Any]) -> None:
    """Refuse libraries that lack what the settings ask for, by `LibraryError`; `say` what is off or never tried."""
    if sentence := never_tried():
        say(sentence)
    explicit = ("", *(["vade_down_sampling"] if args.vade_down_sampling not in (None, "none") else []))
    for feature in (*explicit, *(["use_vllm"] if args.use_vllm else [])):
        if lack := lacking(feature):
            raise LibraryError(
                f"{lack}, which {feature or 'the choice of rows'} needs. Install 'trl{TESTED_TRL}' with a "
                f"transformers of its time, or a newer trl_vade than {__version__}."
            )
    for feature in ("vade_down_sampling", "vade_images_once"):
        if (lack := lacking(feature)) and getattr(args, feature) not in ("none", False):
            say(f"{lack}, so {feature} is off. The training goes on as in TRL.")


def with_signatures(kind: type) -> type:
    """Give the overrides of a trainer's class the signatures of the installed `GRPOTrainer`, and return it."""
    for name, override in vars(kind).items():
        if inspect.isfunction(override) and hasattr(GRPOTrainer, name):
            override.__wrapped__ = getattr(GRPOTrainer, name)  # whose signature `inspect` takes
    return kind


_SIGNATURES = {  # of the library: a user may put another function in a method's place
    name: inspect.signature(getattr(GRPOTrainer, name))
    for name in ("_inner_training_loop", LOGPS.partition("(")[0])
    if hasattr(GRPOTrainer, name)
}


def arguments_of(method: str, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of a method of `GRPOTrainer` by their names, without `self`."""
    given = _SIGNATURES[method].bind(None, *positional, **named).arguments
    return dict([*given.items()][1:])


def owner_of(kind: type, method: str) -> type:
    """Return the class that defines the method of a trainer's class: a user's subclass, this package or a library."""
    return next(each for each in kind.__mro__ if method in vars(each))


def own_views(trainer: Any) -> str:
    """Say which methods of `SEE_ROWS`, which may use every row as it is, another class than TRL's and ours defines."""
    known = ("trl_vade.", "trl.trainer.", "transformers.")
    strange = [kind for kind in type(trainer).__mro__ if not f"{kind.__module__}.".startswith(known)]
    found = [f"{kind.__name__}.{method}" for kind in strange for method in SEE_ROWS if method in vars(kind)]
    return f"{', '.join(found)} may use every row" if found else ""
