import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { unknownOption } from '../suggest.ts';

/** When alerts fire. Each is compared with metrics of `docs/metrics.md`. */
export interface AlertThresholds {
  /** OutboxQueueBacklog: undelivered events. Default 1,000. */
  pendingMax?: number;
  /** OutboxOldestEventAge: for how long the oldest due event may have been due, in milliseconds. Default 300,000 (5 minutes). */
  oldestPendingMsMax?: number;
  /** OutboxHighErrorRate: the share of attempts that may fail, from 0 to 1. Default 0.05. */
  errorRateMax?: number;
  /** OutboxSlowProcessing: the 99th percentile of one attempt, in milliseconds. Default 30,000. */
  processingMsMax?: number;
  /** OutboxDeadLetters: dead letters that are tolerated. Default 0. */
  deadLettersMax?: number;
  /** OutboxSlotRetention: WAL that a replication slot may retain. Default 5,368,709,120 (5 GiB). */
  slotBytesMax?: number;
  /** Label matchers for every metric, e.g. `job="orders-relay"`, where one Prometheus watches several outboxes. Default: none. */
  selector?: string;
  /** Where the runbooks are. Default `node_modules/postcommit/docs/runbooks`. */
  runbookUrl?: string;
}

export interface AlertRule {
  alert: string;
  expr: string;
  /** For how long `expr` must hold. */
  for: string;
  severity: 'critical' | 'warning';
  summary: string;
}

export const alertThresholdDefaults: Required<AlertThresholds> = {
  pendingMax: 1_000,
  oldestPendingMsMax: 300_000,
  errorRateMax: 0.05,
  processingMsMax: 30_000,
  deadLettersMax: 0,
  slotBytesMax: 5_368_709_120,
  selector: '',
  runbookUrl: 'node_modules/postcommit/docs/runbooks',
};

/** Fills in the defaults and checks the thresholds. */
export function resolveThresholds(given: AlertThresholds = {}): Required<AlertThresholds> {
  if (typeof given !== 'object' || given === null) throw bad('alerts must be an object of thresholds.');
  const unknown = unknownOption(given, Object.keys(alertThresholdDefaults));
  if (unknown !== undefined) throw bad(`alerts: ${unknown}`);
  for (const [name, value] of Object.entries(given)) {
    const isText = name === 'selector' || name === 'runbookUrl';
    const isRight = isText ? typeof value === 'string' : Number.isFinite(value) && value >= 0;
    if (!isRight) throw bad(`alerts.${name} must be a ${isText ? 'text' : 'number from 0 on'}. Got ${shown(value)}.`);
  }
  return { ...alertThresholdDefaults, ...given };
}

/**
 * The rules. Gauges of the outbox come from one relay, and for a moment from two when it changes: `max` over the processes counts
 * nothing twice. Other labels stay, so that each outbox has alerts of its own.
 */
