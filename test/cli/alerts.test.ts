import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { ruleFile } from '../../src/alerts/rules.ts';
import { runHere } from './fake-terminal.ts';

test('postcommit alerts writes the rules, with thresholds of the config file and of flags', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'postcommit-alerts-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const config = join(folder, 'postcommit.config.json');
  await writeFile(config, JSON.stringify({ alerts: { pendingMax: 7, deadLettersMax: 3 } }));
  const printed = await runHere(['alerts', '--config', config]);
  expect(printed.stdout).toBe(ruleFile({ pendingMax: 7, deadLettersMax: 3 }));
  const out = join(folder, 'rules.yml');
  const args = [
    'alerts',
    '--config',
    config,
    '--pending-max',
    '9',
    '--oldest-pending-ms-max',
    '60000',
    '--selector',
    'job="a"',
    '--out',
    out,
    '--json',
  ];
  const written = await runHere(args);
  expect(JSON.parse(written.stdout)).toMatchObject({ file: out, alerts: expect.arrayContaining(['OutboxNoRelay']) });
  expect(await readFile(out, 'utf8')).toBe(
    ruleFile({ pendingMax: 9, oldestPendingMsMax: 60_000, deadLettersMax: 3, selector: 'job="a"' }),
  );
  expect(await readFile(out, 'utf8')).toContain('(outbox_oldest_event_age_seconds{job=\\"a\\"}) > 60"');
  await writeFile(config, JSON.stringify({ alerts: { pendingMax: 'many' } }));
  expect(await runHere(['alerts', '--config', config])).toMatchObject({ code: 2 });
});
