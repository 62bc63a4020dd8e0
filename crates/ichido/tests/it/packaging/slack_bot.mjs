// Delivers events to the bot in deploy/aws/lambda as Slack does, and prints its responses as one line of JSON.

import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';

const posted = [];
let refusals = 1;
let lost = 0;
const slack = createServer((request, response) => {
  let body = '';
  request.on('data', (part) => (body += part));
  request.on('end', () => {
    const message = JSON.parse(body);
    if (message.channel === 'C-limited' && refusals-- > 0) {
      response.writeHead(429).end();
    } else if (message.channel === 'C-lost') {
      lost += 1;
      request.socket.destroy();
    } else {
      posted.push(message);
      response.end(JSON.stringify({ ok: true, ts: `${posted.length}` }));
    }
  });
});
await new Promise((listening) => slack.listen(0, '127.0.0.1', listening));
process.env.SLACK_API_URL = `http://127.0.0.1:${slack.address().port}`;
process.env.SLACK_SIGNING_SECRET = 'signing-secret';
process.env.SLACK_BOT_TOKEN = 'bot-token';
const { handler } = await import('./index.js');

async function deliver(message, { secret = 'signing-secret', age = 0 } = {}) {
  const body = JSON.stringify(message);
  const timestamp = `${Math.floor(Date.now() / 1000) - age}`;
  const signature = createHmac('sha256', secret).update(`v0:${timestamp}:${body}`).digest('hex');
  const headers = { 'x-slack-request-timestamp': timestamp, 'x-slack-signature': `v0=${signature}` };
  try {
    const response = await handler({ headers, body: Buffer.from(body).toString('base64'), isBase64Encoded: true });
    return response.body ?? response.statusCode;
  } catch (error) {
    return error.name;
  }
}

const event = (id, channel) => ({ type: 'event_callback', event_id: id, event: { channel, ts: '1', text: 'hi' } });
const results = {
  challenge: await deliver({ type: 'url_verification', challenge: 'c0' }),
  forged: await deliver(event('Ev0', 'C1'), { secret: 'another' }),
  stale: await deliver(event('Ev0', 'C1'), { age: 400 }),
  first: await deliver(event('Ev1', 'C1')),
  again: await deliver(event('Ev1', 'C1')),
};
// The second delivery arrives while the first is running, or right after it.
const raced = await Promise.all([deliver(event('Ev2', 'C1')), deliver(event('Ev2', 'C1'))]);
results.raced = raced.includes(200) && raced.every((status) => status === 200 || status === 503);
results.limited = [await deliver(event('Ev3', 'C-limited')), await deliver(event('Ev3', 'C-limited'))];
results.lost = [await deliver(event('Ev4', 'C-lost')), await deliver(event('Ev4', 'C-lost'))];
results.attempts_lost = lost;
results.posted = posted.length;
console.log(JSON.stringify(results));
slack.close();
slack.closeAllConnections();
