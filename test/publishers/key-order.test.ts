import { describe, expect, it } from 'vitest';
import { behindFailed, sendInKeyOrder } from '../../src/publishers/key-order.ts';
import { delivered, type Message, type PublishOutcome } from '../../src/publishers/publisher.ts';
import { deferred } from '../support/wait.ts';

function message(eventId: string, key: string | null): Message {
  const rest = {
    eventType: 'order.created',
    topic: 'orders',
    headers: {},
    contentType: 'application/json',
    body: '{}',
  };
  return { eventId, deduplicationId: eventId, key, ...rest, occurredAtMs: 0, bytes: 2 };
}

/** A broker that answers when the test says so. */
function broker() {
  const sent: string[] = [];
  const answers = new Map<string, (outcome: PublishOutcome) => void>();
  const failures = new Map<string, (error: unknown) => void>();
  const send = ({ eventId }: Message) => {
    const answer = deferred<PublishOutcome>();
    sent.push(eventId);
    answers.set(eventId, answer.resolve);
    failures.set(eventId, answer.reject);
    return answer.promise;
  };
  const answer = async (id: string, outcome: PublishOutcome = delivered) => {
    answers.get(id)?.(outcome);
    await new Promise(setImmediate);
  };
  const fail = async (id: string, error: unknown) => {
    failures.get(id)?.(error);
    await new Promise(setImmediate);
  };
  return { sent, send, answer, fail };
}

describe('sendInKeyOrder', () => {
  it('sends one message of a key at a time, and those without a key side by side', async () => {
    const { sent, send, answer } = broker();
    const batch = [message('a1', 'a'), message('x', null), message('a2', 'a'), message('b1', 'b'), message('y', null)];
    const done = sendInKeyOrder(batch, 100, send);
    expect(sent).toEqual(['a1', 'x', 'b1', 'y']);
    await answer('a1');
    expect(sent).toEqual(['a1', 'x', 'b1', 'y', 'a2']);
    for (const id of ['y', 'x', 'a2', 'b1']) await answer(id);
    expect(await done).toEqual(batch.map(() => delivered));
  });

  it('does not send what is behind a failure, and continues with other keys', async () => {
    const { sent, send, answer } = broker();
    const batch = [message('a1', 'a'), message('a2', 'a'), message('b1', 'b'), message('a3', 'a'), message('b2', 'b')];
    const done = sendInKeyOrder(batch, 100, send);
    const rejected: PublishOutcome = { kind: 'rejected', reason: 'too large' };
    await answer('a1', rejected);
    await answer('b1');
    await answer('b2');
    expect(sent).toEqual(['a1', 'b1', 'b2']);
    expect(await done).toEqual([rejected, behindFailed, delivered, behindFailed, delivered]);
  });

  it('keeps the limit, and the next key takes the place of one that failed', async () => {
    const { sent, send, answer } = broker();
    const batch = ['a', 'b', 'c', 'a', 'd'].map((key, index) => message(`${key}${index}`, key));
    const done = sendInKeyOrder(batch, 2, send);
    expect(sent).toEqual(['a0', 'b1']);
    await answer('a0', { kind: 'failed', reason: 'no' });
    expect(sent).toEqual(['a0', 'b1', 'c2']);
    await answer('c2');
    expect(sent).toEqual(['a0', 'b1', 'c2', 'd4']);
    await answer('d4');
    await answer('b1');
    expect((await done).map(({ kind }) => kind)).toEqual(['failed', 'delivered', 'delivered', 'released', 'delivered']);
  });

  it('takes what send throws for an outage, at once or later', async () => {
    const { send, fail } = broker();
    const batch = [message('a1', 'a'), message('a2', 'a'), message('b1', 'b')];
    const done = sendInKeyOrder(batch, 100, (one) => {
      if (one.eventId === 'b1') throw new Error('at once');
      return send(one);
    });
    await fail('a1', new Error('later'));
    expect(await done).toEqual([
      { kind: 'unavailable', reason: 'later' },
      behindFailed,
      { kind: 'unavailable', reason: 'at once' },
    ]);
  });

  it('answers an empty batch', async () => {
    expect(await sendInKeyOrder([], 10, broker().send)).toEqual([]);
  });
});
