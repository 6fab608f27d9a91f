"""Training of draft heads (docs/training.md): features of the target in, published checkpoints out."""
