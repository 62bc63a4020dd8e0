"""Retries for requests:

    session = requests.Session()
    session.mount("https://api.example.com/", IdempotentAdapter())
"""

from __future__ import annotations

import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from ._http import HEADER, RetryPolicy, is_stream

__all__ = ["IdempotentAdapter", "RetryPolicy"]

_NO_RESPONSE = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


class IdempotentAdapter(HTTPAdapter):
    """Gives each POST and PATCH an Idempotency-Key, and sends it again with the same key until there is a response.

    To continue an operation after a restart, store your own key with it and send it in the header `Idempotency-Key`. Raises
    `InDoubt`, `KeyReused`, `CallerChanged`, `OutcomeNotKept`, `InFlight` and `Unanswered`; any other response is returned.
    The remaining arguments are those of `requests.adapters.HTTPAdapter`.
    """

    def __init__(self, *arguments: Any, policy: RetryPolicy | None = None, **named: Any) -> None:
        self._policy = policy or RetryPolicy()
        super().__init__(*arguments, **named)

    def send(
        self, request: requests.PreparedRequest, stream: bool = False, *arguments: Any, **named: Any
    ) -> requests.Response:
        operation = self._policy.operation(request.method or "GET", request.headers.get(HEADER))
        if operation is None:
            return super().send(request, stream, *arguments, **named)
        request.headers[HEADER] = operation.key
        _buffer_body(request)
        while True:
            try:
                response = super().send(request, stream, *arguments, **named)
                if not stream and not is_stream(response.headers):
                    response.content  # Reads the body, so that one that breaks off halfway is retried.
            except _NO_RESPONSE as error:
                pause: float | None = operation.after_failure(error, was_sent=not _was_refused(error))
            else:
                body = response.content if response.status_code >= 400 else b""
                pause = operation.after_response(response.status_code, response.headers, body)
                if pause is None:
                    return response
                response.close()
            time.sleep(pause or 0.0)


def _buffer_body(request: requests.PreparedRequest) -> None:
    """Reads a body that can be read only once, because it is sent as often as needed."""
    body: Any = request.body
    if body is None or isinstance(body, (bytes, str)):
        return
    data = body.read() if hasattr(body, "read") else b"".join(part.encode() if isinstance(part, str) else part for part in body)
    request.body = data.encode() if isinstance(data, str) else data
    request.headers.pop("Transfer-Encoding", None)
    request.headers["Content-Length"] = str(len(request.body or b""))


def _was_refused(error: Exception) -> bool:
    """Whether nobody listened, so that no byte was sent. requests does not tell other ways to fail apart."""
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return True
    return "NewConnectionError" in repr(error.args[:1])
