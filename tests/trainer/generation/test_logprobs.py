"""When a run is told that its engine answers for another policy. The real engine: tests/engines/test_engines.py."""

import logging
from types import SimpleNamespace

import pytest
import torch
from accelerate import PartialState

from trl_vade import VADEGRPOConfig
from trl_vade.trainer.generation.logprobs import compare_first_logprobs, scaled_ratios_notice

METRIC = "sampling/sampling_logp_difference"


def said(
    caplog, mean, *, dtype=torch.float32, engine_dtype=torch.float32, mode="colocate", sampled=(-1.0, -2.0), **args
):
    """The level and the text of what is logged of a batch of two tokens and one of padding."""
    PartialState()
    config = SimpleNamespace(dtype=engine_dtype)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
    trainer = SimpleNamespace(
        vllm_mode=mode,
        model=SimpleNamespace(dtype=dtype, training=True),
        args=SimpleNamespace(**{"bf16": False, "fp16": False} | args),
        vllm_generation=SimpleNamespace(llm=llm),
        _logprobs_compared=False,
        _metrics={"train": {f"{METRIC}/mean": [9.0, mean], f"{METRIC}/max": [9.0, 2 * mean]}},
    )
    batch = {
        "sampling_per_token_logps": torch.tensor([[*sampled, float("nan")]]),
        "completion_mask": torch.tensor([[1, 1, 0]]),
        "importance_sampling_ratio": None,
    }
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="trl_vade"):
        compare_first_logprobs(trainer, batch)
    (record,) = caplog.records
    return record.levelno, record.getMessage()


def test_the_difference_of_a_sound_run_is_told_once_and_is_no_warning(caplog):
    level, message = said(caplog, 2e-6)
    assert level == logging.INFO
    assert "2.0e-06" in message
    assert "4.0e-06" in message


def test_another_policy_is_warned_of_by_its_likely_causes(caplog):
    level, message = said(caplog, 0.45)
    assert level == logging.WARNING
    for cause in ("4.5e-01", "processor", "--logprobs-mode processed_logprobs", "weights", "top_p"):
        assert cause in message


ROUNDED = [
    {"dtype": torch.bfloat16},
    {"engine_dtype": torch.bfloat16},
    {"bf16": True},
    {"fp16": True},
    {"mode": "server"},
]


@pytest.mark.parametrize("rounded", ROUNDED)
def test_what_is_a_fault_in_float32_is_usual_where_either_side_rounds_or_may(caplog, rounded):
    assert said(caplog, 1e-2)[0] == logging.WARNING
    assert said(caplog, 1e-2, **rounded)[0] == logging.INFO
    assert said(caplog, 1e-1, **rounded)[0] == logging.WARNING


@pytest.mark.parametrize(("sampled", "share"), [((float("nan"), -1.0), "50%"), ((float("nan"),) * 2, "100%")])
def test_tokens_without_a_log_probability_are_told_of_though_their_difference_counts_as_none(caplog, sampled, share):
    level, message = said(caplog, 0.0, sampled=sampled)
    assert level == logging.WARNING
    assert share in message


def notice(version="1.16.0", **settings):
    vllm = {"use_vllm": True} | settings
    return scaled_ratios_notice(VADEGRPOConfig("out", use_cpu=True, bf16=False, report_to="none", **vllm), version)


CUTS = [{"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.1}, {"generation_kwargs": {"top_p": 0.9}}]


@pytest.mark.parametrize("cut", CUTS)
def test_ratios_that_trl_before_1_17_scales_are_told_of_with_the_setting(cut):
    name, value = next(iter(cut.get("generation_kwargs", cut).items()))
    assert f"{name}={value}" in notice(**cut)


@pytest.mark.parametrize("sound", [{}, {"top_p": 1.0, "top_k": 0, "min_p": 0.0}, {"top_k": -1}])
def test_nothing_is_said_where_no_token_is_cut(sound):
    assert notice(**sound) is None


@pytest.mark.parametrize(
    "sound", [{"version": "1.17.0"}, {"use_vllm": False}, {"vllm_importance_sampling_correction": False}]
)
def test_nothing_is_said_where_trl_is_mended_or_has_no_such_ratios(sound):
    assert notice(top_p=0.9, **sound) is None
