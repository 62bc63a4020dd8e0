"""One worker among several. It appends one line per step to its log, so that a test can tell what it did before it was killed.

    python worker.py marks|claims LOG TARGET SEED COUNT      TARGET: TABLE@ENDPOINT, or the URL of a claim API
"""

from __future__ import annotations

import os
import random
import sys
import time

from ichido import ClaimApi, DynamoDBLedger, EventDeduplicationService, InDoubt, Ledger, once


def main() -> None:
    mode, path, target, seed, count = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    chance = random.Random(seed)
    ledger: Ledger
    if target.startswith("http"):
        ledger = ClaimApi(target)
    else:
        table, endpoint = target.split("@")
        ledger = DynamoDBLedger(table, endpoint_url=endpoint, timeout=30)
    service = EventDeduplicationService(ledger=ledger)
    keys = [f"k{number}" for number in range(int(count))]
    chance.shuffle(keys)

    def write(*words: str) -> None:
        os.write(log, (" ".join(words) + "\n").encode())

    def effect(key: str) -> str:
        write("run", key)
        time.sleep(chance.uniform(0, 0.02))
        write("ran", key)
        return f"{key} by {seed}"

    for key in keys:
        write("ask", key)
        if mode == "marks":
            write("new" if service.check_and_mark_processed(key, {"worker": seed}).is_new else "duplicate", key)
            continue
        try:
            write("done", key, once(key, lambda: effect(key), ledger=ledger, lease=3, wait=120).replace(" ", "_"))
        except InDoubt:
            write("doubt", key)
    write("end")


if __name__ == "__main__":
    main()
