"""Faults, injected into real runs: kills, full disks, damaged files, other processes, a Hub that fails."""
