"""Requests to a local page, with its login or without."""

import base64
import json
import urllib.error
import urllib.request


def basic(login: str) -> dict[str, str]:
    """The header that a client sends with `user:password`."""
    return {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


def ask(address: str, body: dict | None = None, **headers: str) -> tuple[int, bytes]:
    """Status and content; a body is posted."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
