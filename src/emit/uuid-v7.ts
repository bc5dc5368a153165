import { randomFillSync } from 'node:crypto';

const pool = new Uint8Array(4_096);
let used = pool.length;

/** A time-ordered UUID (version 7, RFC 9562): ids made one after the other are neighbours in the index. */
export function uuidV7(now: number = Date.now()): string {
  if (used + 10 > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const time = Math.floor(now).toString(16).padStart(12, '0');
  const random = pool.subarray(used, used + 10);
  used += 10;
  random[0] = ((random[0] as number) & 0x0f) | 0x70;
  random[2] = ((random[2] as number) & 0x3f) | 0x80;
  const tail = Buffer.from(random.buffer, random.byteOffset, 10).toString('hex');
  return `${time.slice(0, 8)}-${time.slice(8)}-${tail.slice(0, 4)}-${tail.slice(4, 8)}-${tail.slice(8)}`;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function isUuid(text: unknown): text is string {
  return typeof text === 'string' && uuid.test(text);
}
