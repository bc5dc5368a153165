import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { registerRelay } from '../../src/outbox/delivering/register-relay.ts';
import { Scene } from '../admin/scene.ts';
import { operatorOf } from './fake-terminal.ts';
import { jsonError } from './run-cli.ts';

describe('an operator of several queues', () => {
  let scene: Scene;
  const { here, json } = operatorOf(() => scene.db.url);

  beforeAll(async () => {
    scene = await Scene.create();
    await scene.emit([
      { aggregate: ['order', '1'] },
      { aggregate: ['report', '1'], queue: 'reports' },
      { aggregate: ['report', '2'], queue: 'reports', delayMs: 3_600_000 },
      { aggregate: ['mail', '1'], queue: 'mail' },
    ]);
    const queues = ['default', 'reports'];
    await registerRelay(scene.db.pool, 'postcommit', { name: 'r', host: 'h', pid: 1, leaseMs: 3_600_000, queues });
  });
  afterAll(() => scene.close());

  it('sees every queue', async () => {
    const { queues } = await json('queues');
    expect(queues).toEqual([
      {
        name: 'default',
        state: 'active',
        ready: 1,
        inFlight: 0,
        waiting: 0,
        retrying: 0,
        oldestReadyAt: expect.any(String),
        oldestReadyMs: expect.any(Number),
        relays: 1,
      },
      {
        name: 'mail',
        state: 'active',
        ready: 1,
        inFlight: 0,
        waiting: 0,
        retrying: 0,
        oldestReadyAt: expect.any(String),
        oldestReadyMs: expect.any(Number),
        relays: 0,
      },
      {
        name: 'reports',
        state: 'active',
        ready: 1,
        inFlight: 0,
        waiting: 1,
        retrying: 0,
        oldestReadyAt: expect.any(String),
        oldestReadyMs: expect.any(Number),
        relays: 1,
      },
    ]);
    const text = (await here('queues')).stdout;
    expect(text).toMatch(/^QUEUE +STATE +RELAYS +READY +IN FLIGHT +WAITING +OLDEST +SINCE +WHY\n/);
    expect(text).toMatch(/\nreports +active +1 +1 +0 +1 +\d+ m?s +- +-\n/);
    expect((await here('status')).stdout).toMatch(/\nmail +active +0 +1 /);
    expect((await json('status')).queues).toHaveLength(3);
  });

  it('pauses and resumes one, and doctor reports it and the one that no relay works', async () => {
    const paused = await here('queues', 'pause', 'reports', '--why', 'restore');
    expect(paused).toMatchObject({ code: 0, stderr: '' });
    expect(paused.stdout).toContain('to resume: npx postcommit queues resume reports');
    expect((await json('queues')).queues[2]).toMatchObject({ state: 'paused', reason: 'restore' });
    const { findings } = JSON.parse((await here('doctor', '--only', 'queues', '--json')).stdout);
    expect(findings.map(({ what }: { what: string }) => what)).toEqual([
      'no live relay works the queue mail, which has 1 undelivered event',
      'the queue reports is paused (restore), with 2 undelivered events',
    ]);
    await json('queues', 'resume', 'reports');
    expect((await json('queues')).queues[2]).toMatchObject({ state: 'active' });
  });

  it('is told when there is no such queue', async () => {
    const result = await here('queues', 'pause', 'report', '--json');
    expect(result.code).toBe(1);
    expect(jsonError(result)).toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_QUEUE' });
    expect(result.stderr).toContain('Did you mean reports?');
  });

  it.each(['queues', 'destinations', 'schedules', 'events', 'dead', 'partitions'])(
    '`%s` lists, with and without `list`',
    async (noun) => {
      // Ages grow from one call to the next.
      const agelessJson = (value: unknown) => JSON.stringify(value, (name, part) => (/Ms$|At$/.test(name) ? 0 : part));
      const agelessText = ({ stdout }: { stdout: string }) => stdout.replaceAll(/\d+(\.\d+)? ?(ms|s|min)\b/g, 'age');
      expect(agelessJson(await json(noun, 'list'))).toBe(agelessJson(await json(noun)));
      expect(agelessText(await here(noun, 'list'))).toBe(agelessText(await here(noun)));
    },
  );

  it('lists events of one queue', async () => {
    const { events } = await json('events', '--queue', 'reports');
    expect(events).toHaveLength(2);
    expect((await json('events', '--queue', 'default')).events).toHaveLength(1);
    expect((await here('events', events[0].id)).stdout).toMatch(/queue +reports/);
  });

  it.each([['reports'], ['reports=0'], ['reports=x'], ['a b=1'], ['=1'], ['reports=1', 'reports=2']])(
    'refuses relay --queue %s',
    async (...given) => {
      const result = await here('relay', ...given.flatMap((queue) => ['--queue', queue]));
      expect(result.code).toBe(2);
      expect(result.stderr).toContain('--queue');
    },
  );

  it('prints a command that can be run for a name that begins with a hyphen', async () => {
    await scene.emit([{ aggregate: ['mail', '2'], queue: '-x' }]);
    const paused = await here('queues', 'pause', '--', '-x');
    const [, command = ''] = /to resume: npx postcommit (.*)\n/.exec(paused.stdout) ?? [];
    expect(command).toBe('queues resume -- -x');
    const { findings } = JSON.parse((await here('doctor', '--only', 'queues', '--json')).stdout);
    expect(findings.map(({ fix }: { fix: string }) => fix)).toContain(`npx postcommit ${command}`);
    expect(await here(...command.split(' '))).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('-x is resumed'),
    });
  });
});
