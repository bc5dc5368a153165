import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PayloadLoader } from '../../src/relay/dispatch/payload-loader.ts';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import type { EventOutcome } from '../../src/relay/event/outcome.ts';
import { seededRandom } from '../support/random.ts';

const inFlightBytesMax = 64_000; // Half of it for payloads up to 2,000 bytes, half for larger ones.
const loadBytesMax = 100_000;

/** A loader, and a log whose events have these sizes. */
class Scene {
  now = 0;
  readonly loader: PayloadLoader;
  readonly sizes = new Map<string, number>();
  readonly loaded: ClaimedEvent[] = [];
  readonly failures = new Map<string, EventOutcome>();
  statements = 0;
  error: unknown;

  constructor() {
    this.loader = new PayloadLoader({
      inFlightBytesMax,
      loadBytesMax,
      now: () => this.now,
      load: async (seq, bytesMax) => {
        this.statements++;
        await Promise.resolve();
        if (this.error !== undefined) throw this.error;
        const bytes = this.sizes.get(seq);
        if (bytes === undefined) return undefined;
        if (bytes <= bytesMax) return { json: 'x'.repeat(bytes), bytes };
        // Stored as twice its text, as much JSON is.
        return { json: undefined, bytes: (2 * bytes) / 8 > bytesMax ? Math.floor((2 * bytes) / 8) : bytes };
      },
    });
  }

  load(size: number | undefined, seq = String(this.sizes.size + 1)): ClaimedEvent {
    if (size !== undefined) this.sizes.set(seq, size);
    const event = { seq, done: [] as readonly string[], id: seq } as Partial<ClaimedEvent> as ClaimedEvent;
    this.loader.load(event, (failure) => {
      if (failure === undefined) this.loaded.push(event);
      else this.failures.set(seq, failure);
    });
    return event;
  }

  release(event: ClaimedEvent): void {
    this.loaded.splice(this.loaded.indexOf(event), 1);
    this.loader.release(event);
  }

