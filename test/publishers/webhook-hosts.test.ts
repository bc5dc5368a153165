import { describe, expect, it } from 'vitest';
import { HostSlots } from '../../src/publishers/webhook/hosts.ts';

const never = new AbortController().signal;

describe('HostSlots', () => {
  it('hands a slot to the one that waits longest, and to no newcomer', async () => {
    const slots = new HostSlots(1);
    const order: string[] = [];
    const giveBack = await slots.take('a', never);
    const waiting = ['first', 'second'].map(async (name) => {
      const giveBackToo = await slots.take('a', never);
      order.push(name);
      return giveBackToo;
    });
    giveBack();
    expect(slots.takeFree('a')).toBeUndefined();
    (await waiting[0])?.();
    expect(slots.takeFree('a')).toBeUndefined();
    (await waiting[1])?.();
    expect(order).toEqual(['first', 'second']);
    expect(slots.takeFree('a')).toBeTypeOf('function');
    expect(slots.takeFree('a')).toBeUndefined();
  });

  it('counts each host by itself', () => {
    const slots = new HostSlots(2);
    expect([1, 2, 3].map(() => slots.takeFree('a') !== undefined)).toEqual([true, true, false]);
    expect(slots.takeFree('b')).toBeTypeOf('function');
  });

  it('forgets a caller that gave up waiting', async () => {
    const slots = new HostSlots(1);
    const giveBack = slots.takeFree('a');
    const stop = new AbortController();
    const waiting = slots.take('a', stop.signal);
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await expect(slots.take('a', stop.signal)).rejects.toThrow('enough');
    giveBack?.();
    expect(slots.takeFree('a')).toBeTypeOf('function');
  });
});
