import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { choosePort } from '../../services/ports.ts';
import { findPrometheusProgram } from '../../services/prometheus.ts';
import { ruleFile } from '../../src/alerts/rules.ts';
import { createMetrics } from '../../src/metrics/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

let program: string;
beforeAll(async () => {
  program = await findPrometheusProgram('prometheus', () => {});
}, 300_000);

/** A Prometheus that scrapes this relay every half second. Ends with the test. */
async function startPrometheus(relayUrl: string, rules: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'postcommit-prometheus-'));
  const config = {
    global: { scrape_interval: '500ms', scrape_timeout: '500ms', evaluation_interval: '500ms' },
    rule_files: ['rules.yml'],
    scrape_configs: [{ job_name: 'relay', static_configs: [{ targets: [new URL(relayUrl).host] }] }],
  };
  // JSON, which YAML includes.
  await writeFile(join(folder, 'prometheus.yml'), JSON.stringify(config));
  await writeFile(join(folder, 'rules.yml'), rules);
  const address = `127.0.0.1:${await choosePort()}`;
  const args = ['--config.file=prometheus.yml', '--storage.tsdb.path=data', `--web.listen-address=${address}`];
  const child: ChildProcess = spawn(program, args, { cwd: folder, stdio: 'ignore' });
  onTestFinished(async () => {
    if (child.exitCode === null && child.kill('SIGKILL')) await once(child, 'exit');
    await rm(folder, { recursive: true, force: true });
  });
  return `http://${address}`;
}

// biome-ignore lint/suspicious/noExplicitAny: the test knows the fields of the answer it asked for.
async function ask(url: string, path: string): Promise<any> {
  const response = await fetch(`${url}/api/v1/${path}`).catch(() => undefined);
  return response?.ok ? ((await response.json()) as { data: unknown }).data : undefined;
}

test(
  'a real Prometheus scrapes a real relay, and the alert for a backlog fires and ends',
  withScenario(async (scenario) => {
    let release: () => void = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const relay = await scenario.relay('a', {
      http: { port: 0 },
      metrics: createMetrics({ sampleIntervalMs: 200 }),
      handlers: { scripted: { wait: () => released } },
    });
    // The rules as they are written for users, but for the time that they wait.
    const rules = ruleFile({ pendingMax: 5 }).replace(/for: \d+m$/gm, 'for: 1s');
    const prometheus = await startPrometheus(relay.httpUrl ?? '', rules);
    const backlog = async () => {
      const alerts: { labels: Record<string, string>; state: string; annotations: Record<string, string> }[] =
        (await ask(prometheus, 'alerts'))?.alerts ?? [];
      return alerts.find(({ labels }) => labels.alertname === 'OutboxQueueBacklog');
    };
    const pending = async () => (await ask(prometheus, 'query?query=outbox_events_pending'))?.result[0]?.value[1];
    await until(async () => (await pending()) === '0', { what: 'Prometheus has scraped the relay', timeoutMs: 20_000 });
    expect(await backlog()).toBeUndefined();
    await scenario.emit(Array.from({ length: 6 }, (_, n) => ({ aggregateId: String(n) })));
    await until(async () => (await backlog())?.state === 'firing', { what: 'the alert fires', timeoutMs: 20_000 });
    expect(await backlog()).toMatchObject({
      labels: { severity: 'warning', job: 'relay' },
      annotations: { summary: '6 events are not delivered', runbook_url: expect.stringContaining('queue-backlog.md') },
    });
    release();
    await until(async () => (await backlog()) === undefined, { what: 'the alert ends', timeoutMs: 20_000 });
    const rulesNow: { health: string }[] = (await ask(prometheus, 'rules')).groups[0].rules;
    expect(new Set(rulesNow.map(({ health }) => health))).toEqual(new Set(['ok']));
  }),
);
