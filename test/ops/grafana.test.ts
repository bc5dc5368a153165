import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { findPrometheusProgram } from '../../services/prometheus.ts';
import { runCommand } from '../../services/run-command.ts';
import { type MetricDefinition, metricDefinitions, metricNames } from '../../src/metrics/definitions.ts';

interface Panel {
  id: number;
  type: string;
  title: string;
  gridPos: { x: number; w: number };
  targets?: { expr: string; legendFormat: string }[];
}

interface Dashboard {
  templating: { list: { query: string | { query: string } }[] };
  panels: Panel[];
}

const folder = 'ops/grafana';
const files = (await readdir(folder)).filter((file) => file.endsWith('.json'));
/** Labels that Prometheus adds, and the one of buckets. */
const furtherLabels = ['job', 'instance', 'pod', 'le'];

async function readDashboard(file: string): Promise<Dashboard> {
  return JSON.parse(await readFile(join(folder, file), 'utf8'));
}

function metricsIn(expr: string): string[] {
  return [...expr.matchAll(/outbox_\w+/g)].map(([name]) => name.replace(/_(bucket|sum|count)$/, ''));
}

function targetsOf({ panels }: Dashboard) {
  return panels.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })));
}

test('there is a dashboard', () => expect(files).toContain('postcommit.json'));

describe.each(files)('%s', (file) => {
  test('names only metrics and labels that exist', async () => {
    const dashboard = await readDashboard(file);
    const queries = dashboard.templating.list.map(({ query }) => (typeof query === 'string' ? query : query.query));
    for (const name of queries.flatMap(metricsIn)) expect(metricNames).toContain(name);
    const definitions: Record<string, MetricDefinition> = metricDefinitions;
    for (const { title, expr, legendFormat } of targetsOf(dashboard)) {
      const used = metricsIn(expr);
      expect(used, title).not.toEqual([]);
      for (const name of used) expect(metricNames, title).toContain(name);
      const labels = used.flatMap((name) => definitions[name]?.labels ?? []);
      const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(','));
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
      for (const label of [...grouped, ...shown]) expect([...labels, ...furtherLabels], title).toContain(label);
    }
  });

  test('shows every metric', async () => {
    const shown = targetsOf(await readDashboard(file)).flatMap(({ expr }) => metricsIn(expr));
    expect(metricNames.filter((name) => !shown.includes(name))).toEqual([]);
  });

  test('has expressions that Prometheus accepts', async () => {
    const exprs = targetsOf(await readDashboard(file)).map(({ expr }) =>
      expr.replaceAll('$__rate_interval', '5m').replaceAll('$job', '.+'),
    );
    const rules = exprs.map((expr, n) => ({ record: `panel:${n}`, expr }));
    const scratch = await mkdtemp(join(tmpdir(), 'postcommit-grafana-'));
    onTestFinished(() => rm(scratch, { recursive: true, force: true }));
    await writeFile(join(scratch, 'rules.yml'), JSON.stringify({ groups: [{ name: 'panels', rules }] }));
    const promtool = await findPrometheusProgram('promtool', () => {});
    const said = await runCommand(promtool, ['check', 'rules', 'rules.yml'], scratch);
    expect(said).toContain(`${rules.length} rules found`);
  }, 300_000);

  test('has panels with ids of their own, inside the grid', async () => {
    const { panels } = await readDashboard(file);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    for (const { title, gridPos } of panels) expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
    const rows = panels.filter(({ type }) => type === 'row').map(({ title }) => title);
    expect(rows).toEqual(
      expect.arrayContaining(['Latency', 'Throughput', 'Errors', 'Backlog and age', 'Destinations', 'Relays']),
    );
  });
});
