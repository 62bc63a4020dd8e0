// The handler as a Restate service. Registers itself at the admin address of the first argument, then reports the
// port of the ingress, which is the second argument.
import { createServer } from 'node:http2';
import * as restate from '@restatedev/restate-sdk';
import { handle, started } from './handler.mjs';

const orders = restate.service({ name: 'orders', handlers: { create: async (_, order) => handle(order) } });
const server = createServer(restate.createEndpointHandler({ services: [orders] }));
server.listen(0, '127.0.0.1', async () => {
  const deployment = JSON.stringify({ uri: `http://127.0.0.1:${server.address().port}` });
  for (;;) {
    try {
      const headers = { 'content-type': 'application/json' };
      const response = await fetch(`${process.argv[2]}/deployments`, { method: 'POST', headers, body: deployment });
      if (response.ok) break;
      console.error(await response.text());
    } catch {
      // It is still starting.
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  started(process.argv[3]);
});
