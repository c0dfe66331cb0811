"""When a run is told that TRL's importance ratios will all be too small."""

import pytest

from trl_vade import VADEGRPOConfig
from trl_vade.trainer.generation.corrections import scaled_ratios_notice


def notice(version="1.16.0", **settings):
    vllm = {"use_vllm": True} | settings
    return scaled_ratios_notice(VADEGRPOConfig("out", use_cpu=True, bf16=False, report_to="none", **vllm), version)


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.1}, {"generation_kwargs": {"top_p": 0.9}}])
def test_ratios_that_trl_before_1_17_scales_are_told_of_with_the_setting(cut):
    name, value = next(iter(cut.get("generation_kwargs", cut).items()))
    assert f"{name}={value}" in notice(**cut)


def test_nothing_is_said_where_no_token_is_cut_or_trl_is_mended_or_has_no_such_ratios():
    for sound in ({}, {"top_p": 1.0, "top_k": 0, "min_p": 0.0}, {"top_k": -1}):
        assert notice(**sound) is None
    for sound in ({"version": "1.17.0"}, {"use_vllm": False}, {"vllm_importance_sampling_correction": False}):
        assert notice(top_p=0.9, **sound) is None
