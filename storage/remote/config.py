"""Settings of how a machine fetches remote bytes. Imports only the standard library."""

from dataclasses import dataclass, field, fields
from typing import Any


def _setting(default: float, description: str) -> Any:
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True)
class RemoteIOConfig:
    """How this machine fetches remote bytes. It changes no byte of what is fetched, so it enters no key.

    A wait before another attempt is drawn evenly from 0 to `backoff_seconds`, doubled with each attempt up to
    `backoff_cap_seconds`, plus what the server asks for. Status 403 of a host that has not sent this process any data
    yet means too many requests at Common Crawl, and a wrong address at a mirror on S3, so it is retried for
    `refused_seconds`. Stores other than HTTP hosts have their library's own timeouts and no limit of connections.
    """

    block_bytes: int = _setting(8 << 20, "size of a range request, in bytes; a stream holds two")
    gap_bytes: int = _setting(1 << 20, "maximum gap between ranges that are fetched together, in bytes")
    per_host: int = _setting(4, "concurrent requests to an HTTP host, over all processes of a user")
    budget_seconds: float = _setting(900.0, "time to retry a block before the file fails, including waits")
    refused_seconds: float = _setting(60.0, "time to retry status 403 of a host that has sent no data yet")
    backoff_seconds: float = _setting(1.0, "maximum wait before the second attempt")
    backoff_cap_seconds: float = _setting(60.0, "maximum wait before any attempt, unless the server requests more")
    stall_seconds: float = _setting(30.0, "timeout of a connection, and of the next part of a response")
    block_seconds: float = _setting(300.0, "timeout of a whole block")
    private_redirects: bool = _setting(False, "redirects to this machine or to a private network")

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            # for aiohttp, a limit of 0 is none
            positive = one.name in ("per_host", "block_bytes", "stall_seconds", "block_seconds")
            if not (value > 0 if positive else value >= 0):
                raise ValueError(f"{one.name} is {value!r}: give a number {'above' if positive else 'not below'} 0")


DEFAULT = RemoteIOConfig()


_used = RemoteIOConfig()


def configure(remote_io: RemoteIOConfig) -> None:
    """Set what this process uses wherever a call names no configuration."""
    global _used
    _used = remote_io


def configured() -> RemoteIOConfig:
    """The configuration last set by `configure`, or the default."""
    return _used
