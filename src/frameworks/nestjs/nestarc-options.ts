import { PostcommitError } from '../../errors.ts';
import type { RelayOptions } from '../../relay/options.ts';
import { unknownOption } from '../../suggest.ts';

/**
 * The options of `@nestarc/outbox`, by their names there. An application that gives one of them, or `prisma`, gets the defaults of
 * that package for all of them; its event without a handler is FAILED at once. What `relay` says comes first.
 */
export interface NestarcOptions {
  polling?: {
    /** `false`: this process runs no relay. Another name of `runRelay`. Default `true`. */
    enabled?: boolean;
    /** Milliseconds: `pollIntervalMs` of the relay. Notifications wake it earlier. Default 5,000. */
    interval?: number;
    /** `batchSizeMax` of the relay. Default 100. */
    batchSize?: number;
  };
  retry?: {
    /** Attempts in all, as there: 5 means that the fifth failure is the last. Default 5. */
    maxRetries?: number;
    /** `exponential` doubles the delay after each failure. Default `exponential`. */
    backoff?: 'fixed' | 'exponential';
    /** Milliseconds before the second attempt. Default 1,000. */
    initialDelay?: number;
  };
  /**
   * Milliseconds after which an attempt that has not ended is given up and repeated: `deliverTimeoutMs` and `blockedMaxMs` of the
   * relay. A relay that has crashed is noticed within seconds, whatever this says. Default 300,000 (5 minutes).
   */
  stuckThreshold?: number;
}

type Mapped = Pick<
  RelayOptions,
  'pollIntervalMs' | 'batchSizeMax' | 'prefetchMax' | 'retry' | 'deliverTimeoutMs' | 'blockedMaxMs' | 'noHandler'
>;

/** 366 days: the longest delay that a retry policy may have. */
const delayMsMax = 366 * 24 * 3_600_000;

export function fromNestarcOptions({ polling, retry, stuckThreshold = 300_000 }: NestarcOptions): Mapped {
  checkNames('polling', polling, ['enabled', 'interval', 'batchSize']);
  checkNames('retry', retry, ['maxRetries', 'backoff', 'initialDelay']);
  const { interval = 5_000, batchSize = 100 } = polling ?? {};
  const { maxRetries = 5, backoff = 'exponential', initialDelay = 1_000 } = retry ?? {};
  if (!Number.isInteger(maxRetries) || maxRetries < 0 || maxRetries > 1_000) {
    throw bad(`retry.maxRetries must be a whole number from 0 to 1,000. Got ${String(maxRetries)}.`);
  }
  if (backoff !== 'fixed' && backoff !== 'exponential') {
    throw bad(`retry.backoff must be fixed or exponential. Got ${String(backoff)}.`);
  }
  const delayMs = (failures: number) => (backoff === 'fixed' ? initialDelay : initialDelay * 2 ** (failures - 1));
  const delays = Array.from({ length: Math.max(0, maxRetries - 1) }, (_, index) => delayMs(index + 1));
  return {
    pollIntervalMs: interval,
    batchSizeMax: Math.max(2, batchSize), // A relay claims at least two.
    retry: { delaysMs: delays.map((ms) => Math.min(ms, delayMsMax)) },
    deliverTimeoutMs: stuckThreshold,
    blockedMaxMs: stuckThreshold,
    noHandler: 'fail',
  };
}

/** The relay has a `retry` too, and a name of its own here would switch to the defaults of `@nestarc/outbox` and set nothing. */
function checkNames(option: string, given: object | undefined, known: readonly string[]): void {
  const unknown = unknownOption(given ?? {}, known, `The option ${option} of PostcommitModule`);
  if (unknown === undefined) return;
  throw bad(`${unknown} The relay's own options go into relay, e.g. relay: { retry: { attemptsMax: 10 } }.`);
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
