// Digests of length-prefixed parts, as the ledger computes them, and random ids.

import { createHash, randomBytes } from 'node:crypto';

/** The SHA-256 of length-prefixed parts: two different lists never collide through their separators. */
function digestOf(parts: string[]): string {
  const hash = createHash('sha256');
  for (const part of parts) {
    const bytes = Buffer.from(part, 'utf8');
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(bytes.length));
    hash.update(length).update(bytes);
  }
  return hash.digest('hex');
}

/** The index of a claim's key. */
export function claimIndex(tenant: string, route: string, key: string): string {
  return digestOf(['claim', tenant, route, key]);
}

/** The index of a mark's key. */
export function markIndex(key: string): string {
  return digestOf(['mark', key]);
}

/** For callers that do not compare requests. */
export const NO_FINGERPRINT = '0'.repeat(64);

/** The fingerprint that the claim API stores for a caller's text. */
export function fingerprintOf(text: string): string {
  return digestOf(['api', text]);
}

/** The nonce that the claim API stores for a caller's text. */
export function nonceOf(text: string): string {
  return digestOf(['nonce', text]).slice(0, 32);
}

/** Sixteen random bytes, for a nonce or token. */
export function randomId(): string {
  return randomBytes(16).toString('hex');
}
