// A straightforward implementation in Node for comparison: ids of the scheme `sorted`, totals in a Map under joined keys, money in floats.
// Prints seconds, peak memory in MB, and the results. The rows are those of rows.rs.
import crypto from 'node:crypto'

const MODELS = [
  ['openai', 'gpt-4o-mini'],
  ['anthropic', 'claude-3-5-sonnet-20241022'],
  ['openai', 'gpt-4.1'],
  ['google', 'gemini-2.0-flash'],
  ['bedrock', 'anthropic.claude-3-5-sonnet-20241022-v2:0'],
]
const RAW = [
  'langgenius/openai/openai',
  'langgenius/anthropic/anthropic',
  'langgenius/openai/openai',
  'langgenius/gemini/google',
  'langgenius/bedrock/bedrock',
]
const START = 1761955200
const name = (kind, number) => `${kind}-0860-46e2-a789-${number.toString(16).padStart(12, '0')}`

function row(number, count, raw) {
  const drawn = Math.imul(number, 2654435761) >>> 8
  const user = drawn % 200
  const model = (user + ((drawn >>> 9) % 2)) % 5
  const seconds = START + Math.floor((number * 30 * 86400) / count)
  return {
    date: new Date(seconds * 1000).toISOString().slice(0, 10),
    user_id: name('17e91503', user),
    app_id: name('dc279ec4', user % 20),
    provider: raw ? RAW[model] : MODELS[model][0],
    model: MODELS[model][1],
    input: drawn % 3000,
    output: drawn % 700,
    price: (((drawn % 900000) + 1) / 1e7).toFixed(7),
  }
}

function sourceEventId(params) {
  const sourceData = [params.usage_date, params.provider, params.model, params.app_id, params.user_id].sort().join('|')
  const hash = crypto.createHash('sha256').update(sourceData).digest('hex')
  return `dify-${params.usage_date}-${params.provider}-${params.model}-${hash.slice(0, 12)}`
}

function report(started, computed) {
  const seconds = (performance.now() - started) / 1000
  console.log(`${seconds} ${process.resourceUsage().maxRSS / 1024} ${computed}`)
}

function ids(count) {
  const rows = Array.from({ length: 1000 }, (_, number) => row(number, 1000000, true))
  let last = 0
  const started = performance.now()
  for (let number = 0; number < count; number++) {
    const { provider, model, app_id, user_id } = rows[number % 1000]
    const id = sourceEventId({ usage_date: '2025-11-29', provider, model, app_id, user_id })
    last += id.charCodeAt(id.length - 1)
  }
  report(started, String(last))
}

function aggregate(count) {
  const rows = Array.from({ length: count }, (_, number) => row(number, count, false))
  const started = performance.now()
  const sums = new Map()
  for (const { date, user_id, app_id, provider, model, input, output, price } of rows) {
    const key = `${date}|${user_id}|${app_id}|${provider}|${model}`
    const sum = sums.get(key) || { input: 0, output: 0, price: 0, count: 0 }
    sum.input += input
    sum.output += output
    sum.price += Number.parseFloat(price)
    sum.count += 1
    sums.set(key, sum)
  }
  const records = []
  for (const [key, sum] of sums) {
    const [date, user_id, app_id, provider, model] = key.split('|')
    records.push({ date, user_id, app_id, provider, model, ...sum, price: sum.price.toFixed(7) })
  }
  records.sort((a, b) => a.date.localeCompare(b.date) || a.user_id.localeCompare(b.user_id))
  let tokens = 0
  let cost = 0
  for (const record of records) {
    tokens += record.input + record.output
    cost += Number.parseFloat(record.price)
  }
  report(started, `${records.length} ${tokens} ${cost}`)
}

const [what, count] = process.argv.slice(2)
;({ ids, aggregate })[what](Number(count))
