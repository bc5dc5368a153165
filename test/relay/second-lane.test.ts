import { expect, test } from 'vitest';
import { Dispatcher } from '../../src/relay/dispatch/dispatcher.ts';
import type { KeyDecisions } from '../../src/relay/dispatch/key-decisions.ts';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import type { EventOutcome } from '../../src/relay/event/outcome.ts';
import type { ClaimReport, Lane } from '../../src/relay/lane/lane.ts';
import { type SettleEntry, toTransition } from '../../src/relay/settle/transition.ts';
import { until } from '../support/wait.ts';

/**
 * A lane without claims: events are pushed in order of seq, as a replication stream does it. It sees every event once and
 * keeps what is not delivered, so its memory of decisions is a list of its own.
 */
class StreamLane implements Lane, KeyDecisions {
  dispatcher: Dispatcher | undefined;
  readonly settledSeqs: string[] = [];
  #stream: ClaimedEvent[] = [];
  readonly #returned: ClaimedEvent[] = [];

  push(...events: ClaimedEvent[]): void {
    this.#stream.push(...events);
  }

  async start(): Promise<void> {
    await this.claimOnce();
  }

  async stop(): Promise<void> {
    this.#stream = [];
  }

  async claimOnce(): Promise<ClaimReport> {
    const events = [...this.#returned.splice(0), ...this.#stream.splice(0)];
    this.dispatcher?.accept(events.toSorted((a, b) => Number(a.seq) - Number(b.seq)));
    return { claimed: events.length, exhausted: true, pauseMs: undefined };
  }

  settled({ event, kind }: SettleEntry): void {
    if (kind === 'delivered') this.settledSeqs.push(event.seq);
    else this.#returned.push(event);
  }

  forget(): void {
    this.#returned.length = 0;
  }

  returning(): void {}

  shelving(): void {}

  mustReturn(): boolean {
    return false;
  }

  shelvedBefore(): undefined {}
}

test('the dispatcher delivers from a lane that knows no claims', async () => {
  const lane = new StreamLane();
  const delivered: string[] = [];
  const failing = new Set(['2']);
  lane.dispatcher = new Dispatcher({
    slots: new Map([['default', 10]]),
    bufferTarget: () => 100,
    decisions: lane,
    planner: { plansAhead: false, plan: () => {}, takesSlot: () => true, runMax: () => 1, limitedHandlerOf: undefined },
    payloads: { load: () => {}, release: () => {} },
    mayStart: () => true,
    deliver: (event, done) => {
      setImmediate(() => {
        if (failing.delete(event.seq)) {
          done({ kind: 'failed', done: [], errors: [] });
        } else {
          delivered.push(event.seq);
          done({ kind: 'delivered', targets: ['t'] });
        }
      });
    },
    deliverAlone: () => {},
    settle: (event: ClaimedEvent, outcome: EventOutcome) => {
      lane.settled(toTransition(event, outcome, { retry: { delaysMs: [0] }, poison: 'skip' }));
      return undefined;
    },
  });
  const event = (seq: string, key: string | null) =>
    ({
      seq,
      key,
      queue: 'default',
      attempts: 0,
      id: seq,
      payloadJson: 'null',
      shelved: [],
      takeovers: 0,
    }) as unknown as ClaimedEvent;
  lane.push(event('1', 'a'), event('2', 'a'), event('3', 'b'), event('4', 'a'), event('5', null));
  await lane.start();
  await until(() => lane.dispatcher?.inFlight === 0, { what: 'the first round has ended' });
  expect(lane.settledSeqs.toSorted()).toEqual(['1', '3', '5']);
  await lane.claimOnce();
  await until(() => lane.settledSeqs.length === 5, { what: 'all are settled' });
  // What failed is not passed by the next event of its key.
  expect(delivered.filter((seq) => ['1', '2', '4'].includes(seq))).toEqual(['1', '2', '4']);
});
