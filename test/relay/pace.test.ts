import { describe, expect, it } from 'vitest';
import { Pace } from '../../src/relay/pace.ts';

/** Delivers `perMs` events each millisecond for a while, asking now and then how many to hold. */
function deliver(pace: Pace, perMs: number, fromMs: number, durationMs: number): number {
  let owed = 0;
  let hold = 0;
  pace.busy(fromMs);
  for (let now = fromMs + 1; now <= fromMs + durationMs; now++) {
    for (owed += perMs; owed >= 1; owed--) pace.done();
    hold = pace.holdMax(now);
  }
  return hold;
}

describe('Pace', () => {
  it('begins with little, so that other relays get their share', () => {
    expect(new Pace({ min: 200, max: 4_000 }).holdMax(0)).toBe(200);
  });

  it('holds up to the limit when events are delivered fast, and soon', () => {
    expect(deliver(new Pace({ min: 200, max: 4_000 }), 40, 0, 30)).toBe(4_000);
  });

  it('holds a quarter of a second of work', () => {
    expect(deliver(new Pace({ min: 20, max: 4_000 }), 2, 0, 500)).toBe(500);
  });

  it('holds little again once handlers have become slow, even when none of them ends', () => {
    const pace = new Pace({ min: 20, max: 4_000 });
    deliver(pace, 40, 0, 100);
    expect(deliver(pace, 0.01, 100, 3_000)).toBe(20);
    deliver(pace, 40, 4_000, 200);
    expect(deliver(pace, 0, 4_200, 3_000)).toBe(20);
  });

  it('does not take time without work for slowness', () => {
    const pace = new Pace({ min: 20, max: 4_000 });
    deliver(pace, 40, 0, 100);
    pace.idle(100);
    expect(pace.holdMax(60_000)).toBe(4_000);
  });

  it('never exceeds the limit, also when that is below the minimum', () => {
    expect(deliver(new Pace({ min: 200, max: 10 }), 40, 0, 100)).toBe(10);
  });
});
