import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { findPrometheusProgram } from '../../services/prometheus.ts';
import { runCommand } from '../../services/run-command.ts';
import { alertRules, resolveThresholds, ruleFile, runbookOf } from '../../src/alerts/rules.ts';
import { metricNames } from '../../src/metrics/definitions.ts';

const rules = alertRules(resolveThresholds());

/** For each alert: series that make it fire by the given minute, in promtool's notation, and series that do not. */
const scenes: Record<string, { fires: Series; atMinute: number; quiet: Series }> = {
  OutboxQueueBacklog: {
    fires: { outbox_events_pending: '1001x10' },
    atMinute: 3,
    quiet: { outbox_events_pending: '1000x10' },
  },
  OutboxOldestEventAge: {
    fires: { outbox_oldest_event_age_seconds: '301x10' },
    atMinute: 3,
    quiet: { outbox_oldest_event_age_seconds: '300x10' },
  },
  OutboxBacklogGrowing: {
    fires: { outbox_events_pending: '1+1x20' },
    atMinute: 12,
    quiet: { outbox_events_pending: '1 2 3 4 2 5 6 7 8 6 9 10 11 12 13 14' },
  },
  OutboxHighErrorRate: {
    fires: {
      'outbox_task_processed_total{outcome="completed"}': '0+90x20',
      'outbox_task_processed_total{outcome="failed"}': '0+10x20',
    },
    atMinute: 6,
    quiet: {
      'outbox_task_processed_total{outcome="completed"}': '0+96x20',
      'outbox_task_processed_total{outcome="failed"}': '0+4x20',
    },
  },
  OutboxSlowProcessing: {
    fires: {
      'outbox_task_duration_seconds_bucket{le="30"}': '0+50x20',
      'outbox_task_duration_seconds_bucket{le="60"}': '0+100x20',
      'outbox_task_duration_seconds_bucket{le="+Inf"}': '0+100x20',
    },
    atMinute: 10,
    quiet: {
      'outbox_task_duration_seconds_bucket{le="30"}': '0+100x20',
      'outbox_task_duration_seconds_bucket{le="60"}': '0+100x20',
      'outbox_task_duration_seconds_bucket{le="+Inf"}': '0+100x20',
    },
  },
  OutboxStuckTasks: {
    fires: { outbox_tasks_pending: '3x40', 'outbox_task_processed_total{outcome="completed"}': '7x40' },
    atMinute: 12,
    quiet: { outbox_tasks_pending: '3x40', 'outbox_task_processed_total{outcome="completed"}': '0+1x40' },
  },
  OutboxDeadLetters: { fires: { outbox_dead_letters: '1x10' }, atMinute: 2, quiet: { outbox_dead_letters: '0x10' } },
  OutboxDestinationDown: {
    fires: { 'outbox_destination_down{destination="kafka"}': '1x10' },
    atMinute: 3,
    quiet: { 'outbox_destination_down{destination="kafka"}': '0x10' },
  },
  OutboxSlotRetention: {
    fires: { 'outbox_slot_retained_bytes{slot="s"}': '6000000000x20' },
    atMinute: 6,
    quiet: { 'outbox_slot_retained_bytes{slot="s"}': '1000000000x20' },
  },
  OutboxNoRelay: { fires: {}, atMinute: 3, quiet: { outbox_relays_alive: '1x10' } },
};

type Series = Record<string, string>;

let promtool: string;
beforeAll(async () => {
  promtool = await findPrometheusProgram('promtool', () => {});
}, 300_000);

async function folderWith(files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'postcommit-rules-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  return folder;
}

