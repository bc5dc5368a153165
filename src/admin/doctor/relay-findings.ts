import { quantity, shellOperand } from '../../format.ts';
import type { RowCounts } from '../../outbox/operating/count.ts';
import type { MissingTarget } from '../../outbox/operating/list-missing-targets.ts';
import type { RelayInfo } from '../../outbox/operating/list-relays.ts';
import type { UnhandledType } from '../../outbox/operating/list-unhandled-types.ts';
import { relayDifferences, someOf } from '../relay-differences.ts';
import type { CheckFinding } from './finding.ts';
import { critical, note, ok, warning } from './finding.ts';

export function relayFindings(
  relays: readonly RelayInfo[],
  counts: RowCounts,
  missing: readonly MissingTarget[] = [],
  unhandled: readonly UnhandledType[] = [],
): CheckFinding[] {
  const alive = relays.filter(({ state }) => state === 'alive').length;
  const found = relays
    .filter(({ state }) => state === 'overdue')
    .map(({ name, host, pid }) =>
      warning(
        `the relay ${name} (host ${host}, pid ${pid}) is overdue: its lease expired`,
        'Events that it claimed wait until another relay takes them over.',
        'npx postcommit relay',
      ),
    );
  if (alive === 0) {
    const due = counts.pending + counts.processing - counts.waiting;
    const amount = `${counts.exact.pending ? '' : 'about '}${quantity(due, 'event')}`;
    found.unshift(
      due > 0
        ? critical(`no relay is alive, ${amount} due`, 'Nothing is delivered.', 'npx postcommit relay')
        : note('no relay is alive', 'Nothing is due now, but new events are not delivered.', 'npx postcommit relay'),
    );
  } else {
    found.push(...missingTargetFindings(missing), ...unhandledTypeFindings(unhandled));
    found.push(...unknownVersionFindings(relays), ...differenceFindings(relays));
  }
  return found.length > 0 ? found : [ok(`${quantity(alive, 'relay')} alive`)];
}

function missingTargetFindings(missing: readonly MissingTarget[]): CheckFinding[] {
  return missing.map(({ target, events }) =>
    warning(
      `no live relay has ${target}, and ${quantity(events, 'event')} in the queue ${events === 1 ? 'is' : 'are'} owed to it`,
      'They and later events of their aggregates wait until a relay that has it starts. If it was removed, forget it.',
      `npx postcommit forget ${shellOperand(target)}`,
    ),
  );
}

function unhandledTypeFindings(unhandled: readonly UnhandledType[]): CheckFinding[] {
  return unhandled.map(({ type, events }) =>
    warning(
      `${type}: ${quantity(events, 'event')} in the queue failed because the relay has no handler and no route for this type`,
      'Each attempt fails. After the last one of the retry policy they are dead letters.',
      `add a handler or a route for ${type} to the relay, and restart it: they are delivered at their next attempt`,
    ),
  );
}

/** Of `unknownVersions: 'retry'`: relays report with their heartbeat what they have left to a relay with a newer catalogue. */
function unknownVersionFindings(relays: readonly RelayInfo[]): CheckFinding[] {
  const waiting = new Map<string, { newest: number; relays: string[] }>();
  for (const { state, name, stats } of relays) {
    if (state !== 'alive' || !Array.isArray(stats.unknownVersions)) continue;
    for (const { type, version, newest } of stats.unknownVersions) {
      const what = `version ${version} of ${type}`;
      const known = waiting.get(what) ?? { newest, relays: [] };
      waiting.set(what, { newest: Math.max(known.newest, newest), relays: [...known.relays, name] });
    }
  }
  return [...waiting].map(([what, { newest, relays: names }]) =>
    warning(
      `events of ${what} wait for a relay that knows it: the catalogue of ${someOf(names)} ends at version ${newest}`,
      'They and later events of their aggregates wait, without an attempt, until a relay with the newer catalogue runs. Deploy it.',
    ),
  );
}

function differenceFindings(relays: readonly RelayInfo[]): CheckFinding[] {
  const { versions, lacking, settings } = relayDifferences(relays);
  const found = lacking.map(({ relay, targets }) =>
    warning(
      `the relay ${relay} does not have ${someOf(targets)}, but other live relays do`,
      'Events that it claims first are not delivered there. During a rolling deployment this is expected.',
      `give all relays of these queues the same handlers and destinations, or stop ${relay}`,
    ),
  );
  if (versions.length > 0) {
    const list = versions.map(({ version, relays: names }) => `${version} (${someOf(names, 3)})`).join(', ');
    found.push(note(`live relays run different versions: ${list}`, 'Expected during a rolling deployment.'));
  }
  if (settings) {
    found.push(
      note(
        'live relays have the same targets, but different route, retry or poison settings',
        'How an event is delivered depends on which relay claims it.',
      ),
    );
  }
  return found;
}
