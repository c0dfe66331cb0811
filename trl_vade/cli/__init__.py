"""The command `trl-vade`: a module for each command."""
