import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type HandlerContext, type OutboxAdmin } from '../../src/index.ts';
import { sweepProgress } from '../../src/outbox/maintaining/sweep-progress.ts';
import type { Handler } from '../../src/relay/deliver/handlers.ts';
import { runHere } from '../cli/fake-terminal.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { type Deferred, deferred, until } from '../support/wait.ts';

describe.each(postgresVersions)('progress, on PostgreSQL %i', (version) => {
  const create = (options: { encoding?: string } = {}) =>
    RelayScenario.create({ serverUrl: serverUrlOf(version), ...options });

  /** A relay whose handler passes its context on and works until it is told to end. */
  async function working(
    check: (parts: {
      scenario: RelayScenario;
      admin: OutboxAdmin;
      ctx: HandlerContext;
      id: string;
      end: Deferred<void>;
    }) => Promise<void>,
    options: { encoding?: string } = {},
  ): Promise<void> {
    const scenario = await create(options);
    const end = deferred();
    try {
      const contexts: HandlerContext[] = [];
      const generate: Handler = (_event, ctx) => {
        contexts.push(ctx);
        return end.promise;
      };
      await scenario.relay('worker', {
        handlers: { scripted: { generate } },
        pollIntervalMs: 100,
        stopTimeoutMs: 0,
        maintenance: false, // A test sweeps and counts what it deletes.
      });
      const [id = ''] = await scenario.emit([{ aggregateId: 'a' }]);
      await until(() => contexts.length === 1, { what: 'the handler works' });
      const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
      await check({ scenario, admin, ctx: contexts[0] as HandlerContext, id, end });
    } finally {
      end.resolve();
      await scenario.close();
    }
  }

  const rows = async ({ db }: RelayScenario) =>
    (await db.query('select count(*)::integer as n from postcommit.outbox_progress'))[0].n;

  test('is shown with its event, in status and by the API, and is gone when the handler has ended', () =>
    working(async ({ scenario, admin, ctx, id, end }) => {
      expect(await admin.find(id)).toMatchObject({ status: 'PROCESSING', progress: [] });
      ctx.progress(0.1);
      ctx.progress(0.4, 'page 4 of 10');
      const reported = { handler: 'generate', attempt: 1, fraction: 0.4, note: 'page 4 of 10' };
      await until(async () => (await admin.progress()).length === 1, { what: 'it is written' });
      const seen = { ...reported, since: expect.any(Date), reportedAt: expect.any(Date) };
      expect(await admin.find(id)).toMatchObject({ progress: [seen] });
      expect(await admin.progress()).toEqual([
        { ...seen, id, seq: '1', type: 'scripted', aggregate: { type: 'thing', id: 'a' }, relay: 'worker' },
      ]);
      const here = (...args: string[]) => runHere(args, { env: { DATABASE_URL: scenario.db.url } });
      expect((await here('events', id)).stdout).toMatch(/progress +40 % in generate, page 4 of 10 \(/);
      expect((await here('status')).stdout).toMatch(new RegExp(`${id} .* generate .* 40 % .* page 4 of 10`));
      expect(JSON.parse((await here('status', '--json')).stdout)).toMatchObject({ progress: [{ id, ...reported }] });

      ctx.progress(1);
      await until(async () => (await admin.progress())[0]?.fraction === 1, { what: 'the next report replaces it' });
      end.resolve();
      await scenario.drained();
      expect(await admin.find(id)).toMatchObject({ status: 'SENT', progress: [] });
      await until(async () => (await rows(scenario)) === 0, { what: 'its row is deleted' });
      ctx.progress(0.5, 'too late');
      ctx.progress(Number.NaN);
    }));

  test('that is reported ten thousand times a second is written once a second', () =>
    working(async ({ scenario, admin, ctx }) => {
      await scenario.db.query('create table written (at timestamptz default clock_timestamp())');
      await scenario.db.query(
        `create function note_write() returns trigger language plpgsql as
         $$ begin insert into public.written default values; return null; end $$`,
      );
      await scenario.db.query(
        `create trigger note_write after insert or update or delete on postcommit.outbox_progress
         for each statement execute function note_write()`,
      );
      const startedAt = performance.now();
      let reports = 0;
      while (reports < 30_000) {
        for (let i = 0; i < 1_000; i++) ctx.progress(++reports / 30_000, `page ${reports}`);
        const nextAt = startedAt + reports / 10;
        await until(() => performance.now() >= nextAt, { what: 'the next thousand are due' });
      }
      await until(async () => (await admin.progress())[0]?.note === 'page 30000', { what: 'the last one is written' });
      const seconds = (performance.now() - startedAt) / 1_000;
      // One statement fires the trigger of each kind: INSERT, UPDATE of the conflicting row, DELETE of ended ones.
      const [{ n }] = await scenario.db.query('select count(distinct at)::integer as n from written');
      const [{ statements }] = await scenario.db.query('select count(*)::integer as statements from written');
      expect(n).toBeGreaterThan(1);
      expect(statements / 3).toBeLessThanOrEqual(Math.ceil(seconds) + 1);
    }));

  test('that is not a fraction is an error with a code', () =>
    working(async ({ ctx }) => {
      const code = 'POSTCOMMIT_E_BAD_ARGUMENT';
      for (const wrong of [Number.NaN, -0.1, 1.1, Number.POSITIVE_INFINITY, '0.5' as never, undefined as never]) {
        expect(() => ctx.progress(wrong)).toThrow(expect.objectContaining({ code }));
      }
      expect(() => ctx.progress(0.5, 7 as never)).toThrow(expect.objectContaining({ code }));
    }));

  test('has a note of any text: it is cut, and what PostgreSQL cannot store is replaced', () =>
    working(async ({ admin, ctx }) => {
      ctx.progress(0.5, `a\0b\ud83d ${'x'.repeat(1_000)}`);
      await until(async () => (await admin.progress()).length === 1, { what: 'it is written' });
      expect((await admin.progress())[0]?.note).toBe(`a\ufffdb\ufffd ${'x'.repeat(495)}`);
    }));

  test('has a note that the encoding of the database lacks: it is written in ASCII', () =>
    working(
      async ({ admin, ctx }) => {
        ctx.progress(0.5, 'ページ 4');
        await until(async () => (await admin.progress()).length === 1, { what: 'it is written' });
        expect((await admin.progress())[0]?.note).toBe('\\u30da\\u30fc\\u30b8 4');
      },
      { encoding: 'LATIN1' },
    ));

  test('of a relay that crashed is not shown, and maintenance deletes it', () =>
    working(async ({ scenario, admin, ctx, id }) => {
      ctx.progress(0.5);
      await until(async () => (await admin.progress()).length === 1, { what: 'it is written' });
      await scenario.db.query(
        `insert into postcommit.outbox_progress (seq, handler, relay, attempt, fraction) values (1, 'old', 1, 1, 0.9), (7, 'a', 1, 1, 0)`,
      );
      expect((await admin.find(id))?.progress.map(({ handler }) => handler)).toEqual(['generate']);
      expect(await admin.progress()).toHaveLength(1);
      expect(await sweepProgress(scenario.db.pool, 'postcommit')).toBe(2);
      expect(await admin.progress()).toHaveLength(1);
    }));

  test('of many handlers is listed up to the limit, longest first', () =>
    working(async ({ admin, ctx }) => {
      ctx.progress(0.5);
      await until(async () => (await admin.progress({ limit: 1 })).length === 1, { what: 'it is written' });
      for (const limit of [0, -1, 1_001, 1.5]) {
        await expect(admin.progress({ limit })).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_FILTER' });
      }
      await expect(admin.progress({ limt: 1 } as never)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    }));

  test('is deleted when the relay stops', async () => {
    const scenario = await create();
    try {
      const hang: Handler = (_event, ctx) => {
        ctx.progress(0.2, 'waiting');
        return new Promise(() => {});
      };
      const handlers = { scripted: { hang } };
      const relay = await scenario.relay('worker', { handlers, pollIntervalMs: 100, stopTimeoutMs: 0 });
      await scenario.emit([{ aggregateId: 'a' }]);
      await until(async () => (await rows(scenario)) === 1, { what: 'it is written' });
      await relay.stop();
      expect(await rows(scenario)).toBe(0);
    } finally {
      await scenario.close();
    }
  });
});
