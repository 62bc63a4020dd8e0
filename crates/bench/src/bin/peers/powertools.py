"""The handler in Python, on its own or inside Powertools' idempotency on the DynamoDB of the first argument."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RESPONSE = "y" * 200


def create(order):
    assert order["amount"] == 12
    return RESPONSE


def unprotected(_key, order):
    return create(order)


def protected(url):
    import boto3
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )
    from botocore.config import Config

    config = Config(max_pool_connections=64)
    client = boto3.client("dynamodb", endpoint_url=url, config=config)
    client.create_table(
        TableName="peers",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    layer = DynamoDBPersistenceLayer(table_name="peers", boto3_client=client)

    @idempotent_function(
        data_keyword_argument="call",
        persistence_store=layer,
        config=IdempotencyConfig(event_key_jmespath="key", payload_validation_jmespath="order"),
    )
    def once(*, call):
        return create(call["order"])

    return lambda key, order: once(call={"key": key, "order": order})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One write for the headers and the body, without waiting to fill a packet.
    wbufsize = -1
    disable_nagle_algorithm = True
    respond = staticmethod(unprotected)

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = self.respond(self.headers["idempotency-key"], order).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_):
        """Connections that the load closes are no news; wrk counts those that fail earlier."""


def exit_with_parent():
    sys.stdin.read()
    os._exit(0)


if len(sys.argv) > 1:
    Handler.respond = staticmethod(protected(sys.argv[1]))
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=exit_with_parent, daemon=True).start()
server.serve_forever()
