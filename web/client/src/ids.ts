/** Ids that a client makes: final from the beginning, so a repetition is the same thing. */

const CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz";

/** Return `prefix` and 26 characters that sort by time, as the server's own ids do. */
export function newId(prefix: string, nowMs = Date.now()): string {
  let left = BigInt(nowMs) << 80n;
  for (const [at, byte] of crypto.getRandomValues(new Uint8Array(10)).entries()) {
    left |= BigInt(byte) << BigInt(8 * at);
  }
  let id = "";
  for (let n = 0; n < 26; n++, left >>= 5n) id = CROCKFORD[Number(left & 31n)] + id;
  return prefix + id;
}
