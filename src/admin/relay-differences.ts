import type { RelayInfo } from '../outbox/operating/list-relays.ts';

/** How the live relays of an outbox differ, for example during a rolling deployment. */
export interface RelayDifferences {
  /** Package versions with their relays; empty if all relays have the same version. */
  versions: { version: string; relays: string[] }[];
  /** Relays without targets that another live relay of the same queues has. */
  lacking: { relay: string; targets: string[] }[];
  /** Whether `route`, retry or poison settings differ among relays with the same version and targets. */
  settings: boolean;
}

/** Compares the relays that are alive. */
export function relayDifferences(relays: readonly RelayInfo[]): RelayDifferences {
  const alive = relays.filter(({ state }) => state === 'alive');
  const byVersion = new Map<string, string[]>();
  for (const { name, version = 'unknown' } of alive) byVersion.set(version, [...(byVersion.get(version) ?? []), name]);
  const versions = [...byVersion].map(([version, names]) => ({ version, relays: names }));
  const lacking = alive.flatMap(({ name, targets, queues }) => {
    const own = new Set(targets);
    // A relay for other queues has handlers of its own.
    const peers = alive.filter((other) => other.queues.some((queue) => queues.includes(queue)));
    const missing = [...new Set(peers.flatMap((peer) => peer.targets))].filter((target) => !own.has(target)).sort();
    return missing.length > 0 ? [{ relay: name, targets: missing }] : [];
  });
  const isUniform = versions.length <= 1 && lacking.length === 0;
  const settings = isUniform && new Set(alive.map(({ fingerprint }) => fingerprint)).size > 1;
  return { versions: versions.length > 1 ? versions : [], lacking, settings };
}

/** The first few names and the number of the others: `kafka, hook and 3 more`. */
export function someOf(names: readonly string[], max = 5): string {
  const more = names.length > max ? ` and ${names.length - max} more` : '';
  return `${names.slice(0, max).join(', ')}${more}`;
}
