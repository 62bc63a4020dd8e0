// What people run with Stripe's library for Node, against a gateway instead of Stripe.
//
//     node stripe.js customer PORT KEY NAME     creates a customer with retries on; prints how it ended
//     node stripe.js sign BODY SECRET TIME      prints a webhook's Stripe-Signature
//     node stripe.js bot SECRET_FILE EFFECTS    a webhook receiver; prints its port, and each event is a line in a file
const fs = require('node:fs');
const http = require('node:http');
const Stripe = require('stripe');

const [mode, ...args] = process.argv.slice(2);

async function customer(port, idempotencyKey, name) {
  const stripe = new Stripe('sk_test_once', { host: '127.0.0.1', port, protocol: 'http', maxNetworkRetries: 3 });
  try {
    const { id } = await stripe.customers.create({ name }, { idempotencyKey });
    return { id: id ?? null };
  } catch (error) {
    return { error: error.rawType, code: error.code, status: error.statusCode };
  }
}

function bot(secretFile, effects) {
  const stripe = new Stripe('sk_test_once');
  const server = http.createServer((request, response) => {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
      try {
        const secret = fs.readFileSync(secretFile, 'utf8');
        const signature = request.headers['stripe-signature'];
        const event = stripe.webhooks.constructEvent(Buffer.concat(pieces), signature, secret);
        fs.appendFileSync(effects, `${event.id}\n`);
        response.writeHead(200).end();
      } catch (error) {
        response.writeHead(400).end(`Webhook Error: ${error.message}`);
      }
    });
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
}

if (mode === 'customer') customer(...args).then((end) => console.log(JSON.stringify(end)));
if (mode === 'bot') bot(...args);
if (mode === 'sign') {
  const [payload, secret, timestamp] = args;
  console.log(new Stripe('sk').webhooks.generateTestHeaderString({ payload, secret, timestamp: Number(timestamp) }));
}
