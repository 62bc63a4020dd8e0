"""Handles each event from standard input once: one JSON object per line, with an "id".

    ICHIDO_URL=http://127.0.0.1:8070 python3 consumer.py < events.jsonl
"""

import hashlib
import json
import os
import sys

from ichido import Ichido, InDoubt, KeyReused


def handle(event):
    """Your work. Duplicates get its result."""
    return {"handled": event["id"]}


def main():
    ichido = Ichido(os.environ.get("ICHIDO_URL", "http://127.0.0.1:8070"), os.environ.get("ICHIDO_ADMIN_TOKEN"))
    events = [json.loads(line) for line in sys.stdin if line.strip()]

    # Cheap events: one call for all of them.
    for result in ichido.check([{"key": f"seen:{event['id']}"} for event in events]):
        if result["degraded"]:
            print(f"{result['key']}: the ledger is unavailable; another instance may handle it too", file=sys.stderr)
        print(result["key"], "new" if result["is_new"] else "duplicate")

    # Work that must be neither lost nor done twice.
    for event in events:
        fingerprint = hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()
        try:
            print(event["id"], json.dumps(ichido.once(event["id"], lambda: handle(event), fingerprint)))
        except InDoubt:
            print(event["id"], "in doubt: an operator must look")
        except KeyReused:
            print(event["id"], "is the id of a different event: a bug")


if __name__ == "__main__":
    main()
