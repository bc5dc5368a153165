import type { IncomingMessage } from '../wire/received-event.ts';
import { lowerCaseHeaders } from './message-headers.ts';
import type { RedisArgument } from './redis-link.ts';

/** An entry of a stream, as Redis replies with it. */
export interface StreamEntry {
  readonly id: string;
  /** Names and values in turn; `null` for an entry that was deleted from the stream. */
  readonly fields: readonly Buffer[] | null;
}

/** `null` when nothing came in time, otherwise one stream: in a list of its own in RESP 2, and not in RESP 3. */
export function entriesOfRead(reply: unknown): StreamEntry[] {
  if (!Array.isArray(reply)) return [];
  const [, entries] = Array.isArray(reply[0]) ? reply[0] : reply;
  return toEntries(entries);
}

/** Redis 6.2 claims deleted entries as `null`. */
export function toEntries(list: unknown): StreamEntry[] {
  const entries = list as (readonly [Buffer, readonly RedisArgument[] | null] | null)[];
  return entries.flatMap((entry) => (entry === null ? [] : { id: String(entry[0]), fields: entry[1] as Buffer[] }));
}

/** As the publisher writes it. */
export function toMessage(fields: readonly Buffer[]): IncomingMessage {
  const values = new Map<string, Buffer>();
  for (let index = 0; index + 1 < fields.length; index += 2) {
    values.set(String(fields[index]), fields[index + 1] as Buffer);
  }
  const headers = [...values].filter(([name]) => name.startsWith('header:'));
  const facts = { 'event-id': values.get('id'), 'event-type': values.get('type') };
  const given = Object.fromEntries(headers.map(([name, value]) => [name.slice('header:'.length), value]));
  return {
    body: values.get('body') ?? '',
    headers: { ...lowerCaseHeaders(facts), ...lowerCaseHeaders(given) },
    contentType: values.get('content-type')?.toString(),
    key: values.get('key')?.toString(),
  };
}
