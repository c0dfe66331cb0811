"""Seeds for what a vLLM engine samples, so that a resumed run repeats its samples.

The noise of completion i of a prompt is a function of `args.seed` and the place in the run: the optimiser step, the
rollouts before it, training or evaluation, the prompt and its number in the batch, and i. vLLM 0.31 gives completion i
of a request with n > 1 the request's seed + i. One seed for the whole batch would draw every group with the same
noise, so each prompt has a request, and a seed, of its own.

A seed of the request's own, and not one of the engine's generator, since then it matters neither what else is in the
batch, nor what the engine has cached, nor how it splits the batch (`max_num_batched_tokens`): all three are other
after a resume. Where the logits depend on the batch (bf16 on a GPU), a token may still flip.

What it costs depends on vLLM's runner (0.31, read in its source): V2, the default on CUDA, gives every request a seed
anyway. V1, which the CPU build has, draws the noise of seeded requests one by one, and rewinds the generator of a
prompt that it splits, which a CPU's does not support ("CPU Generator does not use offset").
"""

import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np

# Requests in flight at a time: as many connections as TRL's client keeps open (`_DEFAULT_GENERATION_CONCURRENCY`).
REQUESTS_AT_A_TIME = 64


def request_seed(trainer: Any, index: int, prompt: Any) -> int:
    """The seed, in [0, 2**32), of request number `index` of this process's batch, whose prompt is `prompt`."""
    # The step alone is not enough: it may hold several generation batches, each of them in several rounds
    # (`dynamic_sampling`), and so do the initial rollouts. An evaluation comes with the count of the batch that
    # follows it. The prompt tells the batches of an evaluation and the turns of a conversation with tools apart.
    rollouts = 0 if trainer.selection is None else trainer.selection.feedback.rollouts
    place = (
        trainer.state.global_step,
        rollouts,
        int(trainer.model.training),
        index,
        zlib.crc32(repr(prompt).encode()),
    )
    # The processes of a tensor-parallel group run one engine between them, and must ask it for the same samples.
    engine = trainer.accelerator.process_index // trainer.vllm_generation.tensor_parallel_size
    return int(np.random.SeedSequence((trainer.args.seed, *place, engine)).generate_state(1)[0])


def seed_server_requests(trainer: Any) -> None:
    """Give each prompt that TRL sends to a vLLM server its `request_seed`. A seed of the user's stands.

    TRL sends each prompt once, with n = G, all in one call.
    """
    if not trainer.accelerator.is_main_process:
        return  # the other processes have no client (TRL 1.16)
    client = trainer.vllm_generation.vllm_client
    generate = client.generate

    def seeded(prompts, features=None, generation_kwargs=None, **options):
        def request(index):
            kwargs = {"seed": request_seed(trainer, index, prompts[index])} | (generation_kwargs or {})
            own_features = None if features is None else [features[index]]
            return generate([prompts[index]], features=own_features, generation_kwargs=kwargs, **options)

        with ThreadPoolExecutor(REQUESTS_AT_A_TIME) as executor:
            answers = list(executor.map(request, range(len(prompts))))
        parts = {name: [answer[name] for answer in answers] for name in answers[0]}
        return {name: None if None in lists else [*chain(*lists)] for name, lists in parts.items()}

    client.generate = seeded
