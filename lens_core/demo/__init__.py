"""The training of `lens demo`: small, real, logged through the real wandb package."""
