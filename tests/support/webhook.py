"""A local HTTP server that receives webhooks."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class Receiver:
    """An HTTP server that keeps what is posted, and answers with the given codes, then 200."""

    def __init__(self, *codes: int) -> None:
        self.received: list[dict[str, Any]] = []
        left = list(codes)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                outer.received.append(json.loads(self.rfile.read(length)))
                assert self.headers["Content-Type"] == "application/json"
                code = left.pop(0) if left else 200
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "file:///etc/hostname")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?token=secret"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
