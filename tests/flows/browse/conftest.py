"""The corpus and its server, made once for the tests of a module."""

import json
import threading
from collections.abc import Iterator

import pytest

from gristmill.flows.explore.browse.opened import Opened
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.browse.server import Server
from tests.flows.browse.hostile import STEP, finish, rows


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Opened:
    return finish(tmp_path_factory.mktemp("browse"), [json.dumps(row) for row in rows()], "hostile", [STEP])


@pytest.fixture(scope="module")
def server(opened) -> Iterator[Server]:
    with Server(Pages(opened)) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()
