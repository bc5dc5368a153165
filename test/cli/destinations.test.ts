import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { circuitProven, closeCircuit } from '../../src/outbox/delivering/close-circuit.ts';
import { openCircuit } from '../../src/outbox/delivering/open-circuit.ts';
import { registerDestinations } from '../../src/outbox/delivering/register-destinations.ts';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { Scene } from '../admin/scene.ts';
import { operatorOf, runHere } from './fake-terminal.ts';
import { jsonError, runCli } from './run-cli.ts';

describe('an operator whose broker is down', () => {
  let scene: Scene;
  let ids: string[];
  const { here, json } = operatorOf(() => scene.db.url);
  /** In a process of its own, as users run it. */
  const run = (...args: string[]) => runCli(args, { env: { DATABASE_URL: scene.db.url } });

  beforeAll(async () => {
    scene = await Scene.create();
    ids = await scene.emit(Array.from({ length: 4 }, (_, i) => ({ aggregate: ['order', String(i)] as const })));
    await scene.shelve(ids.slice(0, 2), ['kafka'], ['audit']);
    await scene.shelve(ids.slice(2, 3), ['kafka', 'webhooks']);
    await registerDestinations(scene.db.pool, 'postcommit', ['nats']);
    const targets = ['kafka', 'nats', 'webhooks'];
    await registerRelay(scene.db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 3_600_000, targets });
  });
  afterAll(() => scene.close());

  /** As a probe and a delivered event do. */
  const endOutage = async (name: string) => {
    await closeCircuit(scene.db.pool, 'postcommit', name);
    await circuitProven(scene.db.pool, 'postcommit', name);
  };

  beforeEach(async () => {
    for (const name of ['kafka', 'webhooks', 'nats']) await scene.admin.resumeDestination(name);
    await endOutage('kafka');
    await openCircuit(
      scene.db.pool,
      'postcommit',
      { destination: 'kafka', error: 'connect ECONNREFUSED\x1b[2J', retryAfterMs: 0 },
      { probeDelayMs: 600_000, probeDelayMsMax: 600_000 },
    );
  });

  it('sees every destination', async () => {
    await scene.admin.pauseDestination('webhooks', { reason: 'the partner migrates' });
    const [text, answer] = await Promise.all([run('destinations'), json('destinations')]);
    expect(text).toMatchObject({ code: 0, stderr: '' });
    const [head, ...lines] = text.stdout.trimEnd().split('\n');
    expect(head).toMatch(/^DESTINATION +STATE +RELAYS +WAITING +OLDEST +SINCE +NEXT PROBE +WHY$/);
    expect(lines).toEqual([
      expect.stringMatching(/^kafka +down +1 +3 +\d+ m?s +20\S+ \S+Z +in \d+ min.* connect ECONNREFUSED\\x1b\[2J$/),
      expect.stringMatching(/^nats +up +1 +0 +- +- +- +-$/),
      expect.stringMatching(/^webhooks +paused +1 +1 +\d+ m?s +20\S+ \S+Z +- +the partner migrates$/),
    ]);
    expect(answer).toEqual({
      destinations: [
        expect.objectContaining({ name: 'kafka', state: 'down', waiting: 3, error: 'connect ECONNREFUSED\x1b[2J' }),
        { name: 'nats', state: 'up', waiting: 0, relays: 1 },
        expect.objectContaining({ name: 'webhooks', state: 'paused', waiting: 1, reason: 'the partner migrates' }),
      ],
    });
  });

  it('sees in the status what is down or paused, and how much waits', async () => {
    await scene.admin.pauseDestination('nats');
    const [text, answer, late] = await Promise.all([
      here('status'),
      json('status'),
      here('status', '--oldest-pending-ms-max', '0', '--pending-max', '3', '--json'),
    ]);
    expect(text.stdout).toMatch(/pending +4 +oldest due for/);
    expect(text.stdout).toMatch(/ {2}shelved +3 +waiting for a destination that is down or paused/);
    expect(text.stdout).toMatch(/delivered +0\n/);
    expect(text.stdout).toMatch(/\nkafka +down +1 +3 .*ECONNREFUSED/);
    expect(text.stdout).toMatch(/\nnats +paused +1 +0 /);
    // It is up, and what waited is about to be sent.
    expect(text.stdout).toMatch(/\nwebhooks +draining +1 +1 /);
    expect(answer).toMatchObject({
      pending: 4,
      shelved: 3,
      exact: { shelved: true },
      destinations: [
        { name: 'kafka', state: 'down', waiting: 3 },
        { name: 'nats', state: 'paused', waiting: 0 },
        { name: 'webhooks', state: 'up', waiting: 1 },
      ],
    });
    expect(late.code).toBe(1);
    expect(JSON.parse(late.stdout).exceeded).toMatchObject([{ check: 'pendingMax' }, { check: 'oldestPendingMsMax' }]);
  });

  it('reads in an event’s story what it waits for, in plain words', async () => {
    await scene.admin.pauseDestination('webhooks', { reason: 'the partner\nmigrates' });
    const [one, both, answer] = await Promise.all([
      run('events', ids[0] ?? ''),
      here('events', ids[2] ?? ''),
      json('events', ids[2] ?? ''),
    ]);
    expect(one).toMatchObject({ code: 0, stderr: '' });
    for (const part of [
      'order.created  order:0  PENDING',
      /waits for +destination kafka, which is down since 20\S+ \S+Z \(\d+ m?s\): connect ECONNREFUSED\\x1b\[2J\n/,
      /delivered to +audit\n/,
      /Z {2}shelved until kafka is up; no attempt counted\n/,
      'postcommit destinations resume kafka ',
      'postcommit destinations ',
    ]) {
      expect(one.stdout).toMatch(part);
    }
    expect(one.stdout).not.toContain('\x1b');
    expect(both.stdout).toMatch(/waits for +destination kafka, which is down since/);
    expect(both.stdout).toMatch(/waits for +destination webhooks, which is paused since .*: the partner ⏎ migrates\n/);
    expect(answer).toMatchObject({ status: 'PENDING', waitingFor: ['kafka', 'webhooks'] });
    expect(Date.parse(answer.waitingSince)).toBeGreaterThan(0);

    await endOutage('kafka');
    const back = await here('events', ids[0] ?? '');
    expect(back.stdout).toMatch(/destination kafka, which is up; relays are sending the events that waited for it\n/);
    // A destination without a row in the database is still named.
    await scene.db.query(`delete from postcommit.outbox_destinations where destination = 'webhooks'`);
    const forgotten = await here('events', ids[2] ?? '');
    expect(forgotten.stdout).toMatch(/waits for +destination webhooks\n/);
    await registerDestinations(scene.db.pool, 'postcommit', ['webhooks']);
  });

  it('lists it with the pending events', async () => {
    const page = await json('events', '--status', 'pending', '--order', 'oldest');
    expect(page.events.map(({ id }: { id: string }) => id)).toEqual(ids);
  });

  it('pauses and resumes', async () => {
    const paused = await run('destinations', 'pause', 'kafka', '--why', 'cluster upgrade');
    expect(paused).toEqual({
      code: 0,
      stdout:
        'kafka is paused: relays send nothing to it and keep its events. 3 events waiting.\nto resume: npx postcommit destinations resume kafka\n',
      stderr: '',
    });
    expect(await scene.admin.destinations()).toMatchObject([
      { name: 'kafka', state: 'paused', reason: 'cluster upgrade' },
      { name: 'nats', state: 'up' },
      { name: 'webhooks', state: 'up' },
    ]);
    expect(await run('destinations', 'resume', 'kafka')).toEqual({
      code: 0,
      stdout: 'kafka is resumed. It was down: a relay probes it now\n',
      stderr: '',
    });
    await here('destinations', 'pause', 'webhooks');
    expect((await here('destinations', 'resume', 'webhooks')).stdout).toBe(
      'webhooks is resumed: relays now send 1 event that waited\n',
    );
    expect(await json('destinations', 'pause', 'nats')).toEqual({
      name: 'nats',
      state: 'paused',
      waiting: 0,
      relays: 1,
      pausedAt: expect.any(String),
    });
    expect(await json('destinations', 'resume', 'nats')).toEqual({ name: 'nats', state: 'up', waiting: 0, relays: 1 });
    expect((await here('destinations', 'resume', 'nats')).stdout).toBe('nats is resumed\n');
  });

  it('gets a suggestion for a misspelt destination, and nothing changes', async () => {
    for (const command of ['pause', 'resume']) {
      const [text, asJson] = await Promise.all([
        here('destinations', command, 'kafak'),
        here('destinations', command, 'kafak', '--json'),
      ]);
      expect(text).toMatchObject({ code: 1, stdout: '' });
      expect(text.stderr).toContain('Known destinations: kafka, nats, webhooks. Did you mean kafka?');
      expect(asJson).toMatchObject({ code: 1, stdout: '' });
      expect(jsonError(asJson)).toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_DESTINATION' });
    }
    const long = await here('destinations', 'pause', 'kafka', '--why', 'x'.repeat(501));
    expect(long).toMatchObject({ code: 2, stdout: '' });
    expect(await scene.admin.destinations()).toMatchObject([{ name: 'kafka', state: 'down' }, {}, {}]);
  });
});

it('without any destination, the commands say so', async () => {
  const scene = await Scene.create();
  const options = { env: { DATABASE_URL: scene.db.url } };
  expect(await runHere(['destinations'], options)).toMatchObject({
    code: 0,
    stdout: 'no destinations: a relay registers its destinations when it starts\n',
  });
  expect(JSON.parse((await runHere(['destinations', '--json'], options)).stdout)).toEqual({ destinations: [] });
  const status = await runHere(['status'], options);
  expect(status.stdout).not.toMatch(/DESTINATION|shelved/);
  expect(JSON.parse((await runHere(['status', '--json'], options)).stdout)).toMatchObject({ destinations: [] });
  const pause = await runHere(['destinations', 'pause', 'kafka'], options);
  expect(pause.code).toBe(1);
  expect(pause.stderr).toContain('No relay has registered a destination yet');
  await scene.close();
});
