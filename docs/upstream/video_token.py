"""TRL 1.16.0: the policy can generate the video placeholder.

A sampled placeholder has no image features, so the training forward fails. TRL suppresses the token of images
with transformers' engine. It leaves out the token of videos, and both with vLLM.

Expected:
    {'image_token_id': True, 'video_token_id': True}

Printed:
    {'image_token_id': True, 'video_token_id': False}
"""

import os

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")
rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "What is it?"}]}] * 2)
args = GRPOConfig("out", per_device_train_batch_size=2, num_generations=2, report_to="none", use_cpu=True, bf16=False)
trainer = GRPOTrainer(MODEL, lambda completions, **kwargs: [0.0] * len(completions), args, rows)
config, suppressed = trainer.model.config, trainer.generation_config.suppress_tokens or []
print({name: getattr(config, name) in suppressed for name in ("image_token_id", "video_token_id")})
