import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

/** A logger that fails at every line from the level warn on, as one whose worker thread has exited does. */
function failingLogger(fail: () => unknown) {
  let lines = 0;
  const failing = () => {
    lines++;
    return fail();
  };
  const logger = { debug() {}, info() {}, warn: failing, error: failing };
  return { logger, lines: () => lines };
}

const gone = () => new Error('the worker has exited');
const ways: [string, () => unknown][] = [
  [
    'throws',
    () => {
      throw gone();
    },
  ],
  ['rejects', () => Promise.reject(gone())],
];

describe.each(ways)('a logger that %s changes nothing (G2)', (_name, fail) => {
  function setUp() {
    const written = vi.spyOn(console, 'error').mockImplementation(() => {});
    const unhandled: unknown[] = [];
    const note = (error: unknown) => void unhandled.push(error);
    process.on('unhandledRejection', note);
    onTestFinished(() => {
      process.off('unhandledRejection', note);
      written.mockRestore();
    });
    return { ...failingLogger(fail), written, unhandled };
  }

  test(
    'events whose attempt failed are retried, and dead letters written',
    withScenario(async (scenario) => {
      const { logger, lines, written, unhandled } = setUp();
      await scenario.relay('one', { logger, retry: { delaysMs: [50, 50] } });
      await scenario.emit([
        ...Array.from({ length: 10 }, (_, n) => ({ aggregateId: `a${n}`, script: { failTimes: 1 } })),
        { aggregateId: 'dead', script: { reject: true } },
      ]);
      await scenario.drained(10_000);
      expect(await scenario.db.query('select reason from postcommit.outbox_dead_letters')).toHaveLength(1);
      expect(lines()).toBeGreaterThan(0);
      await sleep(10); // An unhandled rejection is reported a moment later.
      expect(unhandled).toEqual([]);
      expect(written.mock.calls.flat().filter((line) => String(line).includes('the worker has exited'))).toHaveLength(
        1,
      );
    }),
  );

  test(
    'a lane whose claim failed goes on',
    withScenario(async (scenario) => {
      const { logger, lines, unhandled } = setUp();
      await scenario.relay('one', { logger });
      const rename = (from: string, to: string) =>
        scenario.db.query(`do $$ declare name regprocedure; begin
          for name in select p.oid from pg_proc p where p.pronamespace = 'postcommit'::regnamespace and p.proname ~ '^${from}'
          loop execute format('alter function %s rename to %I', name,
                              regexp_replace((select proname from pg_proc where oid = name), '^${from}', '${to}')); end loop;
        end $$`);
      await rename('claim_', 'away_');
      await scenario.emitLine('a', 1);
      await until(() => lines() > 0, { what: 'a claim failed' });
      await rename('away_', 'claim_');
      await scenario.drained(10_000);
      await sleep(10);
      expect(unhandled).toEqual([]);
    }),
  );
});
