"""Seeds of the requests to a colocated vLLM engine, so that a resumed run repeats its samples.

The noise of completion i of a prompt depends on `args.seed` and the place in the run: the optimiser step, the earlier
rollouts, training or evaluation, the prompt and its number in the batch, and i. vLLM 0.31 gives completion i of a
request the seed of the request + i. Each prompt has a request and a seed of its own, because one seed for the whole
batch would draw every group with the same noise.

With a seed in each request, samples depend neither on the rest of the batch, nor on the engine's caches, nor on how
the engine splits the batch (`max_num_batched_tokens`). All three differ after a resume. If the logits depend on the
batch (bf16 on a GPU), a token may still differ.

The cost depends on vLLM's runner (0.31, read in its source). V2, the default on CUDA, seeds every request anyway. V1,
in the CPU build, draws the noise of seeded requests one by one. It also rewinds the generator of a split prompt, which
a CPU generator does not support ("CPU Generator does not use offset").
"""

import zlib
from typing import Any

import numpy as np


def request_seed(trainer: Any, index: int, prompt: Any) -> int:
    """Return the seed, in [0, 2**32), of request `index` of this process's batch. `prompt` needs a stable `repr`."""
    # The step alone is not enough: a step may have several generation batches, each with several rounds
    # (`dynamic_sampling`), and step 0 has the initial rollouts. An evaluation has the count of the next batch. The
    # prompt separates the batches of an evaluation and the turns of a conversation with tools.
    rollouts = 0 if trainer.selection is None else trainer.selection.feedback.rollouts
    place = (
        trainer.state.global_step,
        rollouts,
        int(trainer.model.training),
        index,
        zlib.crc32(repr(prompt).encode()),
    )
    # The processes of a tensor-parallel group share an engine and must request the same samples.
    engine = trainer.accelerator.process_index // trainer.vllm_generation.tensor_parallel_size
    return int(np.random.SeedSequence((trainer.args.seed, *place, engine)).generate_state(1)[0])