export function alertRules(thresholds: Required<AlertThresholds>): AlertRule[] {
  const t = thresholds;
  const metric = (name: string, matchers = '') => {
    const all = [matchers, t.selector].filter(Boolean).join(',');
    return all === '' ? name : `${name}{${all}}`;
  };
  const gauge = (name: string, offset = '') => `max without (instance, pod) (${metric(name)}${offset})`;
  const pending = gauge('outbox_events_pending');
  const tasks = gauge('outbox_tasks_pending');
  const attempts = (matchers = '') =>
    `sum without (instance, pod, outcome) (rate(${metric('outbox_task_processed_total', matchers)}[5m]))`;
  const completed = metric('outbox_task_processed_total', 'outcome="completed"');
  return [
    {
      alert: 'OutboxQueueBacklog',
      expr: `${pending} > ${t.pendingMax}`,
      for: '2m',
      severity: 'warning',
      summary: '{{ $value }} events are not delivered',
    },
    {
      alert: 'OutboxOldestEventAge',
      expr: `${gauge('outbox_oldest_event_age_seconds')} > ${t.oldestPendingMsMax / 1_000}`,
      for: '2m',
      severity: 'critical',
      summary: 'the oldest due event has waited for {{ $value | humanizeDuration }}',
    },
    {
      alert: 'OutboxBacklogGrowing',
      // Higher than five minutes ago, higher then than ten minutes ago, and never lower in between.
      expr: [
        `${pending} > ${gauge('outbox_events_pending', ' offset 5m')}`,
        `and ${gauge('outbox_events_pending', ' offset 5m')} > ${gauge('outbox_events_pending', ' offset 10m')}`,
        `and resets((${pending})[10m:30s]) == 0`,
      ].join(' '),
      for: '1m',
      severity: 'warning',
      summary: 'the number of undelivered events has grown for 10 minutes without falling, {{ $value }} by now',
    },
    {
      alert: 'OutboxHighErrorRate',
      expr: `${attempts('outcome="failed"')} / ${attempts()} > ${t.errorRateMax}`,
      for: '2m',
      severity: 'warning',
      summary: '{{ $value | humanizePercentage }} of attempts fail',
    },
    {
      alert: 'OutboxSlowProcessing',
      expr: `histogram_quantile(0.99, sum without (instance, pod) (rate(${metric('outbox_task_duration_seconds_bucket')}[5m]))) > ${t.processingMsMax / 1_000}`,
      for: '5m',
      severity: 'warning',
      summary: 'one of a hundred attempts takes {{ $value | humanizeDuration }} or longer',
    },
    {
      alert: 'OutboxStuckTasks',
      // Waiting for all of the ten minutes: in an idle outbox nothing is completed either, and one failed attempt is not stuck.
      expr: [
        `${tasks} > 0`,
        `and ${gauge('outbox_tasks_pending', ' offset 10m')} > 0`,
        `and min_over_time((${tasks})[10m:30s]) > 0`,
        `and sum without (instance, pod, outcome) (increase(${completed}[10m])) == 0`,
      ].join(' '),
      for: '1m',
      severity: 'critical',
      summary: '{{ $value }} events are due, and none was delivered for 10 minutes',
    },
    {
      alert: 'OutboxDeadLetters',
      expr: `${gauge('outbox_dead_letters')} > ${t.deadLettersMax}`,
      for: '1m',
      severity: 'warning',
      summary: '{{ $value }} events are dead letters',
    },
    {
      alert: 'OutboxDestinationDown',
      expr: `${gauge('outbox_destination_down')} == 1`,
      for: '2m',
      severity: 'critical',
      summary: 'the destination {{ $labels.destination }} is down',
    },
    {
      alert: 'OutboxSlotRetention',
      expr: `${gauge('outbox_slot_retained_bytes')} > ${t.slotBytesMax}`,
      for: '5m',
      severity: 'critical',
      summary: 'the replication slot {{ $labels.slot }} retains {{ $value | humanize1024 }}B of WAL',
    },
    {
      alert: 'OutboxNoRelay',
      expr: `absent(${metric('outbox_relays_alive')})`,
      for: '2m',
      severity: 'critical',
      summary: 'no relay reports the state of the outbox',
    },
  ];
}

/** The file of a runbook: `outbox-queue-backlog.md`. */
export function runbookOf(alert: string): string {
  return `${alert.replace(/(?<!^)[A-Z]/g, (letter) => `-${letter}`).toLowerCase()}.md`;
}

/** A rule file of Prometheus, as YAML. Every text is in JSON's quotes, which YAML reads as they are. */
export function ruleFile(given?: AlertThresholds): string {
  const thresholds = resolveThresholds(given);
  const rules = alertRules(thresholds).map(({ alert, expr, for: holds, severity, summary }) =>
    [
      `      - alert: ${alert}`,
      `        expr: ${JSON.stringify(expr)}`,
      `        for: ${holds}`,
      `        labels:`,
      `          severity: ${severity}`,
      `        annotations:`,
      `          summary: ${JSON.stringify(summary)}`,
      `          runbook_url: ${JSON.stringify(`${thresholds.runbookUrl}/${runbookOf(alert)}`)}`,
    ].join('\n'),
  );
  return `# Written by \`postcommit alerts\`.\ngroups:\n  - name: postcommit\n    rules:\n${rules.join('\n')}\n`;
}

function bad(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}
