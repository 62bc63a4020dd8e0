"""A small client of ichido's claim API. It needs nothing but Python's standard library.

Two forms. `check` asks whether events are new, in one step; a crash after it loses the event. `once` runs a piece of
work under a claim; a crash leaves the claim in doubt, where a person finds it.
"""

import http.client
import json
import secrets
import threading
import time
import urllib.error
import urllib.request


class NothingHappened(Exception):
    """Raised by your work when it is certain that nothing happened. The key is free again."""


class InDoubt(Exception):
    """Nobody knows whether it happened. Do not do it again: tell a person, who looks and resolves the claim."""


class KeyReused(Exception):
    """The key was used for something else before: a bug in how keys are made."""


class StillRunning(Exception):
    """Another holder runs it, and did not finish while we waited. Ask again later."""


class Superseded(Exception):
    """The claim was taken from us while we worked. What we did may have been done by another as well."""


class Unavailable(Exception):
    """No answer for as long as we had patience. Ask again later, with the same key."""


class Refused(Exception):
    """The request is wrong; asking again will not help."""


class Ichido:
    def __init__(self, url="http://127.0.0.1:8070", token=None, patience=30.0):
        self.url = url
        self.patience = patience
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def check(self, events):
        """Asks about events, each {"key": …, "metadata": {…}}: a result for each, in order.

        `is_new`: handle it. Not `is_new`: it was handled before. `degraded`: the ledger is out, and this instance
        answered from its own memory; another may call the same event new.
        """
        events = [{"nonce": _nonce(), **event} for event in events]
        status, answer, _ = self._ask("/v1/events/check", {"events": events})
        if status != 200:
            raise Refused(answer.get("detail"))
        return answer["results"]

    def once(self, key, work, fingerprint=None, lease_ms=30_000, wait=60.0):
        """Runs `work` unless it was done before, and returns its outcome, the first one in either case.

        While another holder runs it, we wait up to `wait` seconds for that one's outcome. The fingerprint says what
        was asked for, so that a key which is used for something else is noticed.
        """
        claim = {"key": key, "nonce": _nonce(), "lease_ms": lease_ms}
        if fingerprint is not None:
            claim["fingerprint"] = fingerprint
        deadline = time.monotonic() + wait
        while True:
            status, answer, retry_after = self._ask("/v1/claims", claim)
            word = _word(answer)
            if status == 201:
                # The first answer got lost, and part of the lease with it: make sure that we still hold the claim.
                if "left_ms" in answer:
                    self._settle("renew", key, answer["token"], lease_ms=lease_ms)
                return self._run(key, answer["token"], lease_ms, work)
            if status == 200:
                return answer.get("outcome")
            if word == "in-doubt":
                raise InDoubt(key)
            if word == "key-reused":
                raise KeyReused(key)
            if word != "in-flight":
                raise Refused(answer.get("detail"))
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
                # A timeout, a cut connection, a bug: it may have happened. Whoever knows better says so.
                self._settle("doubt", key, token, reason=f"{type(error).__name__}: {error}"[:500])
                raise InDoubt(key) from error
            self._settle("complete", key, token, outcome=outcome)
            return outcome

    def _settle(self, word, key, token, **more):
        status, answer, _ = self._ask(f"/v1/claims/{word}", {"key": key, "token": token, **more})
        # A release that is asked again after a lost reply finds nothing, and that is what was wanted.
        if status == 409 and not (word == "release" and answer.get("state") == "absent"):
            raise Superseded(key)
        if status not in (200, 409):
            raise Refused(answer.get("detail"))

    def _ask(self, path, body):
        """Asks until there is an answer. Nonce and token are in the body, so asking again is safe."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers)
        deadline, pause = time.monotonic() + self.patience, 0.1
        while True:
            status, answer, retry_after = self._try(request)
            if status not in (None, 429, 503):
                return status, answer, retry_after or 1.0
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
    """Says every third of the lease that we are still at work. If we die, nobody says so, and the claim is in doubt."""

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


def _word(answer):
    """The last segment of a problem's type."""
    return answer.get("type", "").rsplit("/", 1)[-1]
