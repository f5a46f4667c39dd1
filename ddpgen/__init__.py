"""ddpgen writes data-parallel PyTorch training projects that their owners can read and change."""

__version__ = "0.4.3"
