import { describe, expect, test } from 'vitest';
import { type LookResult, QueueWalk } from '../../src/relay/lane/queue-walk.ts';

const room = 1_000;
const nothing: LookResult = { reached: undefined, atEnd: true, claimed: 0, relays: 2 };
const full = (reached: string): LookResult => ({ reached, atEnd: false, claimed: room, relays: 2 });

/** A walk at time 0, and what it decides when it is asked at a time. */
function begin() {
  const walk = new QueueWalk(0);
  const look = (now: number, finding: LookResult) => {
    const next = walk.next(now, room);
    return { ...next, ...walk.found(next, finding, now) };
  };
  return { walk, look };
}

describe('QueueWalk', () => {
  test('walks through its own shards from where the last claim ended, and from the start four times a second', () => {
    const { look } = begin();
    expect(look(0, full('1000'))).toMatchObject({ floor: '0', ownShards: true, readyMax: room, exhausted: false });
    expect(look(10, full('2000'))).toMatchObject({ floor: '1000', ownShards: true });
    expect(look(249, full('3000'))).toMatchObject({ floor: '2000' });
    expect(look(250, full('500'))).toMatchObject({ floor: '0' });
    expect(look(260, full('4000'))).toMatchObject({ floor: '3000' });
  });

  test('compares seqs as numbers', () => {
    const { look } = begin();
    look(0, full('999'));
    look(1, full('1000'));
    expect(look(2, full('1001')).floor).toBe('1000');
  });

  test('a relay alone is done when its own shards are', () => {
    const { look } = begin();
    expect(look(0, { ...nothing, relays: 1 })).toMatchObject({ exhausted: true });
  });

  test('a relay alone has no others to glance at, until one registers', () => {
    const { look } = begin();
    const alone = (reached: string): LookResult => ({ ...full(reached), relays: 1 });
    look(0, alone('1000'));
    expect(look(1_500, alone('2000'))).toMatchObject({ ownShards: true, readyMax: room });
    expect(look(1_600, full('3000'))).toMatchObject({ ownShards: true, readyMax: room });
    expect(look(1_700, full('100'))).toMatchObject({ ownShards: false });
  });

  test('with others, looks at everything soon after its own shards are done, and is exhausted then', () => {
    const { look } = begin();
    expect(look(10, nothing)).toMatchObject({ ownShards: true, exhausted: false, pauseMs: 40 });
    expect(look(30, nothing)).toMatchObject({ ownShards: true, exhausted: false, pauseMs: 20 });
    expect(look(50, nothing)).toMatchObject({ ownShards: false, readyMax: 32, exhausted: true });
    expect(look(60, nothing)).toMatchObject({ ownShards: true, exhausted: false, pauseMs: 40 });
  });

  test('without events of its own, walks through everything to the end in glances, 20 times a second', () => {
    const { look } = begin();
    const blocked = (reached: string): LookResult => ({ ...full(reached), claimed: 0 });
    look(100, nothing);
    expect(look(100, blocked('32'))).toMatchObject({ ownShards: false, floor: '0', readyMax: 32, exhausted: false });
    // Nothing of its own in between, so it pauses.
    expect(look(110, nothing)).toMatchObject({ ownShards: true, exhausted: false, pauseMs: 40 });
    expect(look(150, blocked('96'))).toMatchObject({ ownShards: false, floor: '32', readyMax: 64 });
    look(151, nothing);
    // The start in between, four times a second; then it walks on.
    expect(look(360, blocked('40'))).toMatchObject({ ownShards: false, floor: '0', readyMax: 128 });
    look(361, nothing);
    expect(look(410, blocked('400'))).toMatchObject({ ownShards: false, floor: '96', readyMax: 256 });
    look(411, nothing);
    expect(look(460, nothing)).toMatchObject({ ownShards: false, floor: '400', exhausted: true, pauseMs: 50 });
  });

  test('without events of its own, claims those that no relay works on in glances that grow, without a pause', () => {
    const { look } = begin();
    const sizes: number[] = [];
    for (let n = 0; n < 7; n++) {
      expect(look(100 + n, nothing)).toMatchObject({ ownShards: true, pauseMs: 0 });
      const { ownShards, readyMax } = look(100 + n, full(String(n + 1)));
      expect(ownShards).toBe(false);
      sizes.push(readyMax);
    }
    expect(sizes).toEqual([32, 64, 128, 256, 512, room, room]);
  });

  test('when everything is full of events that can be claimed, its own are first again', () => {
    const { look } = begin();
    look(100, nothing);
    expect(look(100, full('1000'))).toMatchObject({ ownShards: false });
    expect(look(101, full('900'))).toMatchObject({ ownShards: true, floor: '0' });
    // None of its own: everything again, without a pause.
    look(102, nothing);
    expect(look(103, nothing)).toMatchObject({ ownShards: true, exhausted: false, pauseMs: 0 });
    expect(look(103, full('2000'))).toMatchObject({ ownShards: false, floor: '1000' });
  });

  test('pauses when more is blocked than one claim can examine, instead of walking on and on', () => {
    const { look } = begin();
    const blocked = (reached: string): LookResult => ({ reached, atEnd: false, claimed: 0, relays: 1 });
    const pauses: (number | undefined)[] = [];
    for (let n = 0; n < 7; n++) {
      look(n * 100, blocked('1000'));
      const { exhausted, pauseMs } = look(n * 100 + 1, { ...nothing, relays: 1 });
      expect(exhausted).toBe(true);
      pauses.push(pauseMs);
    }
    expect(pauses).toEqual([50, 100, 200, 400, 800, 1_000, 1_000]);
  });

  test('glances at everything once a second while it has enough of its own, each where the last one ended', () => {
    const { look } = begin();
    const blocked = (reached: string): LookResult => ({ ...full(reached), claimed: 0 });
    expect(look(999, full('1000'))).toMatchObject({ ownShards: true });
    expect(look(1_000, blocked('32'))).toMatchObject({ ownShards: false, floor: '0', readyMax: 32 });
    expect(look(1_001, full('2000'))).toMatchObject({ ownShards: true, floor: '1000' });
    expect(look(1_999, full('3000'))).toMatchObject({ ownShards: true });
    expect(look(2_000, blocked('96'))).toMatchObject({ ownShards: false, floor: '32', readyMax: 64 });
    expect(look(3_000, blocked('200'))).toMatchObject({ ownShards: false, floor: '96', readyMax: 128 });
    expect(look(4_000, blocked('500'))).toMatchObject({ ownShards: false, floor: '200', readyMax: 256 });
    expect(look(5_000, blocked('900'))).toMatchObject({ ownShards: false, floor: '500', readyMax: 256 });
    // From the start again, every few seconds.
    expect(look(6_000, blocked('9'))).toMatchObject({ ownShards: false, floor: '0' });
  });

  test('a glance that finds events of a relay that does not work on them is followed by larger ones', () => {
    const { look } = begin();
    const sizes: number[] = [];
    for (let now = 0; now <= 4_000; now += 50) {
      const { ownShards, readyMax } = look(now, { ...full(String(now)), claimed: room });
      if (!ownShards) sizes.push(readyMax);
    }
    expect(sizes.slice(0, 7)).toEqual([32, 64, 128, 256, 512, room, room]);
  });

  test('after a reset it begins at the start, with its own shards', () => {
    const { walk, look } = begin();
    look(0, full('1000'));
    walk.reset();
    expect(walk.isWalking).toBe(false);
    expect(look(1, full('1'))).toMatchObject({ floor: '0', ownShards: true });
  });
});
