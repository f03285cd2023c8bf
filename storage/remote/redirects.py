"""Where an HTTP server may send its reader: not from https to http, and to no address of a private network.

Addresses that a recipe names are read wherever they are. A redirect is a server's word: it could make this machine
ask services that only this machine reaches, as a cloud's metadata at 169.254.169.254.
"""

import ipaddress
import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver
from yarl import URL

from gristmill.storage.remote.config import configured
from gristmill.storage.remote.retry import BadResponse

_NOT_PUBLIC = (
    "an address of this machine or of a private network, which is not allowed unless "
    "GRISTMILL_REMOTE_IO__PRIVATE_REDIRECTS=true"
)


class _Resolver(AbstractResolver):
    """The system's answers; of hosts that were reached by a redirect the public ones, unless a server that is not
    public redirected to itself. `public`: the hosts whose last answers were public."""

    def __init__(self) -> None:
        self.resolver = DefaultResolver()
        self.redirected: set[str] = set()
        self.public: set[str] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        hosts = await self.resolver.resolve(host, port, family)
        bounded = host in self.redirected and not configured().private_redirects
        if bounded and not (hosts := [one for one in hosts if _is_public(one["host"])]):
            raise _refused(f"{host}:{port}" if port else host)
        if all(_is_public(one["host"]) for one in hosts):
            self.public.add(host)
        return hosts

    async def close(self) -> None:
        await self.resolver.close()


async def checked_client(**options: Any) -> aiohttp.ClientSession:
    """A client that follows a redirect as far as it is allowed, else raises BadResponse. For fsspec's `get_client`."""
    resolver = _Resolver()
    trace = aiohttp.TraceConfig()

    async def check(session: Any, context: Any, redirect: aiohttp.TraceRequestRedirectParams) -> None:
        location = redirect.response.headers.get("Location") or redirect.response.headers.get("URI")
        try:
            target = redirect.url.join(URL(location or ""))
        except ValueError:
            return  # aiohttp's own error
        host = target.host or ""
        if redirect.url.scheme == "https" and target.scheme != "https":
            redirect.response.close()
            raise BadResponse(f"the server redirects from https to {target.scheme}://{host}, which is not allowed")
        if configured().private_redirects:
            return
        # another port is another server, and a name that was public may have another address by now
        if host == redirect.url.host and _same_port(redirect.url, target):
            if host in resolver.public:
                resolver.redirected.add(host)
            return
        try:
            ipaddress.ip_address(host)
        except ValueError:
            resolver.redirected.add(host)
            return
        if not _is_public(host):
            redirect.response.close()
            raise _refused(f"{host}:{target.port}")

    async def begin(session: Any, context: Any, request: aiohttp.TraceRequestStartParams) -> None:
        resolver.redirected.discard(request.url.host or "")

    trace.on_request_start.append(begin)
    trace.on_request_redirect.append(check)
    # each connection must ask the resolver, so answers are not cached
    connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False)
    return aiohttp.ClientSession(connector=connector, trace_configs=[trace], **options)


def _same_port(one: URL, other: URL) -> bool:
    """Also from HTTP's port to HTTPS's."""
    return one.port == other.port or (one.port, other.port) == (80, 443)


def check_public(host: str, what: str) -> None:
    """Raise ValueError if a host is not public, unless this machine allows it. An unknown one is no error here."""
    if configured().private_redirects:
        return
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return
    if addresses and not any(map(_is_public, addresses)):
        raise ValueError(f"{what} {host}, {_NOT_PUBLIC}")


def _is_public(host: str) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_global


def _refused(host: str) -> BadResponse:
    return BadResponse(f"the server redirects to {host}, {_NOT_PUBLIC}")
