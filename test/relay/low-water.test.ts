import { describe, expect, test } from 'vitest';
import { LowWater } from '../../src/relay/lane/low-water.ts';

const survey = (more: Partial<Parameters<LowWater['surveyed']>[0]>) => ({
  requeues: '0',
  server: 'one',
  lowest: null,
  xmin: '100',
  xmax: '100',
  ...more,
});

function look(water: LowWater, found: ReturnType<typeof survey>, reached: string): void {
  water.seen(reached, 0);
  water.surveyed(found);
}

function begun(): LowWater {
  const water = new LowWater();
  expect(water.surveyIsDue(0)).toBe(true);
  water.beginSurvey(0);
  return water;
}

describe('the low-water mark', () => {
  test('rises to the lowest event once every transaction of that moment has ended', () => {
    const water = begun();
    look(water, survey({ lowest: '50', xmin: '90', xmax: '100' }), '60');
    expect(water.mark).toEqual({ mark: '0', requeues: '0', server: 'one' });
    look(water, survey({ lowest: '70', xmin: '99', xmax: '120' }), '80');
    expect(water.mark.mark).toBe('0');
    look(water, survey({ lowest: '90', xmin: '100', xmax: '130' }), '99');
    expect(water.mark.mark).toBe('50');
    look(water, survey({ lowest: '95', xmin: '130', xmax: '130' }), '99');
    expect(water.mark.mark).toBe('90');
  });

  test('stays below an event that committed late', () => {
    const water = begun();
    look(water, survey({ lowest: '50', xmin: '90', xmax: '100' }), '60');
    look(water, survey({ lowest: '7', xmin: '100', xmax: '130' }), '99');
    expect(water.mark.mark).toBe('7');
  });

  test('rises to the highest seq seen when the queue is empty', () => {
    const water = begun();
    look(water, survey({ xmin: '100', xmax: '100' }), '1000');
    look(water, survey({ xmin: '100', xmax: '100' }), '1000');
    expect(water.mark.mark).toBe('1000');
  });

  test('falls when something came back into the queue, and with every look at all', () => {
    const water = begun();
    for (let n = 0; n < 2; n++) look(water, survey({ lowest: '50' }), '60');
    expect(water.mark).toMatchObject({ mark: '50', requeues: '0' });
    look(water, survey({ lowest: '3', requeues: '1' }), '60');
    expect(water.mark).toMatchObject({ mark: '0', requeues: '1' });
    for (let n = 0; n < 2; n++) look(water, survey({ lowest: '50', requeues: '1' }), '60');
    expect(water.mark.mark).toBe('50');
    water.beginSurvey(29_900);
    expect(water.mark.mark).toBe('50');
    water.beginSurvey(30_000);
    expect(water.mark).toMatchObject({ mark: '0', requeues: '-1' });
  });

  test('is looked after five times a second while many events pass, and every five seconds when there are few', () => {
    const water = begun();
    expect(water.surveyIsDue(4_999)).toBe(false);
    expect(water.surveyIsDue(5_000)).toBe(true);
    water.beginSurvey(5_000);
    water.seen('999', 999);
    expect(water.surveyIsDue(5_300)).toBe(false);
    water.seen('1000', 1);
    expect(water.surveyIsDue(5_199)).toBe(false);
    expect(water.surveyIsDue(5_200)).toBe(true);
    water.beginSurvey(5_200);
    expect(water.surveyIsDue(5_500)).toBe(false);
  });

  test('compares seqs as numbers', () => {
    const water = begun();
    look(water, survey({ lowest: '99', xmax: '100' }), '100');
    look(water, survey({ lowest: '1000000000000', xmin: '101', xmax: '101' }), '1000000000001');
    expect(water.mark.mark).toBe('99');
  });

  test('is forgotten with everything seen when the server may be another one', () => {
    const water = begun();
    for (let n = 0; n < 2; n++) look(water, survey({}), '1000');
    expect(water.mark.mark).toBe('1000');
    water.forget();
    expect(water.mark).toMatchObject({ mark: '0', requeues: '-1' });
    for (let n = 0; n < 2; n++) water.surveyed(survey({}));
    expect(water.mark.mark).toBe('0');
  });
});
