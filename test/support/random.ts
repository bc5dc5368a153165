export interface SeededRandom {
  readonly seed: number;
  /** In [0, 1). */
  next(): number;
  /** A whole number in [min, max]. */
  integer(min: number, max: number): number;
  chance(probability: number): boolean;
  pick<T>(items: readonly T[]): T;
  shuffle<T>(items: readonly T[]): T[];
}

/**
 * Random choices that can be had again: the seed is printed at once, because a test that hangs or crashes has no later
 * moment, and `SEED=… npx vitest run that.test.ts` repeats the run.
 */
export function seededRandom(seed: number | string | undefined = process.env.SEED): SeededRandom {
  const start = seed === undefined ? Math.floor(Math.random() * 2 ** 32) : Number(seed) >>> 0;
  console.info(`seed: ${start} (SEED=${start} repeats it)`);
  let state = start;
  // mulberry32
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const integer = (min: number, max: number): number => min + Math.floor(next() * (max - min + 1));
  return {
    seed: start,
    next,
    integer,
    chance: (probability) => next() < probability,
    pick: <T>(items: readonly T[]): T => {
      if (items.length === 0) throw new Error('pick() from an empty list');
      return items[integer(0, items.length - 1)] as T;
    },
    shuffle: <T>(items: readonly T[]): T[] => {
      const result = [...items];
      for (let i = result.length - 1; i > 0; i--) {
        const j = integer(0, i);
        [result[i], result[j]] = [result[j] as T, result[i] as T];
      }
      return result;
    },
  };
}
