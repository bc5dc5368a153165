import { beforeEach, describe, expect, test, vi } from 'vitest';
import { resolveHandlers } from '../../src/relay/deliver/handler-options.ts';
import { Planner } from '../../src/relay/deliver/planner.ts';
import { Dispatcher, type DispatcherOptions } from '../../src/relay/dispatch/dispatcher.ts';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import type { EventOutcome } from '../../src/relay/event/outcome.ts';

const claimed = (seq: string, takeovers = 0): ClaimedEvent =>
  ({
    seq,
    key: seq,
    queue: 'default',
    attempts: 0,
    takenOver: false,
    takeovers,
    done: [],
    owed: [],
    replayId: null,
    id: `id-${seq}`,
    aggregateType: 'a',
    aggregateId: seq,
    type: 't',
    schemaVersion: 1,
    orderingKey: null,
    payloadJson: '{}',
    headersJson: '{}',
    createdAtMs: 0,
    shelved: [],
  }) as ClaimedEvent;

const handlers = resolveHandlers({ t: { first: async () => {} } } as never, {
  deliverTimeoutMs: 1_000,
  retry: {} as never,
});

const prime = (seq: string) => claimed(seq, 4);

describe('trials of prime suspects', () => {
  const ends = new Map<string, (outcome: EventOutcome) => void>();
  const settled: [seq: string, kind: string][] = [];
  const started = () => [...ends.keys()];
  const end = (seq: string) => ends.get(seq)?.({ kind: 'delivered' } as EventOutcome);
  let dispatcher: Dispatcher;

  beforeEach(() => {
    vi.useFakeTimers();
    ends.clear();
    settled.length = 0;
    const deliver: DispatcherOptions['deliver'] = (event, done) => void ends.set(event.seq, done);
    dispatcher = new Dispatcher({
      now: () => Date.now(),
      slots: new Map([['default', 10]]),
      bufferTarget: () => 100,
      decisions: { mustReturn: () => false, shelvedBefore: () => undefined, returning() {}, shelving() {} } as never,
      mayStart: () => true,
      settle: (event: ClaimedEvent, outcome: EventOutcome) => void settled.push([event.seq, outcome.kind]),
      planner: new Planner({ handlers, destinations: new Map(), route: () => null, noHandler: 'fail' } as never),
      payloads: { load() {}, release() {} } as never,
      deliver,
      deliverAlone: deliver,
    } as never);
    return () => void vi.useRealTimers();
  });

  test('that wait for a long delivery stop the relay once, not once for each', () => {
    dispatcher.accept([claimed('1')]);
    dispatcher.accept([prime('2'), prime('3'), prime('4'), claimed('5')]);
    expect(started()).toEqual(['1']);
    vi.advanceTimersByTime(5_000);
    expect(started()).toEqual(['1', '5']);
    expect(settled).toEqual(['2', '3', '4'].map((seq) => [seq, 'released']));
  });

  test('leave others as much time as they took', () => {
    dispatcher.accept([prime('1'), prime('2'), claimed('3')]);
    expect(started()).toEqual(['1']);
    vi.advanceTimersByTime(10_000);
    end('1');
    dispatcher.accept([claimed('4')]);
    expect(started()).toEqual(['1', '3', '4']);
  });

  test('follow each other at once where nothing else waits', () => {
    dispatcher.accept([prime('1'), prime('2')]);
    vi.advanceTimersByTime(10_000);
    end('1');
    expect(started()).toEqual(['1', '2']);
  });

  test('go on when the others have had their time', () => {
    dispatcher.accept([prime('1'), prime('2'), claimed('3')]);
    vi.advanceTimersByTime(1_000);
    end('1');
    dispatcher.accept([claimed('4')]);
    expect(started()).toEqual(['1', '3', '4']);
    vi.advanceTimersByTime(1_000);
    dispatcher.accept([claimed('5')]);
    expect(started()).not.toContain('5');
    end('3');
    end('4');
    expect(started()).toEqual(['1', '3', '4', '2']);
  });
});
