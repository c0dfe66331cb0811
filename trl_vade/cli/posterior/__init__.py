"""`trl-vade posterior`: posteriors looked at, compared, exported and published."""
