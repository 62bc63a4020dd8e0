"""Retries for httpx, sync and async:

    client = httpx.Client(transport=IdempotentTransport())
    client = httpx.AsyncClient(transport=IdempotentTransport())
"""

from __future__ import annotations

import asyncio
import time

import httpx

from ._http import HEADER, Operation, RetryPolicy, is_stream

__all__ = ["IdempotentTransport", "RetryPolicy"]

_NO_RESPONSE = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class IdempotentTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Gives each POST and PATCH an Idempotency-Key, and sends it again with the same key until there is a response.

    To continue an operation after a restart, store your own key with it and send it in the header `Idempotency-Key`. Raises
    `InDoubt`, `KeyReused`, `CallerChanged`, `OutcomeNotKept`, `InFlight` and `Unanswered`; any other response is returned.
    `transport` sends the requests; the default is httpx's own.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
        *,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._policy = policy or RetryPolicy()
        self._sync = transport if isinstance(transport, httpx.BaseTransport) else None
        self._async = transport if isinstance(transport, httpx.AsyncBaseTransport) else None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._sync = transport = self._sync or httpx.HTTPTransport()
        operation = self._operation(request)
        if operation is None:
            return transport.handle_request(request)
        request.read()  # The body is sent as often as needed.
        while True:
            try:
                response = transport.handle_request(request)
                if not is_stream(response.headers):
                    response.read()
            except _NO_RESPONSE as error:
                pause: float | None = operation.after_failure(error, was_sent=not isinstance(error, _NEVER_SENT))
            else:
                pause = _pause_after(operation, response)
                if pause is None:
                    return response
                response.close()
            time.sleep(pause or 0.0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._async = transport = self._async or httpx.AsyncHTTPTransport()
        operation = self._operation(request)
        if operation is None:
            return await transport.handle_async_request(request)
        await request.aread()
        while True:
            try:
                response = await transport.handle_async_request(request)
                if not is_stream(response.headers):
                    await response.aread()
            except _NO_RESPONSE as error:
                pause: float | None = operation.after_failure(error, was_sent=not isinstance(error, _NEVER_SENT))
            else:
                pause = _pause_after(operation, response)
                if pause is None:
                    return response
                await response.aclose()
            await asyncio.sleep(pause or 0.0)

    def close(self) -> None:
        if self._sync is not None:
            self._sync.close()

    async def aclose(self) -> None:
        if self._async is not None:
            await self._async.aclose()

    def _operation(self, request: httpx.Request) -> Operation | None:
        operation = self._policy.operation(request.method, request.headers.get(HEADER))
        if operation is not None:
            # Also for a request that httpx sends again itself, after a redirect or an authentication challenge.
            request.headers[HEADER] = operation.key
        return operation


def _pause_after(operation: Operation, response: httpx.Response) -> float | None:
    body = b"" if is_stream(response.headers) else response.content
    return operation.after_response(response.status_code, response.headers, body)
