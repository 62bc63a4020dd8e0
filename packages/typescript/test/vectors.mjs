// Reads the shared vectors, and converts between their form and that of this package.
import { readFileSync } from 'node:fs';

/** A file of shared vectors; `path` is relative to the repository. */
export function read(path) {
  return JSON.parse(readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8'));
}

export const items = () => read('packages/vectors/dynamodb-items.json');

/** DynamoDB JSON, with bytes as base64. */
export function itemToJson(item) {
  return mapValues(item, (value) => {
    if ('B' in value) return { B: Buffer.from(value.B).toString('base64') };
    return 'M' in value ? { M: itemToJson(value.M) } : value;
  });
}

export function itemFromJson(item) {
  return mapValues(item, (value) => {
    if ('B' in value) return { B: Uint8Array.from(Buffer.from(value.B, 'base64')) };
    return 'M' in value ? { M: itemFromJson(value.M) } : value;
  });
}

export function recordFromJson({ tenant, route, key, caller, state, ...rest }) {
  const record = mapKeys(rest);
  return { key: { tenant, route, text: key }, ...(caller === null ? {} : { caller }), ...record, state: stateFromJson(state) };
}

export function actionFromJson(action) {
  const [[kind, value]] = Object.entries(action);
  if (kind === 'renew') return { kind, leaseMs: value.lease_ms };
  if (kind === 'complete') return { kind, outcome: outcomeFromJson(value) };
  return { kind, ...value };
}

function stateFromJson(state) {
  switch (state.kind) {
    case 'running':
      return { kind: 'running' };
    case 'in-doubt': {
      const reason = state.reason === 'declared' ? { kind: 'declared', text: state.text } : { kind: state.reason };
      return { kind: 'in-doubt', since: state.since, reason };
    }
    default:
      return { kind: 'done', outcome: outcomeFromJson(state), completedAt: state.completed_at };
  }
}

function outcomeFromJson({ outcome, tombstone }) {
  return tombstone === undefined ? { kept: Uint8Array.from(Buffer.from(outcome, 'base64')) } : { tombstone };
}

function mapValues(object, change) {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));
}

/** snake_case to camelCase, at the top level. */
function mapKeys(object) {
  const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [camel(name), value]));
}
