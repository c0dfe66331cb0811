"""GRPO's sampling, scoring and update on the tiny Qwen2.5-VL, several times faster than a general trainer.

One process, one CPU thread, float32, one update for each generation batch. The arithmetic is TRL 1.16's with the
quickstart's settings: loss type `dapo`, rewards scaled by the group's standard deviation, no KL term, temperature.
Axis letters: N rows, K prompts drawn, G completions of each, T tokens at most, P tokens of the longest prompt.
"""

from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray

from trl_vade.testbed.rewards import exact_answer_reward

from .encoded_rows import EncodedRows
from .gradient import add_gradient
from .packing import (
    CompletionTree,
    additive,
    compiled_language_model,
    grow_tree,
    language_model,
    packed_attention,
    prompt_attention,
)
from .rollouts import Rollouts

CHUNK = 128  # rows that are scored together; their activations stay in the processor's caches


class FastPolicy:
    """The model as a policy over the answers to N rows, which are tokenized and preprocessed once, here.

    Args:
        model: `Qwen2_5_VLForConditionalGeneration`, float32 on the CPU; several policies may share it.
        processor: Its processor, padding on the left.
        rows: `prompt` (messages with text), `answer`, and optionally `images`, which may be empty; or these encoded.
        temperature: Of sampling and of the update.
        compiled: Whether the forward of updates is compiled, which takes a C++ compiler and a minute.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        rows: datasets.Dataset | EncodedRows,
        *,
        temperature: float = 1.0,
        max_completion_length: int = 12,
        compiled: bool = False,
        reward: Callable[[list[str], list[str]], list[float]] = exact_answer_reward,
    ) -> None:
        self.model = model
        self._reward = reward
        self._trained = compiled_language_model if compiled else language_model
        self.temperature = temperature
        self.max_completion_length = max_completion_length
        self.rows = rows if isinstance(rows, EncodedRows) else EncodedRows(model, processor, rows)
        self._tokenizer = processor.tokenizer
        self._tree: tuple[torch.Tensor | None, int, CompletionTree | None] = None, 0, None  # of the last batch
        self._texts: dict[tuple[int, ...], str] = {}  # of completions; most of them come again and again
        eos = model.generation_config.eos_token_id
        self._eos = torch.tensor([eos] if isinstance(eos, int) else eos)
        # A sampled placeholder would ask for an image that is not there; the trainer suppresses the same two.
        self._suppressed = [model.config.image_token_id, model.config.video_token_id]

    def __len__(self) -> int:
        return len(self.rows.answers)

    @torch.no_grad()
    def sample(self, sample_index: ArrayLike, num_generations: int, generator: torch.Generator) -> Rollouts:
        """Sample G completions of each of the K rows, and score them.

        The prompt is read once a row, and completions that agree so far are continued as one. A completion's tokens
        depend on its place in the batch and on the generator only, not on when the others end. The generator advances
        by K * G * T numbers, whatever the length of the completions.
        """
        index = np.asarray(sample_index, dtype=np.int64)
        rows = torch.from_numpy(index)
        shape = (len(rows) * num_generations, self.max_completion_length)
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        ids = torch.full(shape, int(self._tokenizer.pad_token_id))
        mask = torch.zeros(shape, dtype=torch.bool)
        logps = torch.zeros(shape)

        embeds, positions, prompt_mask = self.rows.prompts(self.model, rows)
        text = self.model.model.language_model
        hidden, cache = language_model(text, embeds, positions, additive(prompt_attention(prompt_mask)), keep=1)
        seen = additive(prompt_mask[:, None])  # (K, 1, 1, P)
        position = self.rows.next_position[rows]
        alive = torch.arange(shape[0])  # completions that have not ended
        branch = alive // num_generations  # the row of `hidden` that each of them stands at
        for step in range(self.max_completion_length):
            all_logps = self._logits(hidden[:, -1], suppress=True).double().log_softmax(-1)  # (branches, V)
            # One search for all: the distribution function of branch b rises from b to b + 1, hence float64.
            vocabulary, mass = all_logps.shape[1], all_logps.exp().cumsum(-1)
            mass = mass / mass[:, -1:] + torch.arange(len(mass))[:, None]
            found = torch.searchsorted(mass.flatten(), branch + uniform[alive, step], right=True)
            token = (found - branch * vocabulary).clamp(max=vocabulary - 1)
            ids[alive, step], mask[alive, step] = token, True
            logps[alive, step] = all_logps[branch, token].float()
            goes_on = ~torch.isin(token, self._eos)
            alive, branch, token = alive[goes_on], branch[goes_on], token[goes_on]
            if len(alive) == 0 or step + 1 == self.max_completion_length:
                break
            key, branch = torch.unique(branch * vocabulary + token, return_inverse=True)
            parent, token = key // vocabulary, key % vocabulary
            position, seen = position[parent], F.pad(seen[parent], (0, 1))
            hidden, cache = language_model(
                text,
                text.embed_tokens(token[:, None]),
                (position + step)[:, None].expand(3, -1, -1),
                seen,
                keep=1,
                past=[(keys[parent], values[parent]) for keys, values in cache],
            )
        rewards = self._rewards(index, ids, mask, num_generations)
        parts = (ids, mask, logps, rewards, torch.full_like(logps, float("nan")))
        return Rollouts(index, *(part.unflatten(0, (len(rows), num_generations)) for part in parts))

    def pass_rates(self, sample_index: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the probability that a sampled completion is the right answer, (M,) in [0, 1]; see `score`."""
        return self.score(sample_index)[0]

    def chances(
        self, num_generations: int, sample_index: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the pass rates of M rows, and how likely G rewards of each differ, (M,) each; see `score`.

        A reward other than `exact_answer_reward` is taken for one that counts the right tokens before the first slip.
        The chance is then a lower bound: answers of another length earn other shares.
        """
        right = self._right_so_far(torch.from_numpy(np.array(sample_index, np.int64)))[0]  # (M, W)
        passed = right[:, -1]
        values = [1 - passed, passed]
        if self._reward is not exact_answer_reward:  # the two tokens of `<answer>` earn nothing
            until = np.concatenate([np.ones((len(right), 1)), right[:, 2:]], axis=1)
            values = [*(until[:, :-1] - until[:, 1:]).T, passed]
        alike = np.sum([value**num_generations for value in values], axis=0)
        return passed, np.clip(1 - alike, 0, 1)

    def score(self, sample_index: ArrayLike | None = None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return exact pass rates and greedy successes of M rows, of all N by default, without sampling.

        The pass rate is the product of the probabilities of the tokens of `<answer>X</answer>`, under the temperature
        and the suppression of sampling. The reward reads no further than the first answer, so no end of turn is asked
        for. Other ways to write the same text (another split into tokens, blanks around X, words before it) earn the
        reward too and are left out: it is a lower bound, and a tight one for a model that was taught one way.
        """
        rows = torch.arange(len(self)) if sample_index is None else torch.from_numpy(np.array(sample_index, np.int64))
        right, greedy = self._right_so_far(rows)
        return right[:, -1].copy(), greedy

    @torch.no_grad()
    def _right_so_far(self, rows: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return how likely the first w + 1 tokens of the answers are right, (M, W), and greedy successes."""
        rates = np.empty((len(rows), self.rows.targets.shape[1]))
        greedy = np.empty(len(rows), dtype=bool)
        # Neighbours in length need the least padding.
        for places in torch.argsort(self.rows.lengths[rows], stable=True).split(CHUNK):
            chunk = rows[places]
            targets, present = self.rows.targets[chunk], self.rows.target_mask[chunk]
            width = int(present.sum(1).max())
            targets, present = targets[:, :width], present[:, :width]
            causal = torch.ones(width - 1, width - 1, dtype=torch.bool).tril().expand(len(chunk), -1, -1)
            depth = torch.arange(width - 1).expand(len(chunk), -1)
            logits = self._logits(self._packed(chunk, targets[:, :-1], depth, causal), suppress=True)  # (M, W, V)
            logps = logits.log_softmax(-1).gather(2, targets[..., None])[..., 0].double()
            fits = present.sum(1) <= self.max_completion_length
            right = logps.masked_fill(~present, 0.0).cumsum(1).exp() * fits[:, None]
            rates[places, :width], rates[places, width:] = right.numpy(), right[:, -1:].numpy()
            greedy[places] = (((logits.argmax(-1) == targets) | ~present).all(1) & fits).numpy()
        return rates, greedy

    def update(
        self, rollouts: Rollouts, optimizer: torch.optim.Optimizer, max_grad_norm: float = 1.0
    ) -> tuple[dict[str, float], Rollouts]:
        """Make one step of GRPO; return its figures, and the rollouts with the log-probabilities of their writer.

        The figures are `loss`, `clipped`, and `grad_norm` before it is clipped to `max_grad_norm`.
        """
        optimizer.zero_grad()
        figures, written = self.backward(rollouts)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        optimizer.step()
        return {**figures, "grad_norm": float(norm)}, written

    def backward(self, rollouts: Rollouts) -> tuple[dict[str, float], Rollouts]:
        """Add the gradient of the loss to the parameters; return what `add_gradient` does."""
        found = add_gradient(self, rollouts)
        self._zero_what_was_skipped(rollouts)
        return found

    def tree_of(self, part: Rollouts, completion_ids: torch.Tensor) -> CompletionTree:
        """Return the trees of the groups that are trained on of these completions; the next pass has the same ones."""
        ids, groups, tree = self._tree
        if ids is not completion_ids or groups != len(part.rewards) or tree is None:
            tree = grow_tree(part.completion_ids, part.completion_mask)
            self._tree = completion_ids, len(part.rewards), tree
        return tree

    def edge_logps(self, rollouts: Rollouts, tree: CompletionTree) -> torch.Tensor:
        """Return (E, V) the log-probabilities over the vocabulary from which each edge's token is predicted."""
        rows = torch.from_numpy(rollouts.sample_index)
        hidden = self._packed(rows, tree.slot_token, tree.slot_depth, tree.sees)
        return self._logits(hidden[tree.edge_group, tree.edge_from]).log_softmax(-1)

    def _packed(
        self, rows: torch.Tensor, tokens: torch.Tensor, depth: torch.Tensor, sees: torch.Tensor
    ) -> torch.Tensor:
        """Return hidden states (K, 1+S, hidden) at the ends of K prompts and at the S tokens that follow each.

        Args:
            rows: (K,) of the prompts.
            tokens: (K, S) token ids.
            depth: (K, S) how many tokens of the completion come before each.
            sees: (K, S, S) bool, what each attends to beside the prompt.
        """
        embeds, positions, mask = self.rows.prompts(self.model, rows)
        text = self.model.model.language_model
        after = (self.rows.next_position[rows, None] + depth).expand(3, -1, -1)
        forward = self._trained if torch.is_grad_enabled() else language_model
        hidden, _ = forward(
            text,
            torch.cat((embeds, text.embed_tokens(tokens)), dim=1),
            torch.cat((positions, after), dim=2),
            additive(packed_attention(mask, sees)),
            keep=1 + tokens.shape[1],
        )
        return hidden

    def _logits(self, hidden: torch.Tensor, *, suppress: bool = False) -> torch.Tensor:
        """Return (..., V) logits divided by the temperature; suppressed tokens at -inf where asked for."""
        logits = self.model.lm_head(hidden) / self.temperature
        if suppress:
            logits[..., self._suppressed] = float("-inf")
        return logits

    def _rewards(
        self, index: NDArray[np.int64], ids: torch.Tensor, mask: torch.Tensor, num_generations: int
    ) -> torch.Tensor:
        texts = []
        for tokens, length in zip(ids.tolist(), mask.sum(1).tolist(), strict=True):
            key = tuple(tokens[:length])
            if key not in self._texts:
                self._texts[key] = self._tokenizer.decode(key, skip_special_tokens=True)
            texts.append(self._texts[key])
        answers = [self.rows.answers[row] for row in index for _ in range(num_generations)]
        return torch.tensor(self._reward(texts, answers))

    def _zero_what_was_skipped(self, rollouts: Rollouts) -> None:
        """Give a gradient of 0 to what the skipped groups would have used: Adam's momentum moves it in a dead step."""
        unused: set[int] = set()
        if not self.rows.has_images[rollouts.sample_index].any():
            unused = {id(parameter) for parameter in self.model.model.visual.parameters()}
        for parameter in self.model.parameters():
            if parameter.grad is None and id(parameter) not in unused:
                parameter.grad = torch.zeros_like(parameter)
