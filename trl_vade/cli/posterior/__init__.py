"""`trl-vade posterior`: posteriors looked at, compared, exported, pushed and pulled."""
