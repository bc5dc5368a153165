import { describe, expect, test } from 'vitest';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import type { EventOutcome } from '../../src/relay/event/outcome.ts';
import { delayOf, type TransitionOptions, toTransition } from '../../src/relay/settle/transition.ts';

const event = { seq: '7', attempts: 1, id: 'e7' } as ClaimedEvent;
const options: TransitionOptions = { retry: { delaysMs: [10, 20] }, poison: 'skip' };
const errors = [{ target: 'a', code: 'X', error: 'no' }];
const done = ['b'];

const outcomes: Record<EventOutcome['kind'], EventOutcome> = {
  delivered: { kind: 'delivered', targets: ['a', 'b'] },
  failed: { kind: 'failed', done, errors, owed: ['a'] },
  rejected: { kind: 'rejected', reason: 'rejected', done, errors },
  unavailable: { kind: 'unavailable', done, waitsFor: ['a'] },
  released: { kind: 'released', done, delayMs: 5 },
};

describe('the outcome of an event', () => {
  test.each([
    ['delivered', { settlement: { seq: '7', targets: ['a', 'b'] } }],
    ['failed', { failure: { seq: '7', attempts: 1, transition: 'retry', delayMs: 20, done, errors, owed: ['a'] } }],
    ['rejected', { failure: { seq: '7', attempts: 1, transition: 'dead_letter', reason: 'rejected', done, errors } }],
    ['unavailable', { failure: { seq: '7', attempts: 1, transition: 'shelve', done, waitsFor: ['a'] } }],
    ['released', { failure: { seq: '7', attempts: 1, transition: 'release', done, delayMs: 5 } }],
  ] as const)('%s has one transition, and keeps its word', (kind, transition) => {
    const reported = kind === 'rejected' ? 'deadLettered' : kind;
    expect(toTransition(event, outcomes[kind], options)).toMatchObject({ event, kind: reported, ...transition });
  });

  test('failed for the last time is a dead letter, because its attempts are exhausted', () => {
    const last = { ...event, attempts: 2 };
    const entry = toTransition(last, outcomes.failed, options);
    expect(entry).toMatchObject({
      kind: 'deadLettered',
      failure: { transition: 'dead_letter', reason: 'exhausted', owed: ['a'] },
    });
    expect(delayOf(entry)).toBeUndefined();
  });

  test('failed waits as long as the receiver asked for, if that is longer', () => {
    const entry = toTransition(event, { ...outcomes.failed, retryAfterMs: 500 } as EventOutcome, options);
    expect(delayOf(entry)).toBe(500);
  });

  test.each([
    ['the longest delay of the policies that failed', [{ delaysMs: [0, 700] }, undefined, { delaysMs: [0, 300] }], 700],
    ["the relay's for targets without a policy", [{ delaysMs: [0, 0] }, undefined], 20],
    ['no more attempts, if one of them has none left', [{ delaysMs: [0] }, undefined], undefined],
  ])('failed at several targets: %s', (_name, retries, delayMs) => {
    const entry = toTransition(event, { ...outcomes.failed, retries } as EventOutcome, options);
    expect(entry.kind).toBe(delayMs === undefined ? 'deadLettered' : 'failed');
    expect(delayOf(entry)).toBe(delayMs);
  });

  test('rejected blocks its key with poison: block, unless the event was deleted', () => {
    const blocking: TransitionOptions = { ...options, poison: 'block' };
    expect(toTransition(event, outcomes.rejected, blocking)).toMatchObject({ failure: { transition: 'block' } });
    expect(toTransition({ ...event, id: '' }, outcomes.rejected, blocking)).toMatchObject({
      failure: { transition: 'dead_letter' },
    });
  });
});
