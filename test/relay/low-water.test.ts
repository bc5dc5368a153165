import { describe, expect, test } from 'vitest';
import { LowWater } from '../../src/relay/lane/low-water.ts';

const sample = (more: Partial<Parameters<LowWater['sampled']>[0]>) => ({
  requeues: '0',
  server: 'one',
  lowest: null,
  xmin: '100',
  xmax: '100',
  ...more,
});

function look(water: LowWater, found: ReturnType<typeof sample>, reached: string): void {
  water.seen(reached, 0);
  water.sampled(found);
}

function begun(): LowWater {
  const water = new LowWater();
  expect(water.sampleIsDue(0)).toBe(true);
  water.beginSample(0);
  return water;
}

describe('the low-water mark', () => {
  test('rises to the lowest event once every transaction of that moment has ended', () => {
    const water = begun();
    look(water, sample({ lowest: '50', xmin: '90', xmax: '100' }), '60');
    expect(water.mark).toEqual({ mark: '0', requeues: '0', server: 'one' });
    look(water, sample({ lowest: '70', xmin: '99', xmax: '120' }), '80');
    expect(water.mark.mark).toBe('0');
    look(water, sample({ lowest: '90', xmin: '100', xmax: '130' }), '99');
    expect(water.mark.mark).toBe('50');
    look(water, sample({ lowest: '95', xmin: '130', xmax: '130' }), '99');
    expect(water.mark.mark).toBe('90');
  });

  test('stays below an event that committed late', () => {
    const water = begun();
    look(water, sample({ lowest: '50', xmin: '90', xmax: '100' }), '60');
    look(water, sample({ lowest: '7', xmin: '100', xmax: '130' }), '99');
    expect(water.mark.mark).toBe('7');
  });

  test('rises to the highest seq seen when the queue is empty', () => {
    const water = begun();
    look(water, sample({ xmin: '100', xmax: '100' }), '1000');
    look(water, sample({ xmin: '100', xmax: '100' }), '1000');
    expect(water.mark.mark).toBe('1000');
  });

  test('falls when something came back into the queue, and with every look at all', () => {
    const water = begun();
    for (let n = 0; n < 2; n++) look(water, sample({ lowest: '50' }), '60');
    expect(water.mark).toMatchObject({ mark: '50', requeues: '0' });
    look(water, sample({ lowest: '3', requeues: '1' }), '60');
    expect(water.mark).toMatchObject({ mark: '0', requeues: '1' });
    for (let n = 0; n < 2; n++) look(water, sample({ lowest: '50', requeues: '1' }), '60');
    expect(water.mark.mark).toBe('50');
    water.beginSample(29_900);
    expect(water.mark.mark).toBe('50');
    water.beginSample(30_000);
    expect(water.mark).toMatchObject({ mark: '0', requeues: '-1' });
  });

  test('is looked after five times a second while many events pass, and every five seconds when there are few', () => {
    const water = begun();
    expect(water.sampleIsDue(4_999)).toBe(false);
    expect(water.sampleIsDue(5_000)).toBe(true);
    water.beginSample(5_000);
    water.seen('999', 999);
    expect(water.sampleIsDue(5_300)).toBe(false);
    water.seen('1000', 1);
    expect(water.sampleIsDue(5_199)).toBe(false);
    expect(water.sampleIsDue(5_200)).toBe(true);
    water.beginSample(5_200);
    expect(water.sampleIsDue(5_500)).toBe(false);
  });

  test('compares seqs as numbers', () => {
    const water = begun();
    look(water, sample({ lowest: '99', xmax: '100' }), '100');
    look(water, sample({ lowest: '1000000000000', xmin: '101', xmax: '101' }), '1000000000001');
    expect(water.mark.mark).toBe('99');
  });

  test('is forgotten with everything seen when the server may be another one', () => {
    const water = begun();
    for (let n = 0; n < 2; n++) look(water, sample({}), '1000');
    expect(water.mark.mark).toBe('1000');
    water.forget();
    expect(water.mark).toMatchObject({ mark: '0', requeues: '-1' });
    for (let n = 0; n < 2; n++) water.sampled(sample({}));
    expect(water.mark.mark).toBe('0');
  });
});
