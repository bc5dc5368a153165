import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Pace } from '../../src/relay/lane/pace.ts';

/** Tells it of `perSecond` deliveries a second, for so long, and asks every 20 ms. */
function run(pace: Pace, from: number, perSecond: number, forMs: number): number {
  pace.busy(from);
  for (let now = from + 20; now <= from + forMs; now += 20) {
    for (let n = 0; n < perSecond / 50; n++) pace.done();
    pace.updateBufferTarget(now);
  }
  return from + forMs;
}

describe('how much a relay holds', () => {
  test('is a quarter of a second’s work', () => {
    const pace = new Pace({ min: 10, max: 5_000 });
    let now = run(pace, 1, 1_000, 1_000);
    expect(pace.bufferTarget).toBeGreaterThanOrEqual(240);
    expect(pace.bufferTarget).toBeLessThanOrEqual(260);
    now = run(pace, now, 10_000, 1_000);
    expect(pace.bufferTarget).toBeGreaterThanOrEqual(2_400);
    run(pace, now, 50, 2_000);
    expect(pace.bufferTarget).toBeLessThanOrEqual(20);
  });

  test('does not shrink while there is nothing to do', () => {
    const pace = new Pace({ min: 10, max: 5_000 });
    const now = run(pace, 1, 4_000, 1_000);
    const before = pace.bufferTarget;
    pace.idle(now);
    expect(pace.updateBufferTarget(now + 60_000)).toBeGreaterThan(before / 2);
  });

  test('stays within its limits, whatever it is told', () => {
    const call = fc.tuple(fc.constantFrom('busy', 'idle', 'done', 'updateBufferTarget'), fc.nat(500));
    fc.assert(
      fc.property(fc.array(call, { maxLength: 200 }), fc.nat(100), fc.nat(1_000), (calls, min, max) => {
        const pace = new Pace({ min, max });
        let now = 0;
        for (const [what, passMs] of calls) {
          now += passMs;
          if (what === 'done') pace.done();
          else if (what === 'busy') pace.busy(now);
          else if (what === 'idle') pace.idle(now);
          else expect(pace.updateBufferTarget(now)).toBe(pace.bufferTarget);
          expect(pace.bufferTarget).toBeGreaterThanOrEqual(Math.min(min, max));
          expect(pace.bufferTarget).toBeLessThanOrEqual(max);
        }
      }),
    );
  });
});
