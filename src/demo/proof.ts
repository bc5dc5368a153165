import type { Evidence, Outage } from './order-service-evidence.ts';

/** The killed relay and what happened to the events that it had claimed. */
export interface Crash {
  relay: string;
  pid: number;
  /** Events that it had claimed when it was killed. */
  held: number;
  /** Events that another relay took over. The others were settled: the database completes a statement that it has received. */
  takenOver: number;
  /** From SIGKILL until the takeover of all of them; `undefined` if that did not happen in time. */
  takeoverMs: number | undefined;
  outage: Outage;
}

/** One check of the result. */
export interface Check {
  claim: string;
  holds: boolean;
  /** The numbers that the check is based on. */
  shown: string;
}

export interface ProofInput {
  evidence: Evidence;
  poisonId: string | undefined;
  crash: Crash | undefined;
}

/** Checks the numbers of the database. */
export function checkEvidence({ evidence, poisonId, crash }: ProofInput): Check[] {
  const { committed, delivered, dead, lost, rolledBack, leaked, orderViolations, orders, duplicates, status } =
    evidence;
  const adds = committed === delivered + dead;
  return [
    {
      claim: 'nothing lost',
      holds: committed > 0 && lost === 0 && adds,
      shown:
        `${count(committed)} events committed ${adds ? '=' : '≠'} ` +
        `${count(delivered)} delivered + ${plural(dead, 'dead letter')}${lost > 0 ? `, ${count(lost)} lost` : ''}`,
    },
    {
      claim: 'nothing leaked',
      holds: rolledBack > 0 && leaked === 0,
      shown: `${count(rolledBack)} events rolled back after emit, ${count(leaked)} of them delivered`,
    },
    {
      claim: 'order kept',
      holds: delivered > 0 && orderViolations === 0,
      shown: `${plural(orders, 'order')}, ${count(orderViolations)} events delivered before an earlier one`,
    },
    {
      claim: 'at least once',
      // The number depends on the moment of the kill. Consumers can drop duplicates, because they have the same id.
      holds: delivered > 0,
      shown: `${plural(duplicates, 'duplicate')}, with the same event id, so that consumers can drop them`,
    },
    checkPoison(evidence, poisonId),
    checkCrash(crash),
    {
      claim: 'status agrees',
      holds: status.open === 0 && status.sent === delivered && status.failed === dead,
      shown: `outbox_status: ${count(status.sent)} SENT, ${count(status.failed)} FAILED, ${count(status.open)} open`,
    },
  ];
}

function checkPoison({ dead, deadLetters }: Evidence, poisonId: string | undefined): Check {
  const claim = 'poison contained';
  const letter = deadLetters.find(({ eventId }) => eventId === poisonId);
  if (letter === undefined) return { claim, holds: false, shown: 'the poison event is not among the dead letters' };
  const others = dead - 1;
  return {
    claim,
    holds: others === 0 && letter.error !== '',
    shown:
      `${letter.type} of order ${letter.orderId} is a dead letter after ${plural(letter.attempts, 'attempt')}: ` +
      letter.error.split('\n')[0] +
      (others > 0 ? ` (and ${plural(others, 'other')})` : ''),
  };
}

function checkCrash(crash: Crash | undefined): Check {
  const claim = 'crash survived';
  if (crash === undefined) return { claim, holds: false, shown: 'no relay was killed' };
  const { relay, pid, held, takenOver, takeoverMs } = crash;
  const died = `${relay} (pid ${pid}) was killed while it had claimed ${plural(held, 'event')}`;
  return takeoverMs === undefined
    ? { claim, holds: false, shown: `${died}; no relay took over in time` }
    : {
        claim,
        holds: true,
        shown: `${died}; another relay took over ${count(takenOver)} after ${seconds(takeoverMs)}`,
      };
}

/** The result as JSON. `committed` to `deadLetters`, `retries` and `takenOver` count events. */
export function toJson({ evidence, crash }: ProofInput, checks: readonly Check[], secondsAsked: number): object {
  return {
    ok: checks.every(({ holds }) => holds),
    committed: evidence.committed,
    rolledBack: evidence.rolledBack,
    delivered: evidence.delivered,
    duplicates: evidence.duplicates,
    lost: evidence.lost,
    leaked: evidence.leaked,
    orderViolations: evidence.orderViolations,
    deadLetters: evidence.dead,
    retries: evidence.retries,
    orders: evidence.orders,
    seconds: secondsAsked,
    ratePerSecond: Math.round(evidence.ratePerSecond),
    latencyP50Ms: round(evidence.latencyMs.p50),
    latencyP99Ms: round(evidence.latencyMs.p99),
    killedRelayPid: crash?.pid ?? null,
    takenOver: crash?.takenOver ?? 0,
    takeoverMs: crash?.takeoverMs === undefined ? null : Math.round(crash.takeoverMs),
    checks,
  };
}

export function count(n: number): string {
  return n.toLocaleString('en-US');
}

export function plural(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
}

export function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10;
}
