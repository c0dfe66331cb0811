"""Secrets in what is written for people: 31 forms that are hidden, and values that only look like them."""

import json

import pytest

from trl_vade.trainer.credentials import HIDDEN, without_secrets

LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYz"
KEY = "q7Rz" * 10
TEXTS = {
    f"hf_{LETTERS}xyzwvuts": LETTERS,
    f"/data/run_hf_{LETTERS}xyz/out": LETTERS,
    f"sk-{KEY}": KEY,
    f"sk-proj-{KEY}": KEY,
    f"ghp_{KEY}": KEY,
    f"github_pat_{KEY}": KEY,
    f"glpat-{KEY}": KEY,
    f"xoxb-123456789012-{KEY}": KEY,
    "AKIAIOSFODNN7EXAMPLE": "IOSFODNN7EXAMPLE",
    f"AIza{KEY[:35]}": KEY[:35],
    f"eyJ{KEY}.eyJ{KEY}.{KEY}": KEY,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow": "MIIEow",
    f"Bearer {KEY}": KEY,
    "Authorization: Basic dXNlcjpwYXNz": "dXNlcjpwYXNz",
    "Authorization: opensesame": "opensesame",
    "http://user:pw123@host:8000": "pw123",
    "postgres://me:abc123@host/db": "abc123",
    "https://abc123@host/path": "abc123",
    "http://host/?token=abc&limit=3": "abc",
    "https://host/v1?api_key=abc": "abc",
    "https://host/blob?sv=2024&sig=abc%3D": "abc",
    "https://host/v1?key=abc": "abc",
    f"HF_TOKEN={KEY}": KEY,
    "WANDB_API_KEY=abc python train.py": "abc",
    "AWS_SECRET_ACCESS_KEY=abc/def": "abc/def",
    "train.py --hub_token abc": "abc",
    "train.py --api-key=abc": "abc",
    "train.py --password 'open sesame'": "open",
    '{"api_key": "abc"}': "abc",
    "{'password': 'abc'}": "abc",
    "my_token: abc": "abc",
}
ORDINARY = {
    "run_name": "sk-learn-experiment-2024-baseline, secret_reward, basic configuration, hf_long_name_of_a_model_12",
    "output_dir": "max_tokens/token_type_ids/a token: 5/tokenizer=fast/s3:/bucket/loss per token: 3",
    "vllm_server_base_url": "http://localhost:8000/v1?model=a&monkey=b",
    "hub_model_id": "sk-learn/hf_model",
    "model_init_kwargs": {"token": True, "use_auth_token": None, "revision": "a" * 40, "torch_dtype": "bfloat16"},
    "generation_kwargs": {"stop_token": "abc", "max_tokens": 5, "api_key": "EMPTY", "password": "", "token": "$TOKEN"},
    "chat_template_kwargs": {
        **{"eos_token": "end_of_turn", "pad_token": "<|pad|>", "token_type_ids": "x", "image_token": "<image>"},
        **{
            "notes": "s3://bucket/key@main https://host/a/b@main ssh://git@host/x.git me@host basic",
            "text": '{"x": 1}',
        },
        **{"tokens": '{"eos_token": "</s>", "bos_token": "begin"}', "monkey": "banana", "secretary": "me"},
    },
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_looks_like_a_secret_is_hidden(text):
    assert TEXTS[text] not in without_secrets(text)
    assert HIDDEN in without_secrets(text)


def test_ordinary_settings_stay():
    text = json.dumps(ORDINARY)
    assert without_secrets(text) == text
