/**
 * The partition of a key as Kafka's own Java client chooses it (murmur2), so that topics written by different programs
 * are partitioned alike.
 */
export function partitionOfKey(key: string, partitionCount: number): number {
  return (murmur2(Buffer.from(key)) & 0x7fffffff) % partitionCount;
}

const multiplier = 0x5bd1e995;

function murmur2(bytes: Buffer): number {
  const { length } = bytes;
  let hash = 0x9747b28c ^ length;
  const wholeWords = length & ~3;
  for (let at = 0; at < wholeWords; at += 4) {
    let word = Math.imul(bytes.readInt32LE(at), multiplier);
    word ^= word >>> 24;
    hash = Math.imul(hash, multiplier) ^ Math.imul(word, multiplier);
  }
  if (length > wholeWords) {
    let rest = 0;
    for (let at = length - 1; at >= wholeWords; at--) rest = (rest << 8) | (bytes[at] as number);
    hash = Math.imul(hash ^ rest, multiplier);
  }
  hash = Math.imul(hash ^ (hash >>> 13), multiplier);
  return hash ^ (hash >>> 15);
}
