import { randomFillSync } from 'node:crypto';

const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));
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
  if (now > lastMs) {
    lastMs = Math.floor(now);
    counter = ((randomByte() << 8) | randomByte()) & 0x7ff;
  } else if (++counter > 0xfff) {
    lastMs++;
    counter = 0;
  }
  const time = lastMs.toString(16).padStart(12, '0');
  const third = (0x7000 | counter).toString(16);
  const fourth = hex[(randomByte() & 0x3f) | 0x80] as string;
  return `${time.slice(0, 8)}-${time.slice(8)}-${third}-${fourth}${randomHex(1)}-${randomHex(6)}`;
}

function randomHex(bytes: number): string {
  let text = '';
  for (let i = 0; i < bytes; i++) text += hex[randomByte()] as string;
  return text;
}

/** From a pool of 4 KB: asking the system for each id would take longer than everything else here. */
function randomByte(): number {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  return pool[used++] as number;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function isUuid(text: unknown): text is string {
  return typeof text === 'string' && uuid.test(text);
}
