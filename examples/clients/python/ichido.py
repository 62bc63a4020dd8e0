"""A small client for ichido's claim API. It needs only Python's standard library.

`check` asks whether events are new, in one step; a crash after it loses the event. `once` runs work under a claim; a
crash leaves the claim in doubt, where an operator finds it.
"""

import http.client
import json
import secrets
import threading
import time
import urllib.error
import urllib.request


class NothingHappened(Exception):
    """Raised by your work if it is certain that nothing happened. The key is released."""


class InDoubt(Exception):
    """Nobody knows whether it happened. Do not retry: tell an operator, who resolves the claim."""


class KeyReused(Exception):
    """The key was used for something else before: a bug in how keys are generated."""


class StillRunning(Exception):
    """Another holder is running it and did not finish while we waited. Try again later."""


class Superseded(Exception):
    """Another holder took over the claim while we worked. The work may have been done twice."""


class Unavailable(Exception):
    """The API did not respond within the patience. Try again later, with the same key."""


class Refused(Exception):
    """The request is wrong; a retry will not help."""


class Ichido:
    def __init__(self, url="http://127.0.0.1:8070", token=None, patience=30.0):
        self.url = url
        self.patience = patience
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def check(self, events):
        """Checks events, each {"key": …, "metadata": {…}}, and returns a result for each, in order.

        `is_new`: handle it. Not `is_new`: it was handled before. `degraded`: the ledger is unavailable and the instance
        answered from its own memory; another instance may call the same event new.
        """
        events = [{"nonce": _nonce(), **event} for event in events]
        status, body, _ = self._call("/v1/events/check", {"events": events})
        if status != 200:
            raise Refused(body.get("detail"))
        return body["results"]

    def once(self, key, work, fingerprint=None, lease_ms=30_000, wait=60.0):
        """Runs `work` unless it was done before, and returns the first outcome in either case.

        Waits up to `wait` seconds for the outcome of another holder. The fingerprint identifies the request, so that a
        key used for something else is detected.
        """
        claim = {"key": key, "nonce": _nonce(), "lease_ms": lease_ms}
        if fingerprint is not None:
            claim["fingerprint"] = fingerprint
        deadline = time.monotonic() + wait
        while True:
            status, body, retry_after = self._call("/v1/claims", claim)
            problem = _problem(body)
            if status == 201:
                # The first response was lost, and part of the lease with it: make sure that we still hold the claim.
                if "left_ms" in body:
                    self._settle("renew", key, body["token"], lease_ms=lease_ms)
                return self._run(key, body["token"], lease_ms, work)
            if status == 200:
                return body.get("outcome")
            if problem == "in-doubt":
                raise InDoubt(key)
            if problem == "key-reused":
                raise KeyReused(key)
            if problem != "in-flight":
                raise Refused(body.get("detail"))
            if time.monotonic() + retry_after > deadline:
                raise StillRunning(key)
            time.sleep(retry_after)

    def _run(self, key, token, lease_ms, work):
        with _Renewal(self, key, token, lease_ms):
            try:
                outcome = work()
            except NothingHappened:
                self._settle("release", key, token)
                raise
            except Exception as error:
                # A timeout, a lost connection, a bug: it may have happened.
                self._settle("doubt", key, token, reason=f"{type(error).__name__}: {error}"[:500])
                raise InDoubt(key) from error
            self._settle("complete", key, token, outcome=outcome)
            return outcome

    def _settle(self, action, key, token, **more):
        status, body, _ = self._call(f"/v1/claims/{action}", {"key": key, "token": token, **more})
        # A release that is retried after a lost reply finds the key absent, as intended.
        if status == 409 and not (action == "release" and body.get("state") == "absent"):
            raise Superseded(key)
        if status not in (200, 409):
            raise Refused(body.get("detail"))

    def _call(self, path, body):
        """Calls until there is a response. The body has a nonce or a token, so a retry is safe."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers)
        deadline, pause = time.monotonic() + self.patience, 0.1
        while True:
            status, reply, retry_after = self._try(request)
            if status not in (None, 429, 503):
                return status, reply, retry_after or 1.0
            pause = max(pause, retry_after or 0.0)
            if time.monotonic() + pause > deadline:
                raise Unavailable(path)
            time.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _try(self, request):
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.load(response), None
        except urllib.error.HTTPError as error:
            with error:
                after = error.headers.get("Retry-After")
                try:
                    return error.code, json.load(error), float(after) if after else None
                except ValueError:
                    return error.code, {}, None
        except (OSError, http.client.HTTPException, ValueError):
            return None, None, None


class _Renewal:
    """Renews the claim every third of its lease. If the process crashes, the lease lapses and the claim is in doubt."""

    def __init__(self, ichido, key, token, lease_ms):
        self.ended = threading.Event()
        self.body = {"key": key, "token": token, "lease_ms": lease_ms}
        self.ichido, self.pause = ichido, lease_ms / 3000
        self.thread = threading.Thread(target=self._renew, daemon=True)

    def _renew(self):
        while not self.ended.wait(self.pause):
            data = json.dumps(self.body).encode()
            self.ichido._try(urllib.request.Request(self.ichido.url + "/v1/claims/renew", data, self.ichido.headers))

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def _nonce():
    return secrets.token_hex(16)


def _problem(body):
    """The last segment of a problem's type."""
    return body.get("type", "").rsplit("/", 1)[-1]
