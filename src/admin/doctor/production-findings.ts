import { duration, quantity } from '../../format.ts';
import type { RightsFacts } from '../../outbox/examining/examine-rights.ts';
import type { ServerFacts } from '../../outbox/examining/examine-server.ts';
import type { MaintenanceInfo } from '../../outbox/operating/list-maintenance.ts';
import type { RelayInfo } from '../../outbox/operating/list-relays.ts';
import type { CheckFinding } from './finding.ts';
import { ok, warning } from './finding.ts';

export interface ProductionFacts {
  settings: ServerFacts['settings'];
  rights: RightsFacts;
  relays: readonly RelayInfo[];
  tasks: MaintenanceInfo['tasks'];
  /** Whether a live relay reports the gauges of the outbox. */
  measured: boolean;
}

const relaysMin = 2;

/**
 * The points of docs/production-checklist.md that are visible from the database, beyond what the other checks find. A test system may
 * break each of them, so the doctor asks for them only with `production`.
 */
export function productionFindings(facts: ProductionFacts): CheckFinding[] {
  const found = [
    openTransactionFinding(facts.settings),
    retentionFinding(facts.tasks),
    roleFinding(facts.rights),
    relayFinding(facts.relays),
    notificationFinding(facts.relays),
    metricsFinding(facts.measured),
  ].filter((finding) => finding !== undefined);
  return found.length > 0 ? found : [ok('the production-checklist points visible from the database are in order')];
}

function openTransactionFinding(settings: ProductionFacts['settings']): CheckFinding | undefined {
  if (settings.idle_in_transaction_session_timeout !== '0') return undefined;
  return warning(
    'point 3: idle_in_transaction_session_timeout is 0',
    'One session that forgets its transaction keeps dead rows in the queue until it disconnects, and claims become slower.',
    "alter system set idle_in_transaction_session_timeout = '5min'; select pg_reload_conf();",
  );
}

function retentionFinding(tasks: ProductionFacts['tasks']): CheckFinding | undefined {
  const endless = tasks.filter(({ keepMs }) => keepMs === Number.POSITIVE_INFINITY).map(({ task }) => task);
  if (endless.length === 0) return undefined;
  return warning(
    `point 4: retention is off for ${endless.join(', ')}`,
    'These tables grow until the disk is full.',
    'set maintenance.keepEventsMs and maintenance.keepProcessedMs of the relay',
  );
}

function roleFinding({ currentRole, superuser, owner }: RightsFacts): CheckFinding | undefined {
  if (!superuser && !owner) return undefined;
  return warning(
    `point 5: the role ${JSON.stringify(currentRole)} ${superuser ? 'is a superuser' : 'owns the tables'}`,
    'If services or relays use it, one that is compromised can change or delete everything in the outbox. Run this check with the role of the relay.',
    'npx postcommit grants --create',
  );
}

function relayFinding(relays: readonly RelayInfo[]): CheckFinding | undefined {
  const alive = relays.filter(({ state }) => state === 'alive');
  const hosts = new Set(alive.map(({ host }) => host));
  if (hosts.size >= relaysMin) return undefined;
  const where = alive.length < relaysMin ? '' : `, all on the host ${[...hosts].join('')}`;
  return warning(
    `point 8: ${quantity(alive.length, 'relay')} alive${where}`,
    'While that host is down or restarts, nothing is delivered.',
    'run two relays or more, on different hosts: see docs/deploying.md',
  );
}

function notificationFinding(relays: readonly RelayInfo[]): CheckFinding | undefined {
  const deaf = relays.filter(({ state, stats }) => state === 'alive' && laneReasonOf(stats) === 'no_notifications');
  if (deaf.length === 0) return undefined;
  const names = deaf.slice(0, 3).map(({ name }) => name);
  return warning(
    `point 11: no notifications arrive at ${names.join(', ')}`,
    'It polls every 250 ms or more often, and events of other processes wait for the next poll.',
    'give it a direct connection; if polling is enough, set `listen: false`',
  );
}

function laneReasonOf({ lane }: RelayInfo['stats']): unknown {
  return (lane as { reason?: unknown } | undefined)?.reason;
}

function metricsFinding(measured: boolean): CheckFinding | undefined {
  if (measured) return undefined;
  return warning(
    'point 16: no relay reports metrics of the outbox',
    `Alerts cannot fire: a backlog of ${duration(3_600_000)} would go unnoticed.`,
    'run `npx postcommit relay --http-port 9464`, and let Prometheus scrape /metrics',
  );
}
