import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createReportTables } from '../../examples/reports/tables.ts';
import { type Child, endChild, startChild } from '../support/child.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { until } from '../support/wait.ts';

const year = { from: '2025-01-01', to: '2025-12-31' };
const week = { from: '2026-03-02', to: '2026-03-08' };
/** Two seconds' work. */
const quarter = { from: '2026-01-01', to: '2026-03-31' };
const withoutSales = { from: '1999-01-01', to: '1999-01-31' };
/** Two workers and a machine that is busy. */
const timeoutMs = 30_000;

describe('the example reports', () => {
  let db: TestDatabase;
  let server: Child;
  let url: string;
  /** Those that run, by name. */
  const workers = new Map<string, Child>();
  let started = 0;

  beforeAll(async () => {
    db = await createTestDatabase();
    await createReportTables(db.pool);
    server = startChild('examples/reports/server.ts', [], { DATABASE_URL: db.url });
    // What is not JSON is kept with stderr.
    const address = () => /http:\S+(?=\/reports)/.exec(server.stderr())?.[0];
    url = await until(address, { what: 'the server listens', timeoutMs });
  });

  beforeEach(async () => {
    const alive = async () =>
      (await db.query('select name from postcommit.outbox_relays where ended_at is null')).map(({ name }) => name);
    const isGone = async () => (await alive()).every((name) => workers.has(name));
    await until(isGone, { what: 'the killed worker is declared lost', timeoutMs });
    while (workers.size < 2) {
      const name = `worker ${++started}`;
      workers.set(name, startChild('examples/reports/worker.ts', [], { DATABASE_URL: db.url, WORKER_NAME: name }));
    }
    await until(async () => (await alive()).length === 2, { what: 'two workers run', timeoutMs });
  });

  afterAll(async () => {
    await Promise.all([...workers.values(), server].map(endChild));
    await db.close();
  });

  async function call(method: string, path: string, body?: unknown) {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const response = await fetch(url + path, { method, ...(body !== undefined && { body: text }) });
    // biome-ignore lint/suspicious/noExplicitAny: each answer has fields of its own.
    return { status: response.status, headers: response.headers, body: (await response.json()) as any };
  }

  async function request(period: object): Promise<string> {
    const { status, headers, body } = await call('POST', '/reports', period);
    expect({ status, location: headers.get('location'), body }).toEqual({
      status: 202,
      location: `/reports/${body.id}`,
      body: { id: body.id, ...period, status: 'requested', statusUrl: `/reports/${body.id}` },
    });
    return body.statusUrl;
  }

  /** Waits for the status over HTTP. */
  const report = (path: string, status: string, fits: (body: { progress: number }) => boolean = () => true) =>
    until(
      async () => {
        const { body } = await call('GET', path);
        return body.status === status && fits(body) && body;
      },
      { what: `${path} is ${status}`, timeoutMs },
    );

  it('50 requests, two workers, one killed mid-report: 50 reports, none twice, 50 mails', async () => {
    const long = await request(year);
    const short = await Promise.all(Array.from({ length: 49 }, () => request(week)));

    const seen = await report(long, 'generating', ({ progress }) => progress > 0.1);
    expect(seen.note).toMatch(/^day \d+ of 365$/);
    expect(seen.progress).toBeLessThan(1);
    const killed = workers.get(seen.worker);
    workers.delete(seen.worker);
    killed?.kill('SIGKILL');
    expect((await killed?.exited)?.signal).toBe('SIGKILL');

    for (const path of [long, ...short]) await report(path, 'ready');
    expect((await call('GET', long)).body.content).toMatchObject({ total: 365 * 100 + (365 * 366) / 2 });
    const ids = [long, ...short].map((path) => path.split('/')[2]).sort();
    const reportsOf = async (table: string) => {
      const rows = await db.query(`select report_id::text as id from ${table} where report_id = any($1) order by 1`, [
        ids,
      ]);
      return rows.map(({ id }) => id);
    };
    expect(await reportsOf('generated_reports')).toEqual(ids);
    await until(async () => (await reportsOf('sent_mails')).length === 50, { what: '50 mails are sent', timeoutMs });
    expect(await reportsOf('sent_mails')).toEqual(ids);
    expect(await reportsOf('counted_requests')).toEqual(ids);
    const [{ worker }] = await db.query('select worker from generated_reports where report_id = $1', [
      long.split('/')[2],
    ]);
    expect(worker).not.toBe(seen.worker);
    const queues = `select distinct event_type as type, coalesce(queue, 'default') as queue from postcommit.outbox_events
                     order by 1`;
    expect(await db.query(queues)).toEqual([
      { type: 'report.ready', queue: 'mail' },
      { type: 'report.requested', queue: 'reports' },
      { type: 'request.counted', queue: 'default' },
    ]);
  });

  it('a report can be cancelled while it is requested and while it is generated, and then never gets ready', async () => {
    // One more than two workers generate at once.
    const paths: string[] = [];
    for (let n = 0; n < 5; n++) paths.push(await request(year));
    const [running = ''] = paths;
    const waiting = paths.at(-1) ?? '';
    await report(running, 'generating');
    expect((await call('GET', waiting)).body).toMatchObject({ ...year, status: 'requested' });
    for (const path of paths) {
      expect(await call('DELETE', path)).toMatchObject({ status: 200, body: { ...year, status: 'cancelled' } });
    }
    const ready = await request(week);
    await report(ready, 'ready');
    for (const path of paths) expect((await call('GET', path)).body.status).toBe('cancelled');
    expect(await call('DELETE', ready)).toMatchObject({
      status: 409,
      body: { error: 'The report is ready and cannot be cancelled.' },
    });
    const history = `select e.event_type as type, d.reason, d.cancelled_by as by, d.cancel_note as note
                       from postcommit.outbox_events e join postcommit.outbox_dead_letters d on d.seq = e.seq
                      where '/reports/' || e.aggregate_id = any($1)`;
    const cancelled = { type: 'report.requested', reason: 'cancelled', by: 'report service', note: 'DELETE /reports' };
    expect(await db.query(history, [paths])).toEqual(paths.map(() => cancelled));
  });

  it('a report that cannot be generated has failed, with the reason', async () => {
    const { error } = await report(await request(withoutSales), 'failed');
    expect(error).toContain('There are no sales from 1999-01-01 to 1999-01-31.');
  });

  it('a report that a worker finishes after it was cancelled is not saved', async () => {
    // As if the server had ended between the two statements of a cancellation.
    const path = await request(quarter);
    const id = path.split('/')[2];
    const [row] = await db.query(
      'update reports set cancelled_at = now() where id = $1 and generated_at is null returning event_id',
      [id],
    );
    expect(row).toBeDefined();
    const delivered = `select from postcommit.outbox_status where id = $1 and status = 'SENT'`;
    await until(async () => (await db.query(delivered, [row.event_id])).length === 1, {
      what: 'it is done',
      timeoutMs,
    });
    expect((await call('GET', path)).body.status).toBe('cancelled');
    expect(await db.query('select from generated_reports where report_id = $1', [id])).toEqual([]);
  });

  it('bad requests are refused with the reason, and save nothing', async () => {
    const [{ before }] = await db.query('select count(*) as before from reports');
    const refusals = [
      [{ from: '2026-02-01', to: '2026-01-01' }, 400, 'from (2026-02-01) must not be after to (2026-01-01).'],
      ['from 2026-01-01', 400, /^The body must be JSON: /],
      ['', 400, /^The body must be JSON: /],
      [[], 400, /^The body must be an object, e\.g\. \{"from"/],
      [{ from: '2026-01-01' }, 400, 'to must be a day, e.g. "2026-01-31". Got undefined.'],
      [{ from: '2026-02-30', to: '2026-03-01' }, 400, 'from must be a day, e.g. "2026-01-31". Got "2026-02-30".'],
      [{ from: 20260101, to: '2026-03-01' }, 400, 'from must be a day, e.g. "2026-01-31". Got 20260101.'],
      [{ from: '2024-01-01', to: '2025-01-01' }, 400, 'A report has at most 366 days. This period has 367.'],
      ['x'.repeat(10_001), 413, 'The body must not have more than 10000 bytes.'],
    ] as const;
    for (const [body, status, error] of refusals) {
      const answer = await call('POST', '/reports', body);
      expect(answer).toMatchObject({
        status,
        body: { error: typeof error === 'string' ? error : expect.stringMatching(error) },
      });
    }
    const [{ after }] = await db.query('select count(*) as after from reports');
    expect(after).toBe(before);
    for (const path of ['/reports/7', '/reports/00000000-0000-0000-0000-000000000000', '/', '/reports/7/8']) {
      expect(await call('GET', path)).toMatchObject({ status: 404, body: { error: 'There is no such report.' } });
    }
    expect((await call('DELETE', '/reports/00000000-0000-0000-0000-000000000000')).status).toBe(404);
    const wrongMethod = await call('PUT', '/reports', {});
    expect([wrongMethod.status, wrongMethod.headers.get('allow')]).toEqual([405, 'POST']);
    expect((await call('POST', '/reports/00000000-0000-0000-0000-000000000000', {})).status).toBe(405);
  });
});
