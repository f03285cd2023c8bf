"""Options of jobs of this process. Separate: they are in no key, so nothing that a key holds is here.

A job reads them with `current()`. They travel beside the record that a job's key is made of, never in it.
"""

from dataclasses import dataclass

from gristmill.storage.remote import config
from gristmill.storage.remote.config import RemoteIOConfig


@dataclass(frozen=True)
class JobOptions:
    """`remote_io`: how remote files are fetched; `memory`: bytes that one job may hold where it can choose."""

    remote_io: RemoteIOConfig = RemoteIOConfig()
    memory: int = 1 << 30


_current = JobOptions()


def configure(options: JobOptions) -> None:
    """Set the options of this process, those of remote files included."""
    global _current
    _current = options
    config.configure(options.remote_io)


def current() -> JobOptions:
    """The options that were set last, or the defaults."""
    return _current
