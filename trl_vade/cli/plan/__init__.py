"""`trl-vade plan`: what a recipe means in batches, updates, rollouts and GPU memory."""