/** Fails unless the alert fires, or does not, at that minute. Files are JSON, which YAML includes. */
async function testRule(alert: string, series: Series, atMinute: number, fires: boolean): Promise<void> {
  const rule = rules.find((each) => each.alert === alert);
  // Two relays report the series, as when one has just taken over.
  const input = Object.entries(series).flatMap(([name, values]) =>
    ['a', 'b'].map((instance) => ({
      series: name.includes('{')
        ? name.replace('{', `{instance="${instance}",job="relay",`)
        : `${name}{instance="${instance}",job="relay"}`,
      values: values,
    })),
  );
  const expr = `count(ALERTS{alertname="${alert}",alertstate="firing"}) or vector(0)`;
  const check = { expr, eval_time: `${atMinute}m`, exp_samples: [{ labels: '{}', value: Number(fires) }] };
  const file = {
    rule_files: ['rules.yml'],
    evaluation_interval: '30s',
    tests: [{ interval: '1m', input_series: input, promql_expr_test: [check] }],
  };
  const folder = await folderWith({ 'rules.yml': ruleFile(), 'test.yml': JSON.stringify(file) });
  expect(rule).toBeDefined();
  await runCommand(promtool, ['test', 'rules', 'test.yml'], folder);
}

test('promtool accepts the rules, also with a selector', async () => {
  for (const text of [ruleFile(), ruleFile({ selector: 'job="orders-relay"', pendingMax: 5 })]) {
    const folder = await folderWith({ 'rules.yml': text });
    expect(await runCommand(promtool, ['check', 'rules', 'rules.yml'], folder)).toContain('10 rules found');
  }
  expect(ruleFile({ selector: 'job="x"' })).toContain('absent(outbox_relays_alive{job=\\"x\\"})');
});

describe.each(rules.map(({ alert }) => alert))('%s', (alert) => {
  const scene = scenes[alert] as (typeof scenes)[string];

  test('fires when it should', () => testRule(alert, scene.fires, scene.atMinute, true));
  test('is quiet otherwise', () => testRule(alert, scene.quiet, scene.atMinute, false));
  test('waits for its time', () => testRule(alert, scene.fires, 0, false));
});

describe('OutboxStuckTasks', () => {
  const completed = 'outbox_task_processed_total{outcome="completed"}';

  test('fires ten minutes after the last delivery, and one more', async () => {
    const series = { outbox_tasks_pending: '3x40', [completed]: '0+1x5 6x35' };
    await testRule('OutboxStuckTasks', series, 15, false);
    await testRule('OutboxStuckTasks', series, 18, true);
  });

  test('in an idle outbox, fires ten minutes after an event became due', async () => {
    const series = { outbox_tasks_pending: '0x20 1x20', [completed]: '7x40' };
    await testRule('OutboxStuckTasks', series, 30, false);
    await testRule('OutboxStuckTasks', series, 33, true);
  });

  test('is quiet while events come and go, and when a relay has just started', async () => {
    await testRule('OutboxStuckTasks', { outbox_tasks_pending: '1x15 0 1x15', [completed]: '7x40' }, 20, false);
    await testRule('OutboxStuckTasks', { outbox_tasks_pending: '_x20 1x20', [completed]: '_x20 0x20' }, 28, false);
  });
});

test('every alert has a runbook, is listed in the docs, and uses metrics that exist', async () => {
  const docs = new URL('../../docs/', import.meta.url);
  const files = rules.map(({ alert }) => runbookOf(alert));
  expect((await readdir(new URL('runbooks/', docs))).sort()).toEqual([...files].sort());
  const page = await readFile(new URL('alerts.md', docs), 'utf8');
  for (const { alert, expr } of rules) {
    expect(page).toContain(`[${alert}](runbooks/${runbookOf(alert)})`);
    const used = [...expr.matchAll(/outbox_\w+/g)].map(([name]) => name.replace(/_bucket$/, ''));
    expect(used.length).toBeGreaterThan(0);
    for (const name of used) expect(metricNames).toContain(name);
  }
});

test.each([[{ pendingMax: -1 }], [{ pendingMax: '5' }], [{ selector: 5 }], [{ pendingsMax: 1 }]])(
  'refuses %j',
  (given) => {
    expect(() => ruleFile(given as never)).toThrow(expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION' }));
  },
);
