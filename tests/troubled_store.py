"""moto's S3 that refuses requests, or lets them wait, while a file says so.

    python -m tests.troubled_store HOST PORT FILE

FILE, if it is there, holds JSON: `status` (503: all requests are refused with it), `delay` (seconds of each request).
"""

import json
import sys
import time
from pathlib import Path

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main(host: str, port: str, file: str) -> None:
    app = DomainDispatcherApplication(create_backend_app)

    def answer(environ, start_response):
        path = Path(file)
        trouble = json.loads(path.read_text()) if path.exists() else {}
        time.sleep(trouble.get("delay", 0.0))
        if "status" not in trouble:
            return app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{trouble['status']} SlowDown", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code><Message>planned</Message></Error>"]

    run_simple(host, int(port), answer, threaded=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
