"""What the trainer needs of TRL's private methods: found by name, and refused in one message where it is gone."""

import inspect
import subprocess
import sys
import textwrap

import pytest
import torch
import trl
from trl import GRPOTrainer

from tests.docs.prose import ROOT
from tests.support.refusals import refused, says
from tests.support.runs import assert_same_end, says_a_digit, train
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import LibraryError
from trl_vade.trainer.seams import (
    OF_TRANSFORMERS,
    OF_TRL,
    Seam,
    by_name,
    check_seams,
    definition,
    parameters_of,
    returned_names,
)

SEAMS = {f"{seam.owner.__name__}.{seam.method}": seam for seam in (*OF_TRL, *OF_TRANSFORMERS)}


@pytest.fixture(autouse=True)
def look_again():
    check_seams.cache_clear()
    yield
    check_seams.cache_clear()


@pytest.fixture
def rewritten(monkeypatch, tmp_path):
    """Replace text in the source of methods of GRPOTrainer, as a release of TRL would."""

    def rewrite(method, *changes):
        source = textwrap.dedent(inspect.getsource(getattr(GRPOTrainer, method)))
        for old, new in changes:
            assert old in source, f"TRL {trl.__version__} has no {old!r} in {method}"
            source = source.replace(old, new)
        path = tmp_path / f"{method}.py"
        path.write_text(f"class Newer:\n{textwrap.indent(source, '    ')}", encoding="utf-8")
        namespace = dict(vars(sys.modules[GRPOTrainer.__module__]))
        # The method says super() of the class that it is written in.
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        function = vars(namespace["Newer"])[method]
        cells = dict(
            zip(inspect.unwrap(function).__code__.co_freevars, inspect.unwrap(function).__closure__ or (), strict=True)
        )
        if "__class__" in cells:
            cells["__class__"].cell_contents = GRPOTrainer
        monkeypatch.setattr(GRPOTrainer, method, function)

    return rewrite


@pytest.mark.parametrize("name", SEAMS)
def test_the_installed_libraries_have_what_each_seam_needs(name):
    assert [*SEAMS[name].lacks()] == []


def test_no_seam_is_listed_twice_and_each_says_since_when():
    assert len(SEAMS) == len(OF_TRL) + len(OF_TRANSFORMERS)
    assert all(seam.since[0].isdigit() for seam in SEAMS.values())


# ------------------------------------------------------------------------------------------- what a newer TRL adds


def add_a_value(rewritten):
    """Let TRL's methods return one value more each, in front, which must come through."""
    rewritten(
        "_tokenize_prompts",
        ("return prompt_ids, images", "return [len(ids) for ids in prompt_ids], prompt_ids, images"),
    )
    rewritten(
        "_generate_single_turn",
        ("return completion_ids, logprobs", "return [sum(ids) for ids in completion_ids], completion_ids, logprobs"),
    )
    rewritten(
        "_generate",
        (
            "prompt_ids, images, multimodal_fields = self._tok",
            "lengths, prompt_ids, images, multimodal_fields = self._tok",
        ),
        (
            "completion_ids, logprobs = self._generate_single_turn(",
            "sums, completion_ids, logprobs = self._generate_single_turn(",
        ),
        (
            "return prompt_ids, completion_ids,",
            "assert lengths == [len(ids) for ids in prompt_ids]\n    return sums, prompt_ids, completion_ids,",
        ),
    )
    rewritten(
        "_generate_and_score_completions",
        (
            "prompt_ids_list,\n        completion_ids_list,\n        tool_mask_list",
            "sums,\n        prompt_ids_list,\n        completion_ids_list,\n        tool_mask_list",
        ),
        (
            ") = self._generate(prompts)",
            ") = self._generate(prompts)\n    assert sums == [sum(ids) for ids in completion_ids_list]",
        ),
        ("per_token_logps, _, _ = self", "per_token_logps, _, _ = self"),
    )


@pytest.mark.parametrize("changes", [{}, {"vade_dynamic_sampling": True, "vade_max_refills": 2}])
def test_values_that_a_newer_trl_returns_beside_the_known_ones_change_nothing(
    text_model_path, text_rows, make_args, tmp_path, rewritten, changes
):
    known, more = (make_args(output_dir=str(tmp_path / name), max_steps=3, **changes) for name in ("known", "more"))
    stock = train(text_model_path, text_rows, known)
    add_a_value(rewritten)
    assert "sums" in returned_names(definition(GRPOTrainer, "_generate"))
    assert_same_end(stock, train(text_model_path, text_rows, more))


