"""A tiny policy that calls tools, and an environment: the whole of TRL's agent training in a fraction of a second."""

from tests.support.runs import WORDS, make_text_model

CALLS = [f'<tool_call>{{"name":"take","arguments":{{"n":{n}}}}}</tool_call>' for n in range(8)]
"""A word each, so that the random policy, whose vocabulary has 32 words, calls a tool in most of its completions."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} "
    "{% for call in message['tool_calls'] or [] %}{{ call['function']['name'] }} {{ call['function']['arguments'] }} "
    "{% endfor %}<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
)

RESPONSE_TEMPLATE = {  # that of Qwen3 in TRL 1.16, for a template without a line break
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def make_agent_model(path):
    """Write the text model with the words of `CALLS` to `path`; `agent_tokenizer` reads its tokenizer."""
    return make_text_model(path, words=[*WORDS, *CALLS])


def agent_tokenizer(path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.chat_template, tokenizer.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    return tokenizer


def board_rows(count=24):
    """Questions with a board of four numbers each."""
    from datasets import Dataset

    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": f"say {i % 10}"}], "board": [i, 1, 2, 3], "limit": i % 10}
            for i in range(count)
        ]
    )


class Board:
    """Keeps the row's own list, and each move takes a piece off it."""

    def reset(self, board, **columns):
        self.board, self.moves = board, 0

    def take(self, n: int) -> str:
        """
        Take a piece.

        Args:
            n: its number.
        """
        if not self.board:
            return "none"
        self.moves += 1
        return str(self.board.pop())
