"""An orders API on the HTTP server of Python. Each effect is a line in a file.

The header X-Trouble makes a request fail: `sleep=0.5` (reports its start, sleeps, acts), `cut` (acts, then closes without
a response), `cut-before` (closes before it acts), `half` (acts, sends half of the response), `status=500`,
`large=3000000`, `hang` (acts, never responds).
"""

import http.server
import json
import os
import socket
import sys
import threading
import time
import uuid

EFFECTS = open(sys.argv[1], "a", buffering=1)
STARTED = open(sys.argv[1] + ".started", "a", buffering=1)
LOCK = threading.Lock()
TROUBLE = sys.argv[3] if len(sys.argv) > 3 else ""


class Orders(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self.read_chunks()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        trouble = dict(part.partition("=")[::2] for part in self.headers.get("X-Trouble", TROUBLE).split(",") if part)
        if "cut-before" in trouble:
            return self.cut()
        if "sleep" in trouble:
            with LOCK:
                STARTED.write(self.headers.get("Idempotency-Key", "") + "\n")
            time.sleep(float(trouble["sleep"]))
        order = "O-" + uuid.uuid4().hex
        with LOCK:
            EFFECTS.write(json.dumps({
                "order": order, "path": self.path, "key": self.headers.get("Idempotency-Key"),
                "attempt": self.headers.get("Idempotency-Attempt"), "bytes": len(body),
                "forwarded": self.headers.get("X-Forwarded-For"), "host": self.headers.get("Host"),
            }) + "\n")
        if "cut" in trouble:
            return self.cut()
        if "hang" in trouble:
            time.sleep(600)
        status = int(trouble.get("status", 201))
        response = json.dumps({"orderId": order, "id": order, "object": "order"}).encode()
        if "large" in trouble:
            response = b"x" * int(trouble["large"])
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response)))
        self.send_header("Location", "/orders/" + order)
        self.send_header("Set-Cookie", "sid=" + order)
        self.send_header("X-Many", "one")
        self.send_header("X-Many", "two")
        self.end_headers()
        if "half" in trouble:
            self.wfile.write(response[: len(response) // 2])
            self.wfile.flush()
            return self.cut()
        self.wfile.write(response)

    do_PATCH = do_PUT = do_DELETE = do_POST

    def do_GET(self):
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(3):
                piece = b"data: %d\n\n" % number
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
                # The next piece is sent only after the client has seen this one.
                while not os.path.exists("%s.seen%d" % (sys.argv[1], number)):
                    time.sleep(0.01)
            self.wfile.write(b"0\r\n\r\n")
            return
        if self.headers.get("Upgrade") == "echo":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            while True:
                data = self.connection.recv(100)
                if not data:
                    self.close_connection = True
                    return
                self.connection.sendall(b"echo " + data)
        response = json.dumps({"path": self.path, "headers": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response)

    do_HEAD = do_OPTIONS = do_GET

    def read_chunks(self):
        body = b""
        while True:
            size = int(self.rfile.readline(), 16)
            piece = self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return body
            body += piece

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


server = Server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Orders)
print(server.server_port, flush=True)
server.serve_forever()