def test_log_probabilities_are_found_wherever_they_stand(rewritten):
    rewritten(
        "_get_per_token_logps_and_entropies",
        ("return logps, entropies, aux_loss", "return aux_loss, entropies, logps"),
    )
    found = by_name(GRPOTrainer, "_get_per_token_logps_and_entropies", ("none", torch.ones(1), torch.zeros(1)))
    assert (found["logps"], found["aux_loss"]) == (torch.zeros(1), "none")


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("method", "old", "new", "missing"),
    [
        (
            "_generate",
            "completions, logprobs, extra_fields, images",
            "texts, logprobs, extra_fields, images",
            "completions",
        ),
        ("_prepare_inputs", "or self._buffered_inputs is None", "or not self._buffered_inputs", "_buffered_inputs"),
        ("_calculate_rewards", "completion_ids_list", "completion_tokens", "completion_ids_list"),
        ("__init__", "self._pending_extra_logs = ", "self._extra_logs = ", "_pending_extra_logs"),
    ],
)
def test_a_trl_whose_method_has_changed_is_refused_before_a_model_is_loaded(
    text_rows, make_args, rewritten, method, old, new, missing
):
    rewritten(method, (old, new))
    with refused(LibraryError, [trl.__version__, f"GRPOTrainer.{method}", missing], ["trl>=1.15"]):
        VADEGRPOTrainer("no/such-model", says_a_digit, make_args(), text_rows)


def test_a_method_that_is_gone_is_refused(monkeypatch):
    monkeypatch.delattr(GRPOTrainer, "get_high_entropy_mask")
    with refused(LibraryError, ["GRPOTrainer.get_high_entropy_mask"]):
        check_seams()


def test_a_method_without_source_is_named():
    assert [*Seam(dict, "get", "1.0").lacks()] == ["dict.get has no source that can be read"]


@pytest.mark.slow
def test_a_name_that_trl_no_longer_has_is_named_with_its_version():
    code = (
        "import trl.trainer.grpo_trainer, trl.trainer.utils as utils; del utils.split_pixel_values_by_grid\n"
        "import trl_vade\n"
        "try:\n    trl_vade.VADEGRPOTrainer\nexcept trl_vade.LibraryError as error:\n    print(error)"
    )
    message = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert all(says(message, word) for word in (trl.__version__, "'split_pixel_values_by_grid'", "trl>=1.15")), message


# -------------------------------------------------------------------------------------------- what users put in place


@pytest.mark.parametrize("name", [name for name in SEAMS if name.startswith("GRPOTrainer") and "__init__" not in name])
def test_a_users_function_around_a_method_is_no_other_library(monkeypatch, name):
    method = SEAMS[name].method
    before = getattr(GRPOTrainer, method)
    monkeypatch.setattr(GRPOTrainer, method, lambda *given, **named: before(*given, **named))
    assert [*SEAMS[name].lacks()] == []


def test_a_run_with_functions_around_the_methods_is_the_run_without(
    text_model_path, text_rows, make_args, tmp_path, monkeypatch
):
    settings = {"max_steps": 2, "vade_dynamic_sampling": True}
    plain, around = (make_args(output_dir=str(tmp_path / name), **settings) for name in ("plain", "around"))
    expected = train(text_model_path, text_rows, plain)
    for method in ("_tokenize_prompts", "_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies"):
        spied(monkeypatch, method)
    assert_same_end(expected, train(text_model_path, text_rows, around))


def spied(monkeypatch, method):
    before = getattr(GRPOTrainer, method)

    def spy(self, *given, **named):
        output = before(self, *given, **named)
        return output

    monkeypatch.setattr(GRPOTrainer, method, spy)


# ------------------------------------------------------------------------------------------------ names of what comes


class Two:
    def two_ways(self, flag):
        def inner():
            return 1, 2, 3

        if flag:
            first, second = 1, inner()
            return first, second
        first, second = 3, 4
        return first, second

    def differing(self, flag):
        left, right = 1, 2
        if flag:
            return left, right
        return right


def hides(method):
    def hiding(*given):
        return method(*given)

    return hiding


class Decorated:
    @hides
    def method(self, value):
        return value


def test_names_are_those_of_the_functions_own_returns():
    assert returned_names(definition(Two, "two_ways")) == ("first", "second")
    assert returned_names(definition(Two, "differing")) == ()


def test_a_librarys_decorator_that_hides_the_method_is_looked_through():
    assert parameters_of(definition(Decorated, "method")) == ["self", "value"]
    assert returned_names(definition(Decorated, "method")) == ("value",)


def test_a_value_too_many_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        by_name(Two, "two_ways", (1, 2, 3))
