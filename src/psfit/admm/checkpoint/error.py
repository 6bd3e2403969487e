"""The one error of checkpoints."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used, with the reason."""
