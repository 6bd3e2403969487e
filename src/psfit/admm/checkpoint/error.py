"""The error of checkpoints."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be used; the message has the reason."""
