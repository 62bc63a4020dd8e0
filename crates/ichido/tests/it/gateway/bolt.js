// A Slack bot as its authors write it, with @slack/bolt: each event that it handles is a line in a file.
//
//     node bolt.js EFFECTS before|after
//
// `before`: it answers Slack when the work is done (processBeforeResponse, as on Lambda). `after`: it answers first.
// What an event's text says happens after the effect: `wait` (until EFFECTS.go is there), `throw`, `die`.
const fs = require('node:fs');
const { App, HTTPReceiver } = require('@slack/bolt');

const [effects, when] = process.argv.slice(2);
const receiver = new HTTPReceiver({
  signingSecret: 'bolt-signing-secret',
  processBeforeResponse: when === 'before',
  logLevel: 'error',
});
const app = new App({
  receiver,
  logLevel: 'error',
  authorize: async () => ({ botToken: 'xoxb-test', botId: 'B0BOT', botUserId: 'U0BOT' }),
});

async function handle({ event, body, context }) {
  const line = { event_id: body.event_id, type: event.type, retry: context.retryNum ?? null };
  fs.appendFileSync(effects, `${JSON.stringify(line)}\n`);
  const text = event.text ?? '';
  if (text.includes('wait')) {
    while (!fs.existsSync(`${effects}.go`)) await new Promise((resolve) => setTimeout(resolve, 10));
  }
  if (text.includes('throw')) throw new Error('on purpose');
  if (text.includes('die')) process.exit(1);
}

app.event('file_shared', handle);
app.event('message', handle);
app.error(async (error) => {
  throw error;
});

app.start({ port: 0, host: '127.0.0.1' }).then((server) => console.log(server.address().port));
