"""Small real runs: a text model, rewards, a run that stops early, and what it means that two runs are the same."""

from transformers import TrainerCallback

from tests.support.rows import text_of
from trl_vade.selection.log import SelectionLog

# A run of six generation batches of 4 rows x 4 completions on the text model, which saves nothing.
SMALL_RUN = {
    "per_device_train_batch_size": 16,
    "num_generations": 4,
    "max_completion_length": 4,
    "max_steps": 6,
    "learning_rate": 1e-2,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "dataloader_pin_memory": False,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "seed": 3,
}


SPLIT = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}  # its batch in four micro-batches

WORDS = [str(number) for number in range(10)] + ["say", "a", "digit", "not", "below", "above"]


def make_text_model(path, words=WORDS):
    """Write a random two-layer Qwen2 with a tokenizer of `words` to `path`; it loads in well under a second."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "[UNK]"]
    vocabulary = {token: number for number, token in enumerate([*special, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        unk_token="[UNK]",
        padding_side="left",
    )
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|> {{ message['content'] }} <|im_end|> {% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>{% endif %}"
    )
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def says_a_digit(completions, limit, **kwargs):
    """1 when the completion's first word is a digit above the row's limit; rows differ in difficulty."""
    first = [(text_of(completion).split() or ["-"])[0] for completion in completions]
    return [float(word.isdigit() and int(word) >= bound) for word, bound in zip(first, limit, strict=True)]


def fifth_letter(completions, **columns):
    return [float(sum(map(ord, text_of(each))) % 5 == 0) for each in completions]


def odd_length(completions, **columns):
    return [float(len(text_of(each)) % 2) for each in completions]


def unique_letters(completions, **columns):
    """TRL's own first example: dense, and never 0 or 1."""
    return [float(len(set(text_of(each))) + 5) for each in completions]


def always_half(completions, **kwargs):
    return [0.5] * len(completions)


def train(model, rows, args, reward=says_a_digit, trainer_class=None, report=False, **arguments):
    """Train, without a report unless it is asked for."""
    from trl_vade import VADEGRPOTrainer, VADEReportCallback

    trainer = (trainer_class or VADEGRPOTrainer)(model, reward, args, rows, **arguments)
    if not report:
        trainer.remove_callback(VADEReportCallback)
    trainer.train()
    return trainer


def make_trainer(folder, model, rows, reward=says_a_digit, trainer_class=None, more=None, **settings):
    """Make a trainer without a report, of `SMALL_RUN` with other `settings`; `more` are arguments of the trainer."""
    from trl import GRPOConfig

    from trl_vade import VADEGRPOConfig, VADEGRPOTrainer, VADEReportCallback

    trainer_class = trainer_class or VADEGRPOTrainer
    config_class = VADEGRPOConfig if issubclass(trainer_class, VADEGRPOTrainer) else GRPOConfig
    args = config_class(**SMALL_RUN | {"output_dir": str(folder)} | settings)
    trainer = trainer_class(model, reward, args, rows, **more or {})
    trainer.remove_callback(VADEReportCallback)
    return trainer


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def largest_difference(left, right):
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def assert_equal_weights(left, right):
    assert left.keys() == right.keys()
    assert all(left[name].equal(right[name]) for name in left)


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


class StopAfter(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


class SaveAt(TrainerCallback):
    """Asks for a checkpoint at one step, as a user's own callback does, beside those that the run saves anyway."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_save |= state.global_step == self.step


def assert_same_end(resumed, whole):
    """The same choices and outcomes, the same posterior to the byte, the same weights, the same totals."""
    assert SelectionLog(resumed.args.output_dir).read() == SelectionLog(whole.args.output_dir).read()
    assert_equal_weights(weights(resumed), weights(whole))
    mine, theirs = (run.selection.sampler.state_dict()["posterior"] for run in (resumed, whole))
    for name in ("alpha", "beta", "last_update", "visits"):
        assert mine[name].tobytes() == theirs[name].tobytes()
    assert resumed.selection.feedback.rollouts == whole.selection.feedback.rollouts


def rows_with_images(count=16):
    from trl_vade.testbed import build_dataset

    return build_dataset(num_train=count, num_validation=1, progress=False)["train"]


def first_letter(completions, **kwargs):
    return [float(sum(map(ord, completion[0]["content"])) % 2) for completion in completions]
