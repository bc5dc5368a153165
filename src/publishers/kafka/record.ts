import type { Message } from '../publisher.ts';
import type { KafkaRecord } from './port.ts';

/** The header that carries the event's id: what consumers deduplicate by. */
const eventIdHeader = 'event-id';
const contentTypeHeader = 'content-type';
const batchHeadBytes = 61;

/** The record of a message, without a partition yet; or why Kafka can never take it. */
export function toRecord(message: Message, bytesMost: number, messageBytesMax: number): KafkaRecord | string {
  const { topic, key, body } = message;
  if (!isTopicName(topic)) {
    const rule = 'it must have 1 to 249 letters, digits, dots, underscores or hyphens, and be neither . nor ..';
    return `INVALID_TOPIC_EXCEPTION: ${JSON.stringify(String(topic).slice(0, 260))} is not a topic name: ${rule}.`;
  }
  if (key !== null && typeof key !== 'string') return `The key must be a text or null, not ${typeof key}.`;
  for (const name in message.headers) {
    const value: unknown = message.headers[name];
    if (typeof value !== 'string')
      return `The header ${name} must be a text, not ${value === null ? null : typeof value}.`;
  }
  const headers = { [contentTypeHeader]: message.contentType, ...message.headers, [eventIdHeader]: message.eventId };
  const value = typeof body === 'string' ? body : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  // Counting exactly takes as long as all the rest of this, and most are nowhere near the limit.
  if (bytesMost > messageBytesMax) {
    const bytes = recordBytes({ key, value, headers });
    if (bytes > messageBytesMax) {
      return `MESSAGE_TOO_LARGE: the record has ${bytes} bytes, and messageBytesMax is ${messageBytesMax} (on the broker: max.message.bytes).`;
    }
  }
  return { topic, partition: undefined, key, value, headers };
}

/** Certainly not less than what the record of this message has: ten bytes for each length, and our two headers. */
export function bytesAtMost({ bytes, headers, contentType }: Message): number {
  let headerCount = 2;
  for (const _name in headers) headerCount++;
  return bytes + batchHeadBytes + 100 + 10 * headerCount + 3 * contentType.length;
}

let lastGoodTopic = '';

function isTopicName(topic: unknown): boolean {
  if (topic === lastGoodTopic && topic !== '') return true;
  const isGood = matchesTopicName(topic);
  if (isGood) lastGoodTopic = topic as string;
  return isGood;
}

function matchesTopicName(topic: unknown): boolean {
  return typeof topic === 'string' && /^[a-zA-Z0-9._-]{1,249}$/.test(topic) && topic !== '.' && topic !== '..';
}

/** As the broker counts it against max.message.bytes: the record as the only one of its batch, without compression. */
export function recordBytes({ key, value, headers }: Pick<KafkaRecord, 'key' | 'value' | 'headers'>): number {
  const names = Object.keys(headers);
  // One byte each: attributes, difference of time, difference of offset, and the length of a key that is not there.
  let bytes = 3 + (key === null ? 1 : textBytes(key)) + textBytes(value) + varintBytes(names.length);
  for (const name of names) bytes += textBytes(name) + textBytes(headers[name] as string);
  return batchHeadBytes + varintBytes(bytes) + bytes;
}

function textBytes(text: string | Buffer): number {
  const bytes = Buffer.byteLength(text);
  return varintBytes(bytes) + bytes;
}

/** Kafka's varints have the sign in the lowest bit and seven bits in a byte. */
function varintBytes(number: number): number {
  if (number < 0x40) return 1;
  if (number < 0x2000) return 2;
  if (number < 0x100000) return 3;
  return number < 0x8000000 ? 4 : 5;
}
