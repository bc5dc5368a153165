import { describe, expect, it } from 'vitest';
import { seededRandom, shuffled } from '../../bench/shuffled.ts';

const orders = (seed: number) => {
  const random = seededRandom(seed);
  return Array.from({ length: 600 }, () => shuffled(['a', 'b', 'c'], random).join(''));
};

describe('the order of the contenders', () => {
  it('is the same for the same seed, and another for another', () => {
    expect(orders(1)).toEqual(orders(1));
    expect(orders(1)).not.toEqual(orders(2));
  });

  it('has each of them in each place equally often', () => {
    const counts = new Map<string, number>();
    for (const order of orders(7)) counts.set(order, (counts.get(order) ?? 0) + 1);
    expect(counts.size).toBe(6);
    for (const count of counts.values()) expect(count).toBeGreaterThan(70);
  });
});
