"""TRL 1.16.0: every model card names a licence `license`.

The key of the Hub is `license`, with a value from a list. The Hub's check warns of the card.

Expected:
    []

Printed:
    ['licence: license']
"""

from trl.trainer.utils import generate_model_card

card = generate_model_card(
    base_model=None,
    model_name="it",
    hub_model_id="me/it",
    dataset_name=None,
    tags=[],
    wandb_url=None,
    trackio_url=None,
    trainer_name="GRPO",
)
print([line for line in str(card).splitlines() if line.startswith("licen")])
