"""Lets a test drive the Python client: requests and responses are lines of JSON."""

import json
import sys
import time

sys.path.insert(0, sys.argv[1])

from ichido import Ichido, NothingHappened  # noqa: E402

ichido = Ichido(sys.argv[2])


def once(request):
    ran = 0

    def work():
        nonlocal ran
        ran += 1
        if request["work"] == "slow":
            time.sleep(4)
        if request["work"] == "nothing":
            raise NothingHappened("no connection")
        if request["work"] == "unknown":
            raise TimeoutError("no response")
        return {"by": "the client"}

    try:
        outcome = ichido.once(request["once"], work, request.get("fingerprint"), request.get("lease_ms", 30_000))
        return {"outcome": outcome, "ran": ran}
    except Exception as error:
        return {"error": type(error).__name__, "ran": ran}


for line in sys.stdin:
    request = json.loads(line)
    response = {"results": ichido.check(request["check"])} if "check" in request else once(request)
    print(json.dumps(response), flush=True)
