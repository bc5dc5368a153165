import { describe, expect, it } from 'vitest';
import type { DeliveredEvent } from '../../src/relay/delivered-event.ts';
import { OutageJudge } from '../../src/relay/outage-judge.ts';
import type { PendingMessage } from '../../src/relay/pending-message.ts';

let seq = 0;
function message(key: string | null, topic = 'orders'): PendingMessage {
  const leg = { target: 'd', to: 'd', topic, key, headers: undefined, exchange: undefined };
  const event = { seq: String(++seq) } as DeliveredEvent;
  const state = { part: undefined, message: undefined, isBeingWritten: false, failure: undefined };
  return { key, event, leg, done: () => {}, ...state };
}

describe('OutageJudge', () => {
  it('takes the third failure of an event for its own, if others got through in between', () => {
    const judge = new OutageJudge();
    const bad = message('bad');
    expect(judge.failed([bad])).toEqual(['new']);
    judge.succeeded([message('good')]);
    expect(judge.failed([bad])).toEqual(['new']);
    judge.succeeded([message('good')]);
    expect(judge.failed([bad])).toEqual(['own']);
  });

  it('also when it is the last one left, but never if nothing got through since its first failure', () => {
    const judge = new OutageJudge();
    const bad = message('bad');
    for (let n = 0; n < 10; n++) expect(judge.failed([bad])).toEqual([n === 0 ? 'new' : 'again']);
    judge.succeeded([message('good')]);
    expect(judge.failed([bad])).toEqual(['new']);
    expect(judge.failed([bad])).toEqual(['own']);
  });

  it('forgets a key that got through', () => {
    const judge = new OutageJudge();
    const bad = message('bad');
    for (let n = 0; n < 10; n++) {
      judge.failed([bad]);
      judge.succeeded([bad]);
      judge.succeeded([message('good', 'other')]);
    }
    expect(judge.failed([bad])).toEqual(['new']);
  });

  it('knows a topic of which every event fails, also for events that it has not seen', () => {
    const judge = new OutageJudge();
    for (let n = 0; n < 2; n++) {
      expect(judge.failed([message(`a${n}`, 'down'), message(`b${n}`, 'down')])).toEqual(['new', 'new']);
      judge.succeeded([message('good', 'up')]);
    }
    expect(judge.failed([message('c', 'down'), message(null, 'down')])).toEqual(['own', 'own']);
    judge.succeeded([message('d', 'down')]);
    expect(judge.failed([message('e', 'down')])).toEqual(['new']);
  });

  it('takes three different events in a row for an outage, and not one event three times', () => {
    const judge = new OutageJudge();
    for (let n = 0; n < 5; n++) judge.failed([message('a')]);
    expect(judge.manyFailed).toBe(false);
    judge.failed([message('b'), message('c')]);
    expect(judge.manyFailed).toBe(true);
    judge.succeeded([message('d')]);
    expect(judge.manyFailed).toBe(false);
  });

  it('prefers those that have not failed for a trial, and then those of other topics', () => {
    const judge = new OutageJudge();
    judge.failed([message('a', 'down')]);
    const candidates = [message('a', 'down'), message('b', 'down'), message('c', 'up')];
    expect(candidates.map((each) => judge.suspicionOf(each))).toEqual([2, 1, 0]);
  });
});
