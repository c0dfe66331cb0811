"""The command `trl-vade`: a module for each command, a folder for each larger one."""
