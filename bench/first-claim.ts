import { createRequire } from 'node:module';

interface Client {
  query(...args: unknown[]): unknown;
}

/**
 * Tells when a contender's first claim is handed to its copy of `pg`. All of them use `pg`, so this is one definition of
 * "started" for all, taken the same way; their own events would be three different ones. After the first claim the
 * original method is back, so the drain itself runs unwatched.
 */
export function watchFirstClaim(packageJson: URL, claimStatement: RegExp): { atMs: () => number | undefined } {
  const { Client } = createRequire(packageJson)('pg') as { Client: { prototype: Client } };
  const original = Client.prototype.query;
  let atMs: number | undefined;
  Client.prototype.query = function (this: Client, ...args: unknown[]) {
    const statement = args[0] as string | { text?: string };
    const text = typeof statement === 'string' ? statement : statement?.text;
    if (text !== undefined && claimStatement.test(text)) {
      atMs = performance.now();
      Client.prototype.query = original;
    }
    return original.apply(this, args);
  };
  return { atMs: () => atMs };
}
