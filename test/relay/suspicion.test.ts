import { describe, expect, test } from 'vitest';
import { Suspicion } from '../../src/relay/lease/suspicion.ts';

const suspect = (freeSince = '1000') => ({
  token: '7',
  name: 'other',
  host: 'h',
  pid: 1,
  hostId: 'elsewhere',
  processId: '1',
  freeSince,
});

/** Probes every 300 ms from `fromMs` on, and returns after how long the relay counts as lost; `undefined` if it does not within 20 s. */
function lostAfterMs(
  suspicion: Suspicion,
  probe: (ms: number) => { freeSince?: string; serverUpMs?: number },
  fromMs = 0,
): number | undefined {
  for (let ms = 0; ms <= 20_000; ms += 300) {
    const { freeSince, serverUpMs = 3_600_000 } = probe(ms);
    const probed = { session: 1, registered: true, serverUpMs, suspects: [suspect(freeSince)], lost: [] };
    if (suspicion.judge(probed, fromMs + ms, fromMs + ms).length > 0) return ms;
  }
  return undefined;
}

describe('a relay whose session lock is free', () => {
  test('counts as lost after the grace', () => {
    expect(lostAfterMs(new Suspicion(), () => ({}))).toBe(2_400);
  });

  test('and taken again in between is not lost', () => {
    expect(lostAfterMs(new Suspicion(), (ms) => ({ freeSince: String(1 + Math.floor(ms / 2_000)) }))).toBeUndefined();
  });

  test('is not lost while the server has just started', () => {
    expect(lostAfterMs(new Suspicion(), (ms) => ({ serverUpMs: ms }))).toBe(10_200);
  });

  test('is not lost while others may still be reconnecting, as this relay did', () => {
    const suspicion = new Suspicion();
    suspicion.reconnected(0);
    expect(lostAfterMs(suspicion, () => ({}))).toBe(10_200);
  });

  test('is given the whole grace again after a pause without probes', () => {
    const suspicion = new Suspicion();
    const probed = { session: 1, registered: true, serverUpMs: 3_600_000, suspects: [suspect()], lost: [] };
    expect(suspicion.judge(probed, 0, 0)).toEqual([]);
    expect(suspicion.judge(probed, 9_000, 9_000)).toEqual([]);
    expect(lostAfterMs(suspicion, () => ({}), 9_300)).toBe(2_100);
  });

  test('is never lost for it without a lock', () => {
    expect(lostAfterMs(new Suspicion(), () => ({ freeSince: '0' }))).toBeUndefined();
  });

  test('is probed again exactly when the grace ends', () => {
    const suspicion = new Suspicion();
    const probed = { session: 1, registered: true, serverUpMs: 3_600_000, suspects: [suspect()], lost: [] };
    suspicion.judge(probed, 0, 50);
    expect(suspicion.nextInMs(60)).toBe(300);
    expect(suspicion.nextInMs(2_300)).toBe(150);
  });
});
