export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new Error('There is no median of nothing.');
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2;
}

export interface Ratio {
  /** The median of the rounds' own ratios. Goals are judged by it. */
  ratio: number;
  /** One median by the other. A slow minute that hits one side in half of the rounds shows here as a miss. */
  ratioOfMedians: number;
  /** The ratio of each round. */
  rounds: number[];
}

/**
 * Compares two contenders round by round: each round ran both, so the machine was in the same state for both. Values are
 * in the order of the rounds. A contender that took part in fewer rounds took part in the first ones.
 */
export function ratioWithinRounds(measured: readonly number[], baseline: readonly number[]): Ratio {
  const rounds = measured.slice(0, baseline.length).map((value, round) => value / (baseline[round] as number));
  return {
    ratio: median(rounds),
    ratioOfMedians: median(measured) / median(baseline),
    rounds,
  };
}
