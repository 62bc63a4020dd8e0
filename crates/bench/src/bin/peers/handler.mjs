// The handler that every Node contender runs: it parses an order and responds with 200 bytes.
import { createServer } from 'node:http';

const RESPONSE = 'y'.repeat(200);

export function handle(order) {
  if (order.amount !== 12) throw new Error('unexpected order');
  return RESPONSE;
}

/** Serves orders over HTTP: `respond` gets the request and its parsed body, and returns the body of the response. */
export function serve(respond) {
  const server = createServer((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', async () => {
      try {
        response.end(await respond(request, JSON.parse(Buffer.concat(chunks))));
      } catch (error) {
        response.writeHead(error.code === undefined ? 500 : 409).end(String(error));
      }
    });
  });
  // Connections stay open between rounds.
  server.keepAliveTimeout = 3_600_000;
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1024 }, () => started(server.address().port));
}

/** Reports the port to the benchmark, and exits with it. */
export function started(port) {
  console.log(port);
  process.stdin.resume();
  process.stdin.on('end', () => process.exit(0));
}
