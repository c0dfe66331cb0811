"""`python -m trl_vade` is `trl-vade`."""

from .cli.main import main

main()
