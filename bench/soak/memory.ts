/** The memory of the relay's process at one moment, in bytes. */
export interface MemorySample {
  /** Since the start. */
  atMs: number;
  rss: number;
  heapUsed: number;
  /** Whether the garbage was collected right before. */
  afterGc: boolean;
}

export interface Spread {
  min: number;
  median: number;
  max: number;
}

export interface MemoryReport {
  minutes: { minute: number; heapUsed: Spread; rss: Spread }[];
  /** The median of heapUsed after a garbage collection, in the first and in the last third of the run. */
  firstThird: number;
  lastThird: number;
  isBounded: boolean;
}

/** The last third may have this much more than the first: compiled code and caches grow in the first minutes. */
const growthMax = 1.3;
const growthBytesMax = 16 * 1_048_576;

export function reportMemory(samples: readonly MemorySample[]): MemoryReport {
  const lastMs = samples.at(-1)?.atMs ?? 0;
  const minutes = Array.from({ length: Math.floor(lastMs / 60_000) + 1 }, (_, minute) => {
    const those = samples.filter(({ atMs }) => Math.floor(atMs / 60_000) === minute);
    return { minute, heapUsed: spread(those.map((s) => s.heapUsed)), rss: spread(those.map((s) => s.rss)) };
  });
  const third = (from: number, to: number) =>
    spread(
      samples
        .filter(({ atMs, afterGc }) => afterGc && atMs >= lastMs * from && atMs <= lastMs * to)
        .map((s) => s.heapUsed),
    ).median;
  const firstThird = third(0, 1 / 3);
  const lastThird = third(2 / 3, 1);
  const isBounded = lastThird > 0 && lastThird <= firstThird * growthMax + growthBytesMax;
  return { minutes, firstThird, lastThird, isBounded };
}

function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (part: number) => sorted[Math.floor((sorted.length - 1) * part)] ?? 0;
  return { min: at(0), median: at(0.5), max: at(1) };
}
