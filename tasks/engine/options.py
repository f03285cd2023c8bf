"""Options of jobs in this process. Separate: they are not in keys, so nothing in a key may be defined here.

A job reads them with `current()`. They are sent beside the record of a stage, never in it.
"""

import os
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from gristmill.storage.remote import config
from gristmill.storage.remote.config import RemoteIOConfig

MAX_BATCH = 50_000  # requests in a batch (OpenAI's API reference, `POST /v1/batches`)
PRIVATE = 0o077  # only the account itself


def _setting(default: int | float | str, description: str) -> Any:
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True)
class LanguageModelServer:
    """The OpenAI-compatible server for steps with a language model, and the limits of requests.

    It is not in keys: the recipe names the model. Limits and budget apply to a stage and are divided among `clients`.
    Raises ValueError for an address that is not http or https or contains a password, and for wrong numbers.
    """

    base_url: str = _setting(
        "", "address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1; GRISTMILL_SECRET_LM has its key"
    )
    concurrency: int = _setting(16, "maximum number of requests in flight")
    clients: int = _setting(1, "number of jobs that send requests; one sends about 170 per second")
    requests_per_minute: float = _setting(0.0, "maximum rate of requests; 0: no limit")
    tokens_per_minute: float = _setting(0.0, "maximum rate of prompt and completion tokens; 0: no limit")
    batch: int = _setting(0, "requests in a batch of the server's Batch API, at most 50,000; 0: single calls")
    timeout_seconds: float = _setting(300.0, "timeout of one attempt to get an answer")
    patience_seconds: float = _setting(900.0, "time to retry one request before the stage fails")
    price_in: float = _setting(0.0, "price of a million prompt tokens")
    price_out: float = _setting(0.0, "price of a million completion tokens")
    budget: float = _setting(0.0, "maximum price of all answers of a stage; it stops there and resumes; 0: no limit")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            positive = each.name in ("concurrency", "clients", "timeout_seconds", "patience_seconds")
            if not isinstance(value, str) and not (value > 0 if positive else value >= 0):
                raise ValueError(f"{each.name} is {value!r}; give a number {'above' if positive else 'not below'} 0")
        if self.budget and not (self.price_in or self.price_out):
            raise ValueError("budget needs the prices; set price_in and price_out, per million tokens")
        if self.clients > self.concurrency:
            raise ValueError(
                f"clients is {self.clients} and concurrency {self.concurrency}; give at most so many clients"
            )
        if self.batch > MAX_BATCH:
            raise ValueError(f"batch is {self.batch}; give at most {MAX_BATCH:,}, the limit of OpenAI's Batch API")
        if self.batch and self.clients > 1:
            raise ValueError(f"batch is {self.batch} and clients {self.clients}; set clients to 1, which sends batches")
        if not self.base_url:
            return
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"base_url is {address.scheme}://{address.hostname}; give an http or https address")
        if address.username or address.password or address.query:
            raise ValueError("base_url has a user, password or query; set GRISTMILL_SECRET_LM to the key instead")

    @property
    def host(self) -> str:
        """The host that receives the texts."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_loopback(self) -> bool:
        """Whether texts stay on this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """The price of so many tokens."""
        return (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1e6


@dataclass(frozen=True)
class JobOptions:
    """`remote_io`: how remote files are fetched. `memory`: bytes that a job may use if it can choose. `umask`: for the
    files and folders of jobs. `own_seconds`: wall-clock limit of one call of a user's function. `lm`: the server for
    steps with a language model."""

    remote_io: RemoteIOConfig = RemoteIOConfig()
    memory: int = 1 << 30
    umask: int = PRIVATE
    own_seconds: float = 3600.0
    lm: LanguageModelServer = LanguageModelServer()


_current = JobOptions()


def configure(options: JobOptions) -> None:
    """Set the options of this process, including those for remote files."""
    global _current
    _current = options
    config.configure(options.remote_io)


def begin_making(options: JobOptions) -> None:
    """Set the options and the umask of a process that makes stages: a run or a worker. A process that only reads keeps
    its umask, because it may be the user's."""
    configure(options)
    os.umask(options.umask)


def current() -> JobOptions:
    """The options that were set last, or the defaults."""
    return _current
