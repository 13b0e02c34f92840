"""The exceptions of the pure domain: a value that cannot be, or a change that must not be made.

All of them are ValueErrors, because nothing here can fail for any other reason than what it was given.
"""

# ruff: noqa: N818 - the names are what is wrong

from __future__ import annotations


class DomainError(ValueError):
    """The family; catch this at the edges."""


class InvalidName(DomainError):
    """A name that Pulsar would refuse, or read as the name of something else."""


class InvalidGroupId(DomainError):
    """A group id that cannot be sent."""


class InvalidLayout(DomainError):
    """A partition count, scale factor or shard count that cannot be."""


class DescriptorError(DomainError):
    """A descriptor that cannot be read, or a change that would break one of its rules."""
