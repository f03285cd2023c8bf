"""How a machine fetches remote bytes: settings, by the standard library alone."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class RemoteIOConfig:
    """How this machine fetches remote bytes. It changes no byte of what is fetched, so it enters no key.

    `block_bytes`: one range request; a stream holds two. `gap_bytes`: wanted ranges that lie no further apart are
    fetched as one. `per_host`: requests at a time to one HTTP host, of all processes of this user on the machine.
    `budget_seconds`: how long one block may fail before the file does, waits included. A wait is drawn evenly from
    0 to `backoff_seconds`, doubled with each attempt up to `backoff_cap_seconds`, plus what the server asks for.
    `stall_seconds`: to connect, and between two pieces of an answer; `block_seconds`: for a whole block.
    `refused_seconds`: how long a host that has given this process nothing yet may answer 403, which stands for too many
    requests at Common Crawl and for a wrong address at a mirror on S3.
    `private_redirects`: whether an HTTP server may redirect to addresses of this machine or of a private network.
    Stores other than HTTP hosts have their library's own timeouts and no limit of connections.
    """

    block_bytes: int = 8 << 20
    gap_bytes: int = 1 << 20
    per_host: int = 4
    budget_seconds: float = 900.0
    refused_seconds: float = 60.0
    backoff_seconds: float = 1.0
    backoff_cap_seconds: float = 60.0
    stall_seconds: float = 30.0
    block_seconds: float = 300.0
    private_redirects: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # for aiohttp, a limit of 0 is none
            positive = field.name in ("per_host", "block_bytes", "stall_seconds", "block_seconds")
            if not (value > 0 if positive else value >= 0):
                raise ValueError(f"{field.name} is {value!r}: give a number {'above' if positive else 'not below'} 0")


DEFAULT = RemoteIOConfig()


_used = RemoteIOConfig()


def configure(remote_io: RemoteIOConfig) -> None:
    """Set what this process uses wherever a call names no configuration."""
    global _used
    _used = remote_io


def configured() -> RemoteIOConfig:
    """The configuration last set by `configure`, or the default."""
    return _used
