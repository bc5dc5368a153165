import { describe, expect, test } from 'vitest';
import { LostRelayDetector } from '../../src/relay/lease/lost-relay-detector.ts';

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
  detector: LostRelayDetector,
  probe: (ms: number) => { freeSince?: string; serverUpMs?: number },
  fromMs = 0,
): number | undefined {
  for (let ms = 0; ms <= 20_000; ms += 300) {
    const { freeSince, serverUpMs = 3_600_000 } = probe(ms);
    const probed = { session: 1, registered: true, serverUpMs, suspects: [suspect(freeSince)], lost: [] };
    if (detector.judge(probed, fromMs + ms, fromMs + ms).length > 0) return ms;
  }
  return undefined;
}

describe('a relay whose session lock is free', () => {
  test('counts as lost after the grace', () => {
    expect(lostAfterMs(new LostRelayDetector(), () => ({}))).toBe(2_400);
  });

  test('and taken again in between is not lost', () => {
    expect(
      lostAfterMs(new LostRelayDetector(), (ms) => ({ freeSince: String(1 + Math.floor(ms / 2_000)) })),
    ).toBeUndefined();
  });

  test('is not lost while the server has just started', () => {
    expect(lostAfterMs(new LostRelayDetector(), (ms) => ({ serverUpMs: ms }))).toBe(10_200);
  });

  test('is not lost while others may still be reconnecting, as this relay did', () => {
    const detector = new LostRelayDetector();
    detector.reconnected(0);
    expect(lostAfterMs(detector, () => ({}))).toBe(10_200);
  });

  test('is given the whole grace again after a pause without probes', () => {
    const detector = new LostRelayDetector();
    const probed = { session: 1, registered: true, serverUpMs: 3_600_000, suspects: [suspect()], lost: [] };
    expect(detector.judge(probed, 0, 0)).toEqual([]);
    expect(detector.judge(probed, 9_000, 9_000)).toEqual([]);
    expect(lostAfterMs(detector, () => ({}), 9_300)).toBe(2_100);
  });

  test('is never lost for it without a lock', () => {
    expect(lostAfterMs(new LostRelayDetector(), () => ({ freeSince: '0' }))).toBeUndefined();
  });

  test('is probed again exactly when the grace ends', () => {
    const detector = new LostRelayDetector();
    const probed = { session: 1, registered: true, serverUpMs: 3_600_000, suspects: [suspect()], lost: [] };
    detector.judge(probed, 0, 50);
    expect(detector.nextInMs(60)).toBe(300);
    expect(detector.nextInMs(2_300)).toBe(150);
  });
});
