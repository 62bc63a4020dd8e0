"""An orders API that knows nothing about retries: every POST creates an order. Standard library only.

    python3 orders.py
"""

import http.server
import json
import os

orders = []


class Orders(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        orders.append({"order": len(orders) + 1, "qty": request["qty"]})
        self.reply(201, orders[-1])

    def do_GET(self):
        self.reply(200, {"created": len(orders)})

    def reply(self, status, body):
        text = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "5000"))), Orders)
print(f"orders on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
