// A Slack bot on Lambda. It replies to each message once, even if Slack delivers the event again or the sandbox dies.

import { createHmac, timingSafeEqual } from 'node:crypto';

import { InDoubtError, InFlightError, NothingHappened, once } from 'ichido';

// The claim API of the extension, in the same sandbox.
const api = process.env.ICHIDO_API ?? 'http://127.0.0.1:8070';
const slack = process.env.SLACK_API_URL ?? 'https://slack.com/api';

export async function handler(request) {
  const body = Buffer.from(request.body ?? '', request.isBase64Encoded ? 'base64' : 'utf8').toString();
  if (!isFromSlack(request.headers, body)) return { statusCode: 401 };
  const delivery = JSON.parse(body);
  if (delivery.type === 'url_verification') return { statusCode: 200, body: delivery.challenge };
  try {
    // Slack waits 3 seconds, so a retry does not wait for the first delivery to finish.
    await once(delivery.event_id, () => reply(delivery.event), { api, waitMs: 0 });
    return { statusCode: 200 };
  } catch (error) {
    // Another sandbox is at work. Slack retries later, and then gets the outcome.
    if (error instanceof InFlightError) return { statusCode: 503 };
    // Another delivery would not help: `ichido ledger list --state in-doubt` shows it to an operator.
    if (error instanceof InDoubtError) {
      console.error('in doubt', { event_id: delivery.event_id, reason: error.message });
      return { statusCode: 200 };
    }
    // The invocation fails, and Slack retries.
    throw error;
  }
}

/** The effect. If it throws anything but `NothingHappened`, the claim is in doubt. */
async function reply({ channel, ts, text }) {
  const response = await fetch(`${slack}/chat.postMessage`, {
    method: 'POST',
    headers: { 'content-type': 'application/json; charset=utf-8', authorization: `Bearer ${process.env.SLACK_BOT_TOKEN}` },
    body: JSON.stringify({ channel, thread_ts: ts, text: `You said: ${text}` }),
  });
  if (response.status === 429) throw new NothingHappened('Slack limits the rate');
  const result = await response.json();
  if (!result.ok) throw new NothingHappened(`Slack refused the message: ${result.error}`);
  return { ts: result.ts };
}

/** Whether Slack signed the request, within the last five minutes. */
function isFromSlack(headers, body) {
  const { 'x-slack-request-timestamp': timestamp = '', 'x-slack-signature': signature = '' } = headers;
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) < 300)) return false;
  const hmac = createHmac('sha256', process.env.SLACK_SIGNING_SECRET).update(`v0:${timestamp}:${body}`).digest('hex');
  const [expected, given] = [Buffer.from(`v0=${hmac}`), Buffer.from(signature)];
  return expected.length === given.length && timingSafeEqual(expected, given);
}
