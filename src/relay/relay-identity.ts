import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import type { RelayIdentity } from '../outbox/delivering/register-relay.ts';
import { packageVersion } from '../package-version.ts';
import { ownProcess } from './lease/host-process.ts';
import type { ResolvedRelayOptions } from './options.ts';

/** What the relay registers: its targets, and a hash that differs when its settings do. */
export function relayIdentity(options: ResolvedRelayOptions): RelayIdentity & { targets: string[] } {
  const { name, queues, handlers, destinations, route, retry, poison, noHandler } = options;
  const targets = destinations.map((destination) => destination.name);
  targets.push(...handlers.all.map(({ target }) => target));
  targets.sort();
  // Only the hash is published, so it may cover the source of `route`: the usual difference between two versions.
  const policies = handlers.all.map(({ target, timeoutMs, retry }) => [target, timeoutMs, retry]);
  const settings = JSON.stringify([targets, policies.sort(), String(route), retry, poison, noHandler]);
  const fingerprint = createHash('sha256').update(settings).digest('hex').slice(0, 16);
  return {
    name,
    host: hostname(),
    pid: process.pid,
    version: packageVersion(),
    targets,
    fingerprint,
    queues: [...queues.keys()],
    ...ownProcess(),
  };
}
