import { randomBytes, randomUUID } from 'node:crypto';
import type { Message } from '../publishers/publisher.ts';

/**
 * A message for a publisher's tests: what is not given is made up, and `bytes` is counted.
 *
 * @example
 * import { testMessage } from 'postcommit/testing';
 *
 * const message = testMessage({ topic: 'orders', key: 'order:1', body: '{"total":3}' });
 */
export function testMessage(given: Partial<Omit<Message, 'bytes'>> & Pick<Message, 'topic'>): Message {
  const eventId = given.eventId ?? randomUUID();
  const message = {
    eventId,
    // As the relay makes them: the event's id is the first part only, and a second message is for another target.
    deduplicationId: `${eventId}.${randomBytes(8).toString('hex')}`,
    eventType: 'test.happened',
    key: null,
    headers: {},
    contentType: 'application/json',
    body: '{}',
    occurredAtMs: Date.now(),
    ...given,
  };
  return { ...message, bytes: countBytes(message) };
}

function countBytes({ body, key, headers }: Pick<Message, 'body' | 'key' | 'headers'>): number {
  const texts = [key ?? '', ...Object.entries(headers).flat()].map(String);
  return Buffer.byteLength(body) + texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
}
