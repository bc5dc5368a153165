import { randomFillSync } from 'node:crypto';

const pool = new Uint8Array(4_096);
let used = pool.length;
let lastMs = 0;
let counter = 0;

/**
 * A time-ordered UUID (version 7, RFC 9562): ids made one after the other in this process sort in that order, also
 * within a millisecond and when the clock is set back, so they are neighbours in the index. The twelve bits after the
 * time are a counter that starts at random in its lower half; the other 62 are random.
 */
export function uuidV7(now: number = Date.now()): string {
  const random = randomBytes();
  if (now > lastMs) {
    lastMs = Math.floor(now);
    counter = (((random[0] as number) << 8) | (random[1] as number)) & 0x7ff;
  } else if (++counter > 0xfff) {
    lastMs++;
    counter = 0;
  }
  random[0] = 0x70 | (counter >> 8);
  random[1] = counter & 0xff;
  random[2] = ((random[2] as number) & 0x3f) | 0x80;
  const time = lastMs.toString(16).padStart(12, '0');
  const tail = Buffer.from(random.buffer, random.byteOffset, random.length).toString('hex');
  return `${time.slice(0, 8)}-${time.slice(8)}-${tail.slice(0, 4)}-${tail.slice(4, 8)}-${tail.slice(8)}`;
}

/** Ten random bytes, from a supply: asking the system for each id would cost more than the rest of it. */
function randomBytes(): Uint8Array {
  if (used + 10 > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += 10;
  return pool.subarray(used - 10, used);
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function isUuid(text: unknown): text is string {
  return typeof text === 'string' && uuid.test(text);
}
