"""What `lens demo` runs: a small real training, logged through the real wandb package."""
