import { createRequire } from 'node:module';
import type { ClaimSummary } from './contenders/contender.ts';
import { type Moment, momentNow } from './first-claim.ts';

interface Client {
  query(...args: unknown[]): unknown;
}

/** What a contender's claims did between the opening of the gate and the end of the drain. */
export interface ClaimCounts {
  claims: number;
  /** Claims that returned no event. */
  empty: number;
  claimed: number;
  /** Queue rows that the claims looked at. */
  examined: number;
  /** Sum of the times between sending a claim and receiving its answer. */
  waitedMs: number;
}

export interface ClaimGate {
  /** Resolves when the contender hands its first claim to `pg`. */
  readonly reached: Promise<void>;
  /** Sends the held claims and lets every later one pass. Returns the moment at which it opened. */
  open(): Moment;
  /** All zero unless the gate was made with `readClaim`. */
  readonly counts: ClaimCounts;
}

/**
 * Holds every claim that a contender hands to its copy of `pg` until the gate opens. So all processes of a drain are
 * connected and registered before the first of them claims, and all start at one signal. Afterwards the original method
 * is back and the drain runs unwatched, unless `readClaim` is given.
 */
export function holdClaims(
  packageJson: URL,
  claimStatement: RegExp,
  readClaim?: (rows: unknown[]) => ClaimSummary,
): ClaimGate {
  const { prototype } = (createRequire(packageJson)('pg') as { Client: { prototype: Client } }).Client;
  const original = prototype.query;
  const [reached, reach] = signal();
  const [opened, letPass] = signal();
  const counts: ClaimCounts = { claims: 0, empty: 0, claimed: 0, examined: 0, waitedMs: 0 };

  const send = (client: Client, args: unknown[]): unknown => {
    const answer = original.apply(client, args);
    if (readClaim && answer instanceof Promise) count(answer as Promise<{ rows: unknown[] }>, readClaim, counts);
    return answer;
  };
  const isClaim = ([statement]: unknown[]): boolean => {
    const text = typeof statement === 'string' ? statement : (statement as { text?: string } | undefined)?.text;
    return text !== undefined && claimStatement.test(text);
  };

  prototype.query = function (this: Client, ...args: unknown[]) {
    if (!isClaim(args)) return original.apply(this, args);
    reach();
    const answer = opened.then(() => send(this, args));
    // `pg` answers with a promise, through a callback, or through the query object itself.
    if (typeof args.at(-1) === 'function') return undefined;
    return typeof (args[0] as { submit?: unknown }).submit === 'function' ? args[0] : answer;
  };
  return {
    reached,
    counts,
    open() {
      prototype.query = !readClaim
        ? original
        : function (this: Client, ...args: unknown[]) {
            return isClaim(args) ? send(this, args) : original.apply(this, args);
          };
      letPass();
      return momentNow();
    },
  };
}

function signal(): [promise: Promise<void>, resolve: () => void] {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return [promise, resolve];
}

function count(
  answer: Promise<{ rows: unknown[] }>,
  readClaim: (rows: unknown[]) => ClaimSummary,
  counts: ClaimCounts,
): void {
  const sentAtMs = performance.now();
  answer.then(
    ({ rows }) => {
      const { claimed, examined } = readClaim(rows);
      counts.claims++;
      if (claimed === 0) counts.empty++;
      counts.claimed += claimed;
      counts.examined += examined;
      counts.waitedMs += performance.now() - sentAtMs;
    },
    () => {}, // The contender handles its own errors.
  );
}
