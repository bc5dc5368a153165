import type { ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import type { TestDatabase } from '../support/database.ts';
import { createTestDatabase } from '../support/database.ts';
import { until, within } from '../support/wait.ts';
import { type CliOptions, projectFolder, runCli, spawnCli } from './run-cli.ts';

// Two events wait in their handlers; the third writes to stdout or stderr when the file `go` is there.
const config = `
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { defineConfig } from 'postcommit';

export default defineConfig({
  handlers: {
    'order.created': {
      endless: (_event, { signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)),
    },
    'order.printed': {
      print: async (event) => {
        writeFileSync('begun', '');
        while (!existsSync('go')) await sleep(5);
        process[event.payload.stream].write('printed\\n');
      },
    },
  },
});
`;

const fast = ['--stop-timeout-ms', '100'];
const modes = {
  relay: fast,
  'relay --once': ['--once', ...fast],
  'relay --once --json': ['--once', '--json', ...fast],
};

describe('a relay that cannot go on', () => {
  let db: TestDatabase;
  let cwd: string;

  beforeEach(async () => {
    db = await createTestDatabase();
    cwd = projectFolder({ 'postcommit.config.ts': config });
  });
  afterEach(() => db.close());

  async function emitOrders(stream = 'stdout'): Promise<void> {
    await createOutbox({ db: fromPg(db.pool) }).transaction(async (_tx, emit) => {
      for (const id of ['1', '2', '3', '4'])
        await emit({ type: 'order.created', aggregate: ['order', id], payload: {} });
      await emit({ type: 'order.printed', aggregate: ['order', '5'], payload: { stream } });
    });
  }

  function start(args: string[], options: CliOptions = {}) {
    const child = spawnCli(['relay', ...args], { cwd, env: { DATABASE_URL: db.url }, ...options });
    onTestFinished(() => void child.kill('SIGKILL'));
    let stderr = '';
    child.stderr?.setEncoding('utf8').on('data', (text) => {
      stderr += text;
    });
    const ended = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
    return {
      child,
      stderr: () => stderr,
      ended: () => within(ended, { timeoutMs: 20_000, what: 'the relay has ended' }),
    };
  }

  /** Until it delivers and holds all five events. */
  async function untilHeld(child: ChildProcess): Promise<void> {
    const held = 'select count(*)::integer as n from postcommit.outbox_queue where claimed_by is not null';
    await until(async () => child.exitCode !== null || (await db.query(held))[0].n === 5, {
      timeoutMs: 20_000,
      what: 'the relay holds five events',
    });
    await until(() => child.exitCode !== null || existsSync(join(cwd, 'begun')), {
      timeoutMs: 20_000,
      what: 'the handler has begun',
    });
  }

  async function expectAllGivenBack(): Promise<void> {
    expect(await db.query('select ended_as from postcommit.outbox_relays')).toEqual([{ ended_as: 'stopped' }]);
    expect(await db.query('select seq from postcommit.outbox_queue where claimed_by is not null')).toEqual([]);
    // The aborted handlers may count as delivered or not; the attempt of none has failed.
    expect(await db.query('select from postcommit.outbox_failures')).toEqual([]);
  }

  it.each(['relay', 'relay --once'] as const)(
    'gives its events back when the reader of stdout ends: %s',
    async (mode) => {
      await emitOrders();
      const { child, ended, stderr } = start(modes[mode]);
      await untilHeld(child);
      child.stdout?.destroy();
      writeFileSync(join(cwd, 'go'), '');
      expect(await ended(), stderr()).toBe(1);
      await expectAllGivenBack();
      expect(stderr()).toMatch(
        /stdout: write EPIPE.*POSTCOMMIT_E_OUTPUT_FAILED|POSTCOMMIT_E_OUTPUT_FAILED.*write EPIPE/s,
      );
    },
  );

  it.each(['relay', 'relay --once --json'] as const)(
    'gives its events back when the reader of stderr ends: %s',
    async (mode) => {
      await emitOrders('stderr');
      const { child, ended } = start(modes[mode]);
      child.stdout?.resume();
      await untilHeld(child);
      child.stderr?.destroy();
      writeFileSync(join(cwd, 'go'), '');
      expect(await ended()).toBe(1);
      await expectAllGivenBack();
    },
  );

  it.each(['relay', 'relay --once'] as const)('gives its events back on SIGHUP: %s', async (mode) => {
    await emitOrders();
    const { child, ended, stderr } = start(modes[mode]);
    child.stdout?.resume();
    await untilHeld(child);
    child.kill('SIGHUP');
    expect(await ended(), stderr()).toBe(129);
    await expectAllGivenBack();
  });

  it('gives its events back on SIGHUP when the terminal takes stdout and stderr along', async () => {
    await emitOrders();
    const { child, ended } = start(fast);
    await untilHeld(child);
    child.stdout?.destroy();
    child.stderr?.destroy();
    child.kill('SIGHUP');
    expect(await ended()).toBe(129);
    await expectAllGivenBack();
  });

  const full = '/dev/full';
  describe.runIf(existsSync(full))('on a full disk', () => {
    function openFull(): number {
      const fd = openSync(full, 'w');
      onTestFinished(() => closeSync(fd));
      return fd;
    }

    it.each([
      { what: 'stdout', options: () => ({ stdout: openFull() }) },
      { what: 'stdout and stderr', options: () => ({ stdout: openFull(), stderr: openFull() }) },
    ])('gives its events back: $what', async ({ options }) => {
      await emitOrders();
      const { ended } = start(fast, options());
      expect(await ended()).toBe(1);
      await expectAllGivenBack();
    });

    it('gives its events back: stderr', async () => {
      await emitOrders('stderr');
      const { child, ended } = start(modes['relay --once --json'], { stderr: openFull() });
      await untilHeld(child);
      writeFileSync(join(cwd, 'go'), '');
      expect(await ended()).toBe(1);
      await expectAllGivenBack();
    });

    it('a result that could not be written is not a success', async () => {
      const env = { DATABASE_URL: db.url };
      const once = await runCli(['relay', '--once', '--json'], { cwd, env, stdout: openFull() });
      expect(once.code).toBe(1);
      expect(once.stderr).toContain('POSTCOMMIT_E_OUTPUT_FAILED');
      expect((await runCli(['status'], { cwd, env, stdout: openFull() })).code).toBe(1);
    });
  });
});