  async settled(): Promise<void> {
    for (let before = -1; before !== this.statements; ) {
      before = this.statements;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  get loadedSizes(): number[] {
    return this.loaded.map(({ seq }) => this.sizes.get(seq) as number);
  }
}

const sum = (numbers: readonly number[]) => numbers.reduce((total, n) => total + n, 0);

describe('PayloadLoader', () => {
  test('keeps to its budget, loads everything in the end, and counts what it holds', async () => {
    const { seed } = seededRandom();
    const size = fc.oneof(fc.integer({ min: 1, max: 2_000 }), fc.integer({ min: 2_001, max: 99_000 }));
    const step = fc.oneof(
      fc.record({ load: size }),
      fc.record({ release: fc.nat(50) }),
      fc.record({ cancel: fc.nat(50) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const scene = new Scene();
        let open: ClaimedEvent[] = [];
        const check = () => {
          expect(scene.loader.bytes).toBe(sum(scene.loadedSizes));
          const large = scene.loadedSizes.filter((bytes) => bytes > 2_000);
          const others = sum(scene.loadedSizes) - Math.max(0, ...scene.loadedSizes);
          expect(others).toBeLessThanOrEqual(inFlightBytesMax);
          if (large.some((bytes) => bytes > inFlightBytesMax / 2)) expect(large).toHaveLength(1);
          else expect(sum(scene.loadedSizes)).toBeLessThanOrEqual(inFlightBytesMax);
        };
        for (const each of steps) {
          if ('load' in each) open.push(scene.load(each.load));
          else if ('release' in each) {
            const event = scene.loaded[each.release % Math.max(1, scene.loaded.length)];
            if (event) scene.release(event);
            open = open.filter((other) => other !== event);
          } else {
            const event = open[each.cancel % Math.max(1, open.length)];
            if (event && !scene.loaded.includes(event)) scene.loader.release(event);
            if (event && !scene.loaded.includes(event)) open = open.filter((other) => other !== event);
          }
          await scene.settled();
          check();
        }
        while (scene.loaded.length > 0) {
          const event = scene.loaded[0] as ClaimedEvent;
          scene.release(event);
          open = open.filter((other) => other !== event);
          await scene.settled();
          check();
        }
        expect(open).toEqual([]);
        expect(scene.loader.bytes).toBe(0);
      }),
      { seed, numRuns: 200 },
    );
  });

  test('large payloads in use hold up large ones only, and are not passed by others of their kind', async () => {
    const scene = new Scene();
    const first = scene.load(30_000);
    scene.load(20_000);
    scene.load(2_500); // Would fit, and waits behind the one before.
    for (let n = 0; n < 16; n++) scene.load(2_000);
    scene.load(1_000); // The half for small ones is full.
    await scene.settled();
    expect(scene.loadedSizes).toEqual([30_000, ...Array.from({ length: 16 }, () => 2_000)]);
    scene.release(first);
    await scene.settled();
    expect(scene.loadedSizes.slice(-3)).toEqual([20_000, 2_500, 1_000]);
  });

  test('a payload over half of the budget is loaded once no other large one is in use', async () => {
    const scene = new Scene();
    const first = scene.load(10_000);
    scene.load(90_000);
    scene.load(500);
    await scene.settled();
    expect(scene.loadedSizes).toEqual([10_000, 500]);
    scene.release(first);
    await scene.settled();
    expect(scene.loadedSizes).toEqual([500, 90_000]);
  });

  test('drops the text when the event is done with', async () => {
    const scene = new Scene();
    const event = scene.load(5_000);
    await scene.settled();
    expect(event.payloadJson).toHaveLength(5_000);
    scene.release(event);
    expect(event).toMatchObject({ payloadJson: undefined, plan: undefined, load: undefined });
  });

  test('loads that wait without progress are stuck after a second, and not before', async () => {
    const scene = new Scene();
    const first = scene.load(90_000);
    for (let n = 0; n < 5; n++) scene.load(50_000);
    await scene.settled();
    expect(scene.loader.stuck(100)).toBe(0);
    scene.now += 1_001;
    expect(scene.loader.stuck(100)).toBe(5);
    expect(scene.loader.stuck(3)).toBe(3);
    scene.release(first);
    await scene.settled();
    expect(scene.loader.stuck(100)).toBe(0);
  });

  test('forgets everything when the lease is lost', async () => {
    const scene = new Scene();
    const event = scene.load(90_000);
    for (let n = 0; n < 5; n++) scene.load(50_000);
    await scene.settled();
    scene.loader.forget();
    expect(scene.loader.bytes).toBe(0);
    scene.loader.release(event);
    await scene.settled();
    expect(scene.loader.bytes).toBe(0);
    expect(scene.loaded).toEqual([event]);
  });

  const failures: [name: string, error: object, kinds: string[]][] = [
    [
      'a lost connection',
      new Error('Connection terminated unexpectedly'),
      ['released', 'released', 'failed', 'released'],
    ],
    [
      'a statement timeout',
      Object.assign(new Error('canceled'), { code: '57014' }),
      ['released', 'released', 'failed'],
    ],
    ['a text over 1 GB', Object.assign(new Error('out of memory'), { code: '54000' }), ['rejected', 'rejected']],
    ['a value that is not valid', Object.assign(new Error('invalid'), { code: '22P02' }), ['rejected']],
    [
      'an allocation over 1 GB',
      Object.assign(new Error('invalid memory alloc request size 1073741824'), { code: 'XX000' }),
      ['rejected'],
    ],
    ['another internal error', Object.assign(new Error('cache lookup failed'), { code: 'XX000' }), ['released']],
  ];
  test.each(failures)('what becomes of an event after %s', async (_name, error, kinds) => {
    const scene = new Scene();
    for (const kind of kinds) {
      scene.error = error;
      scene.load(5_000, '1');
      await scene.settled();
      expect(scene.failures.get('1')?.kind).toBe(kind);
    }
  });

  test('a load that works in between begins the count anew', async () => {
    const scene = new Scene();
    for (let round = 0; round < 3; round++) {
      for (let n = 0; n < 2; n++) {
        scene.error = new Error('Connection terminated unexpectedly');
        scene.load(5_000, '1');
        await scene.settled();
        expect(scene.failures.get('1')?.kind).toBe('released');
      }
      scene.error = undefined;
      const event = scene.load(5_000, '1');
      await scene.settled();
      scene.release(event);
    }
  });

  test('an event that was deleted from the log goes back', async () => {
    const scene = new Scene();
    scene.load(undefined, '1');
    await scene.settled();
    expect(scene.failures.get('1')).toEqual({ kind: 'released', done: [] });
  });
});
