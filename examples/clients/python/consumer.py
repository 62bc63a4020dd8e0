"""Handles each event of standard input once: a line of JSON for each, with an "id".

    ICHIDO_URL=http://127.0.0.1:8070 python3 consumer.py < events.jsonl
"""

import hashlib
import json
import os
import sys

from ichido import Ichido, InDoubt, KeyReused


def handle(event):
    """Your work. Its result is what repeats are answered."""
    return {"handled": event["id"]}


def main():
    ichido = Ichido(os.environ.get("ICHIDO_URL", "http://127.0.0.1:8070"), os.environ.get("ICHIDO_ADMIN_TOKEN"))
    events = [json.loads(line) for line in sys.stdin if line.strip()]

    # Cheap events: one question for all of them.
    for result in ichido.check([{"key": f"seen:{event['id']}"} for event in events]):
        if result["degraded"]:
            print(f"{result['key']}: the ledger is out; another instance may handle it too", file=sys.stderr)
        print(result["key"], "new" if result["is_new"] else "duplicate")

    # Work that must not be lost, and must not be done twice.
    for event in events:
        fingerprint = hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()
        try:
            print(event["id"], json.dumps(ichido.once(event["id"], lambda: handle(event), fingerprint)))
        except InDoubt:
            print(event["id"], "in doubt: a person must look")
        except KeyReused:
            print(event["id"], "is the id of another event: a bug")


if __name__ == "__main__":
    main()
