import { createRequire } from 'node:module';
import { monotonicMs } from './clock.ts';

interface Client {
  query(...args: unknown[]): unknown;
}

/** A moment of a process: the time, and the processor time it had used by then. */
export interface Moment {
  atMs: number;
  cpuMs: number;
}

export function momentNow(): Moment {
  const { user, system } = process.cpuUsage();
  return { atMs: monotonicMs(), cpuMs: (user + system) / 1_000 };
}

/**
 * Tells when a contender's first claim is handed to its copy of `pg`. All of them use `pg`, so this is one definition of
 * "started" for all, taken the same way; their own events would be as many different ones. After the first claim the
 * original method is back, so the drain itself runs unwatched.
 */
export function watchFirstClaim(packageJson: URL, claimStatement: RegExp): { moment: () => Moment | undefined } {
  const { Client } = createRequire(packageJson)('pg') as { Client: { prototype: Client } };
  const original = Client.prototype.query;
  let first: Moment | undefined;
  Client.prototype.query = function (this: Client, ...args: unknown[]) {
    const statement = args[0] as string | { text?: string };
    const text = typeof statement === 'string' ? statement : statement?.text;
    if (text !== undefined && claimStatement.test(text)) {
      first ??= momentNow(); // A client that has wrapped the method may keep this one.
      Client.prototype.query = original;
    }
    return original.apply(this, args);
  };
  return { moment: () => first };
}
