"""Seeds of a vLLM server's requests: what a resumed run asks for again, and what is never asked for twice."""

import random

import pytest
from trl.generation.vllm_client import VLLMClient

from tests.support.checkpoints import without_later
from tests.support.marks import slow
from tests.support.runs import WORDS, assert_equal_weights, logged, says_a_digit, weights
from trl_vade import VADEGRPOTrainer


class StandInServer(VLLMClient):
    """TRL's client with a stand-in behind `_post` where the server would be: vLLM is no dependency of the tests.

    It samples words as vLLM 0.31 seeds them: completion i of a prompt from the seed + i where the request has one, and
    else from a generator of the server's own, which goes on from run to run. It has no weights.
    """

    own = random.Random(0)

    def __init__(self, **_):
        self.base_url, self.model, self.seeds, self.requests = "", "stand-in", {}, []

    def init_communicator(self, device=0):
        pass

    def update_named_params(self, metadata, named_params):
        pass

    def reset_prefix_cache(self):
        pass

    def get_server_info(self):
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}

    def _post(self, url, json):
        choices = []
        for prompt in json["prompt"]:
            self.seeds[tuple(prompt)] = json.get("seed")
            self.requests.append(prompt)
            for i in range(json["n"]):
                noise = random.Random(json["seed"] + i) if "seed" in json else self.own
                tokens = noise.choices(range(4, 4 + len(WORDS)), k=json["max_tokens"])
                logprobs = {
                    "tokens": [f"token_id:{token}" for token in tokens],
                    "token_logprobs": [-1.0] * len(tokens),
                    "top_logprobs": [None] * len(tokens),
                }
                choices.append({"prompt_token_ids": prompt, "token_ids": tokens, "logprobs": logprobs})
        return {"choices": choices}


@pytest.fixture
def start_on_server(text_model_path, text_rows, make_args, tmp_path, monkeypatch):
    """A trainer on a stand-in server, in the folder named, which notes the completions of its batches in `seen`."""
    monkeypatch.setattr("trl.generation.vllm_generation.is_vllm_available", lambda: True)
    monkeypatch.setattr("trl.generation.vllm_generation.VLLMClient", StandInServer)

    def start(folder="run", **changes):
        seen = []

        def reward(completions, completion_ids, **kwargs):
            seen.append(completion_ids)
            return says_a_digit(completions, **kwargs)

        server = {"use_vllm": True, "vllm_mode": "server", "save_strategy": "steps", "save_steps": 3}
        args = make_args(output_dir=str(tmp_path / folder), **server | {"max_completion_length": 6} | changes)
        trainer = VADEGRPOTrainer(text_model_path, reward, args, text_rows, eval_dataset=text_rows.select(range(4)))
        trainer.seen = seen
        return trainer

    return start


@pytest.mark.parametrize(
    "changes",
    [
        slow({}),
        slow({"vade_sampler": "uniform"}),
        {"vade_sampler": "uniform", "shuffle_dataset": False},  # the stock trainer: no posterior
        slow({"vade_posterior_init": "rollout"}),
        slow({"vade_dynamic_sampling": True, "vade_max_refills": 2}),
        slow({"gradient_accumulation_steps": 2, "steps_per_generation": 1}),
        {"eval_strategy": "steps", "eval_steps": 1},
    ],
    ids=lambda changes: ", ".join(changes) or "default",
)
def test_a_resumed_run_asks_a_server_for_the_samples_of_the_run_that_was_never_stopped(start_on_server, changes):
    whole = start_on_server(**changes)
    whole.train()
    resumed = start_on_server(**changes)
    resumed.train(resume_from_checkpoint=without_later(f"{resumed.args.output_dir}/checkpoint-3"))
    assert 0 < len(resumed.seen) < len(whole.seen)
    assert resumed.seen == whole.seen[-len(resumed.seen) :]
    assert len(logged(whole, "eval_reward")) == (6 if "eval_steps" in changes else 0)
    assert logged(resumed, "eval_reward") == logged(whole, "eval_reward")
    assert_equal_weights(weights(resumed), weights(whole))


STOCK = {"vade_sampler": "uniform", "shuffle_dataset": False}


@pytest.mark.parametrize("changes", [{"vade_posterior_init": "rollout"}, STOCK], ids=["initial rollouts", "stock"])
def test_no_two_completions_of_a_run_are_drawn_with_the_same_noise(start_on_server, changes):
    trainer = start_on_server(max_steps=8, eval_strategy="steps", eval_steps=4, **changes)  # 8 x 4 rows of 24
    trainer.train()
    completions = [tuple(ids) for batch in trainer.seen for ids in batch]
    initial = 0 if changes is STOCK else 24
    assert len(completions) == (initial + 8 * 4 + 2 * 4) * 4  # initial rollouts, eight batches, two evaluations
    assert len(set(completions)) == len(completions)  # of 16 ** 6


def test_no_refill_is_drawn_with_the_noise_of_another_round_and_none_is_drawn_twice(start_on_server):
    trainer = start_on_server(max_steps=4, vade_dynamic_sampling=True, vade_max_refills=3)
    logprobs = []
    compute_loss = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: (
        logprobs.append(inputs["sampling_per_token_logps"]) or compute_loss(model, inputs)
    )
    trainer.train()
    completions = [tuple(ids) for batch in trainer.seen for ids in batch]
    assert len(completions) == trainer.selection.feedback.rollouts > 4 * 16
    assert len(set(completions)) == len(completions)  # of 16 ** 6
    assert len(trainer.vllm_generation.vllm_client.requests) * 4 == len(completions)
    assert all((batch == -1.0).all() for batch in logprobs)  # those of the engine, for vLLM's importance sampling


def test_another_seed_of_the_run_asks_for_other_samples_of_the_same_rows(start_on_server):
    runs = enumerate((3, 3, 4))
    first, again, second = (start_on_server(f"run {i}", max_steps=1, seed=seed, **STOCK) for i, seed in runs)
    for trainer in (first, again, second):
        trainer.train()
    assert first.seen == again.seen
    assert first.seen != second.seen


def test_prompts_and_completions_stay_in_order(start_on_server):
    client = start_on_server().vllm_generation.vllm_client
    prompts = [[5, 6, number] for number in range(100)]
    together = client.generate(prompts=prompts, n=2, max_tokens=3)
    assert together["prompt_ids"] == prompts
    assert len(set(client.seeds.values())) == 100
    seeds = [client.seeds[tuple(prompt)] for prompt in prompts]
    for name in ("completion_ids", "logprobs", "logprob_token_ids"):
        alone = [
            VLLMClient.generate(client, [prompt], n=2, max_tokens=3, generation_kwargs={"seed": seed})[name]
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        assert together[name] == [entry for entries in alone for entry in entries]


def test_a_seed_of_the_users_stands(start_on_server):
    trainer = start_on_server(max_steps=1, generation_kwargs={"seed": 11})
    trainer.train()
    assert set(trainer.vllm_generation.vllm_client.seeds.values()) == {11}
