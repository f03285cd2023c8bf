"""Options of jobs of this process. Separate: they are in no key, so nothing that a key holds is here.

A job reads them with `current()`. They travel beside the record that a job's key is made of, never in it.
"""

import os
from dataclasses import dataclass

from gristmill.storage.remote import config
from gristmill.storage.remote.config import RemoteIOConfig

PRIVATE = 0o077  # only the account itself


@dataclass(frozen=True)
class JobOptions:
    """`remote_io`: how remote files are fetched; `memory`: bytes that one job may hold where it can choose; `umask`:
    the rights that files and folders which a job makes do not have; `own_seconds`: that one call of a user's function
    may take, by the clock."""

    remote_io: RemoteIOConfig = RemoteIOConfig()
    memory: int = 1 << 30
    umask: int = PRIVATE
    own_seconds: float = 3600.0


_current = JobOptions()


def configure(options: JobOptions) -> None:
    """Set the options of this process, those of remote files included."""
    global _current
    _current = options
    config.configure(options.remote_io)


def begin_making(options: JobOptions) -> None:
    """Set the options of a process that makes stages, a run's or a worker's, and the rights of what it makes. One that
    only reads keeps its own umask: it may be a user's."""
    configure(options)
    os.umask(options.umask)


def current() -> JobOptions:
    """The options that were set last, or the defaults."""
    return _current
