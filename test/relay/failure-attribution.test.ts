import { describe, expect, it } from 'vitest';
import type { PublishOutcome } from '../../src/publishers/publisher.ts';
import { FailureAttribution, failedAlone } from '../../src/relay/deliver/destinations/failure-attribution.ts';
import type { PendingMessage } from '../../src/relay/deliver/destinations/pending-message.ts';
import type { DeliveredEvent } from '../../src/wire/delivered-event.ts';

let seq = 0;
function message(key: string | null, topic = 'orders'): PendingMessage {
  const leg = { target: 'd', to: 'd', topic, key, headers: undefined, exchange: undefined };
  const event = { seq: String(++seq) } as DeliveredEvent;
  const state = { part: undefined, message: undefined, isBeingWritten: false, failure: undefined };
  return { key, event, leg, done: () => {}, ...state };
}

const none = new Set<string>();
const away = (count: number): PublishOutcome[] =>
  Array.from({ length: count }, () => ({ kind: 'unavailable', reason: '' }));
const ok = (count: number): PublishOutcome[] => Array.from({ length: count }, () => ({ kind: 'delivered' }));

/** As a batch of which everything failed, while the destination is alive. */
const failed = (attribution: FailureAttribution, entries: PendingMessage[]) =>
  attribution.failed(entries, failedAlone(entries, away(entries.length)));

describe('FailureAttribution', () => {
  it('takes the third failure of an event for its own, if others got through in between', () => {
    const attribution = new FailureAttribution();
    const bad = message('bad');
    expect(failed(attribution, [bad])).toEqual(['new']);
    attribution.succeeded([message('good')]);
    expect(failed(attribution, [bad])).toEqual(['new']);
    attribution.succeeded([message('good')]);
    expect(failed(attribution, [bad])).toEqual(['own']);
  });

  it('also when it is the last one left, but never if nothing got through since its first failure', () => {
    const attribution = new FailureAttribution();
    const bad = message('bad');
    for (let n = 0; n < 10; n++) expect(failed(attribution, [bad])).toEqual([n === 0 ? 'new' : 'again']);
    attribution.succeeded([message('good')]);
    expect(failed(attribution, [bad])).toEqual(['new']);
    expect(failed(attribution, [bad])).toEqual(['own']);
  });

  it('forgets a key that got through', () => {
    const attribution = new FailureAttribution();
    const bad = message('bad');
    for (let n = 0; n < 10; n++) {
      failed(attribution, [bad]);
      attribution.succeeded([bad]);
      attribution.succeeded([message('good', 'other')]);
    }
    expect(failed(attribution, [bad])).toEqual(['new']);
  });

  it('knows a topic of which every event fails, also for events that it has not seen', () => {
    const attribution = new FailureAttribution();
    for (let n = 0; n < 2; n++) {
      expect(failed(attribution, [message(`a${n}`, 'down'), message(`b${n}`, 'down')])).toEqual(['new', 'new']);
      attribution.succeeded([message('good', 'up')]);
    }
    expect(failed(attribution, [message('c', 'down'), message(null, 'down')])).toEqual(['own', 'own']);
    attribution.succeeded([message('d', 'down')]);
    expect(failed(attribution, [message('e', 'down')])).toEqual(['new']);
  });

  it('takes three different events in a row for an outage, and not one event three times', () => {
    const attribution = new FailureAttribution();
    for (let n = 0; n < 5; n++) failed(attribution, [message('a')]);
    expect(attribution.manyFailed).toBe(false);
    failed(attribution, [message('b'), message('c')]);
    expect(attribution.manyFailed).toBe(true);
    attribution.succeeded([message('d')]);
    expect(attribution.manyFailed).toBe(false);
  });

  it('prefers those that have not failed for a trial, and then those of other topics', () => {
    const attribution = new FailureAttribution();
    failed(attribution, [message('a', 'down')]);
    const candidates = [message('a', 'down'), message('b', 'down'), message('c', 'up')];
    expect(candidates.map((each) => attribution.suspicionOf(each))).toEqual([2, 1, 0]);
  });

  it('counts nothing against an event that did not fail alone', () => {
    const attribution = new FailureAttribution();
    const bad = message('bad');
    for (let n = 0; n < 10; n++) {
      expect(attribution.failed([bad], none)).toEqual(['new']);
      attribution.succeeded([message('good')]);
    }
    expect(failed(attribution, [bad])).toEqual(['new']);
  });
});

describe('failedAlone', () => {
  const names = (entries: PendingMessage[], outcomes: PublishOutcome[]) => [...failedAlone(entries, outcomes)];

  it('names the only key that failed, and its topic if nothing of it got through', () => {
    expect(names([message('a')], away(1))).toEqual(['key a', 'part orders']);
    expect(names([message('a'), message('b')], [...away(1), ...ok(1)])).toEqual(['key a']);
    expect(names([message('a'), message('a')], away(2))).toEqual(['key a', 'part orders']);
  });

  it('names the first of several keys if more got through, and else none', () => {
    const entries = ['a', 'b', 'c', 'd', 'e'].map((key) => message(key));
    expect(names(entries, [...away(2), ...ok(3)])).toEqual(['key a']);
    expect(names(entries, [...away(3), ...ok(2)])).toEqual([]);
  });

  it('names a topic that failed as a whole, but not two of them', () => {
    const entries = [message('a', 'down'), message('b', 'down'), message('c', 'up')];
    expect(names(entries, [...away(2), ...ok(1)])).toEqual(['part down']);
    expect(names(entries, away(3))).toEqual([]);
  });
});
