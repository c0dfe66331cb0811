"""The forward of Qwen2.5-VL's language model over packed sequences, and the trees that completions of a prompt form.

Completions of one prompt share their beginnings, and many are the same throughout. A tree holds each beginning once:
a node is a token, what it attends to are the prompt and its ancestors. Hidden states and gradients are those of the
completions one by one, at a fraction of the tokens.

Axis letters: K prompts, G completions of each, T tokens at most, P prompt tokens (padding on the left), S nodes of the
largest tree, D size of an attention head.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Cache = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of every layer, each (B, heads, L, D)."""


def language_model(
    text: Any,
    embeds: torch.Tensor,
    position_ids: torch.Tensor,
    mask: torch.Tensor,
    *,
    keep: int,
    past: Cache | None = None,
) -> tuple[torch.Tensor, Cache]:
    """Return the normed hidden states of the last `keep` positions, (B, keep, hidden), and the cache, past included.

    Written out since transformers' own forward spends more time on its wrappers than on a model of this size, and
    computes in the last layer what only that layer's keys and values are read of.

    Args:
        text: `Qwen2_5_VLTextModel`, without sliding windows.
        embeds: (B, L, hidden), tokens and image features.
        position_ids: (3, B, L): time, height and width.
        mask: (B, 1, L, past + L) float, added to the attention scores; its last `keep` rows serve the last layer.
        keep: positions at the end to return, 1 to L.
        past: keys and values of what comes before.
    """
    cos, sin = (part.unsqueeze(2) for part in text.rotary_emb(embeds, position_ids))  # (B, L, 1, D)
    states, cache = embeds, []
    for number, layer in enumerate(text.layers):
        attention = layer.self_attn
        normed = _norm(layer.input_layernorm, states)
        key = _rotate(_heads(attention.k_proj, normed, attention.head_dim), cos, sin).transpose(1, 2)
        value = _heads(attention.v_proj, normed, attention.head_dim).transpose(1, 2)
        if past is not None:
            key, value = (torch.cat(parts, dim=2) for parts in zip(past[number], (key, value), strict=True))
        cache.append((key, value))
        if number == len(text.layers) - 1:  # Nothing above reads the other positions.
            states, normed, cos, sin = (part[:, -keep:] for part in (states, normed, cos, sin))
            mask = mask[:, :, -keep:]
        query = _rotate(_heads(attention.q_proj, normed, attention.head_dim), cos, sin).transpose(1, 2)
        attended = F.scaled_dot_product_attention(
            query, key, value, mask, scale=attention.scaling, enable_gqa=attention.num_key_value_groups > 1
        )
        states = states + attention.o_proj(attended.transpose(1, 2).flatten(2))
        normed = _norm(layer.post_attention_layernorm, states)
        mlp = layer.mlp
        states = states + mlp.down_proj(mlp.act_fn(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    return _norm(text.norm, states), cache


compiled_language_model = torch.compile(language_model, dynamic=True)  # a fifth of a run's time less, after a minute


def _norm(module: Any, states: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(states, module.weight.shape, module.weight, module.variance_epsilon)


def _heads(projection: Any, states: torch.Tensor, head_dim: int) -> torch.Tensor:
    return projection(states).unflatten(-1, (-1, head_dim))  # (B, L, heads, D)


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-second, first), dim=-1) * sin


@dataclass(frozen=True)
class CompletionTree:
    """The trees of K groups: slots hold the tokens that something follows, edges the tokens that are predicted.

    Edge e predicts `edge_token[e]` of group `edge_group[e]` from the hidden state at `edge_from[e]`: 0 is the end of
    the prompt, 1 + s is slot s.
    """

    slot_token: torch.Tensor  # (K, S) token ids, arbitrary where a slot is empty
    slot_depth: torch.Tensor  # (K, S) tokens of the completion before it, 0..T-1; 0 where a slot is empty
    sees: torch.Tensor  # (K, S, S) bool, slot s attends to itself and to its ancestors; an empty one to itself
    edge_group: torch.Tensor  # (E,) in [0, K)
    edge_from: torch.Tensor  # (E,) in [0, S]
    edge_token: torch.Tensor  # (E,) token ids
    edge_of: torch.Tensor  # (K, G, T) edge of every completion token, -1 past its end


def grow_tree(completion_ids: torch.Tensor, completion_mask: torch.Tensor) -> CompletionTree:
    """Merge the common beginnings of the completions of each group, (K, G, T) token ids and bool; they start left."""
    num_groups, _, length = completion_ids.shape
    vocabulary = int(completion_ids.max()) + 1
    group = torch.arange(num_groups)
    at = torch.zeros_like(completion_ids[..., 0])  # (K, G) position that each completion has reached: 0 or 1 + slot
    slots_used = torch.zeros(num_groups, dtype=torch.long)
    edge_of = torch.full_like(completion_ids, -1)
    edges: list[tuple[torch.Tensor, ...]] = []
    slots: list[tuple[torch.Tensor, ...]] = []
    num_edges, stride = 0, completion_ids.shape[1] * length + 1
    for depth in range(length):
        alive = completion_mask[..., depth]
        if not alive.any():
            break
        goes_on = completion_mask[..., depth + 1] if depth + 1 < length else torch.zeros_like(alive)
        place = (group[:, None] * stride + at) * vocabulary + completion_ids[..., depth]
        key, edge = torch.unique(place[alive], return_inverse=True)
        edge_of[..., depth][alive] = edge + num_edges
        start, token = key // vocabulary, key % vocabulary
        edges.append((start // stride, start % stride, token))
        num_edges += len(key)
        # A token that ends every completion that reaches it is predicted and not read: it needs no slot.
        follows = torch.zeros(len(key), dtype=torch.bool)
        follows[edge[goes_on[alive]]] = True
        owner = (start // stride)[follows]  # sorted, as keys are
        rank = torch.arange(len(owner)) - torch.searchsorted(owner, owner)
        slot = slots_used[owner] + rank
        slots.append((owner, slot, token[follows], (start % stride)[follows], torch.full_like(owner, depth)))
        slots_used += torch.bincount(owner, minlength=num_groups)
        reached = torch.zeros(len(key), dtype=torch.long)
        reached[follows] = slot + 1
        at[alive] = reached[edge]
    width = int(slots_used.max()) if num_groups else 0
    slot_token = torch.zeros(num_groups, width, dtype=torch.long)
    slot_depth = torch.zeros(num_groups, width, dtype=torch.long)
    sees = torch.eye(width, dtype=torch.bool).repeat(num_groups, 1, 1)
    for owner, slot, token, parent, depth in slots:
        slot_token[owner, slot], slot_depth[owner, slot] = token, depth
        below = parent > 0
        sees[owner[below], slot[below]] |= sees[owner[below], parent[below] - 1]
    edge_group, edge_from, edge_token = (torch.cat(parts) for parts in zip(*edges, strict=True))
    return CompletionTree(slot_token, slot_depth, sees, edge_group, edge_from, edge_token, edge_of)


def additive(allowed: torch.Tensor) -> torch.Tensor:
    """Return a mask (B, 1, L, M) to add to attention scores, from what each position may attend to, (B, L, M) bool."""
    return torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf")).unsqueeze(1)


def prompt_attention(prompt_mask: torch.Tensor) -> torch.Tensor:
    """Return what prompt positions attend to, (K, P, P) bool, from their mask (K, P) bool; padding sees itself."""
    width = prompt_mask.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    return (causal & prompt_mask[:, None, :]) | torch.eye(width, dtype=torch.bool)


def packed_attention(prompt_mask: torch.Tensor, sees: torch.Tensor) -> torch.Tensor:
    """Return what the positions of prompts (K, P) and trees (K, S, S) attend to, (K, P+S, P+S) bool."""
    num_groups, width, slots = prompt_mask.shape[0], prompt_mask.shape[1], sees.shape[1]
    allowed = torch.zeros(num_groups, width + slots, width + slots, dtype=torch.bool)
    allowed[:, :width, :width] = prompt_attention(prompt_mask)
    allowed[:, width:, :width] = prompt_mask[:, None, :]
    allowed[:, width:, width:] = sees
    return allowed
