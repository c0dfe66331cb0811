"""lmms-eval 0.7.3: its process, tasks, scoring and corrections."""
