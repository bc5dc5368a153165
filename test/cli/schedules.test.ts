import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { declareSchedules } from '../../src/outbox/maintaining/declare-schedules.ts';
import { recordScheduleFailure } from '../../src/outbox/maintaining/record-schedule.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { until } from '../support/wait.ts';
import { operatorOf, runHere } from './fake-terminal.ts';
import { jsonError, projectFolder, runCli, spawnCli } from './run-cli.ts';

describe('an operator of schedules', () => {
  let db: TestDatabase;
  let token: string;
  const { here, json } = operatorOf(() => db.url);
  const stopRelays = () => db.query(`update postcommit.outbox_relays set ended_at = now(), ended_as = 'stopped'`);

  beforeAll(async () => {
    db = await createTestDatabase();
  });
  afterAll(() => db.close());
  beforeEach(async () => {
    await db.query('truncate postcommit.outbox_schedules');
    token = await registerRelay(db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 3_600_000 });
    await declareSchedules(db.pool, 'postcommit', { token, name: 'r' }, [
      { name: 'nightly-report', cron: '0 3 * * *', timeZone: 'Europe/Berlin' },
      { name: 'poll', cron: '*/10 * * * * *', timeZone: 'UTC' },
    ]);
    await db.query(`update postcommit.outbox_schedules set next_tick_at = now() + interval '90 minutes'`);
  });

  it('sees every schedule, and why it emits nothing', async () => {
    await recordScheduleFailure(db.pool, 'postcommit', 'poll', 'no such customer\x1b[2J');
    const [text, answer] = await Promise.all([
      runCli(['schedules'], { env: { DATABASE_URL: db.url } }),
      json('schedules', 'list'),
    ]);
    expect(text).toMatchObject({ code: 0, stderr: '' });
    const [head, ...lines] = text.stdout.trimEnd().split('\n');
    expect(head).toMatch(/^SCHEDULE +STATE +CRON +TIME ZONE +LAST TICK +NEXT TICK +EMITTED +RELAYS +DECLARED BY +WHY$/);
    expect(lines).toEqual([
      expect.stringMatching(/^nightly-report +active +0 3 \* \* \* +Europe\/Berlin +- +in 1 h 29 min +0 +1 +r +-$/),
      expect.stringMatching(/^poll +failing .* no such customer\\x1b\[2J$/),
    ]);
    expect(answer.schedules).toMatchObject([
      { name: 'nightly-report', state: 'active' },
      { name: 'poll', failures: 1 },
    ]);
  });

  it('pauses and resumes', async () => {
    const paused = await here('schedules', 'pause', 'poll', '--why', 'the partner migrates');
    expect(paused.stdout).toBe(
      'poll is paused: its ticks are skipped\nto resume: npx postcommit schedules resume poll\n',
    );
    const status = await here('status');
    expect(status.stdout).toMatch(/\npoll +paused .* the partner migrates\n/);
    expect(status.stdout).not.toContain('nightly-report');
    expect(await json('status')).toMatchObject({ schedules: [{ state: 'active' }, { state: 'paused' }] });
    expect(await json('schedules', 'resume', 'poll')).toMatchObject({ name: 'poll', state: 'active' });
    const doctor = await json('doctor', '--only', 'schedules');
    expect(doctor.findings).toMatchObject([{ severity: 'ok', what: '2 schedules' }]);
  });

  it('reports a schedule that is overdue in the doctor', async () => {
    await db.query(
      `update postcommit.outbox_schedules set next_tick_at = now() - interval '2 minutes' where name = 'poll'`,
    );
    const doctor = await here('doctor', '--only', 'schedules');
    expect(doctor.code).toBe(1);
    expect(doctor.stdout).toContain('schedules: the schedule poll is overdue: its tick of 20');
    expect((await here('status')).stdout).toMatch(/\npoll +overdue /);
  });

  it('triggers, and is told when no relay emits it', async () => {
    expect((await here('schedules', 'trigger', 'poll', '--wait-ms', '0')).stdout).toBe(
      'poll: requested, and no relay has emitted it yet\n',
    );
    await stopRelays();
    expect((await here('schedules', 'trigger', 'poll', '--wait-ms', '0')).stdout).toBe(
      'poll: requested, and no relay has emitted it yet: no live relay has it\n',
    );
    expect(await json('schedules')).toMatchObject({ schedules: [{}, { triggersWaiting: 2 }] });
  });

  it('removes one that no relay has', async () => {
    const inUse = await here('schedules', 'remove', 'poll', '--json');
    expect(inUse.code).toBe(1);
    expect(jsonError(inUse)).toMatchObject({
      code: 'POSTCOMMIT_E_SCHEDULE_IN_USE',
      message: expect.stringContaining('Relays: r.'),
    });
    await stopRelays();
    expect((await here('schedules')).stdout).toMatch(/\npoll +unserved .* no live relay has it\n/);
    expect((await here('schedules', 'remove', 'poll')).stdout).toBe('poll is removed\n');
    expect(await json('schedules', 'remove', 'nightly-report')).toEqual({ removed: 'nightly-report' });
    expect((await here('schedules')).stdout).toBe('no schedules: a relay registers its schedules when it starts\n');
  });

  it('is told which schedule is meant, and nothing changes', async () => {
    for (const command of ['pause', 'resume', 'trigger', 'remove']) {
      const result = await here('schedules', command, 'pol');
      expect(result).toMatchObject({ code: 1, stdout: '' });
      expect(result.stderr).toContain('Known schedules: nightly-report, poll. Did you mean poll?');
    }
  });

  it('runs them from a config file, also one without functions', async () => {
    const event = { type: 'poll.requested', payload: {} };
    const config = { schedules: { poll: { cron: '* * * * * *', event } }, handlers: './handlers.mjs' };
    const cwd = projectFolder({
      'postcommit.config.json': JSON.stringify(config),
      'handlers.mjs': `export default { 'poll.requested': { done: async () => {} } };`,
    });
    await stopRelays();
    const relay = spawnCli(['relay', '--name', 'cli'], { cwd, env: { DATABASE_URL: db.url } });
    try {
      const sent = `select from postcommit.outbox_status where status = 'SENT' and headers ->> 'schedule-name' = 'poll'`;
      await until(async () => (await db.query(sent)).length >= 2, { what: 'two are delivered', timeoutMs: 40_000 });
      expect((await here('schedules', 'trigger', 'poll')).stdout).toBe('poll: event emitted\n');
    } finally {
      relay.kill('SIGKILL');
    }
    const bad = projectFolder({
      'postcommit.config.json': JSON.stringify({ ...config, schedules: { poll: { cron: '0 0 31 2 *', event } } }),
      'handlers.mjs': `export default { 'poll.requested': { done: async () => {} } };`,
    });
    const refused = await runHere(['relay', '--json'], { cwd: bad, env: { DATABASE_URL: db.url } });
    expect(refused.code).toBe(2);
    expect(jsonError(refused)).toMatchObject({
      code: 'POSTCOMMIT_E_BAD_SCHEDULE',
      message: expect.stringContaining('never fires'),
    });
  }, 60_000);
});
