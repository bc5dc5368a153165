import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Period } from './period.ts';
import type { ReportOutbox } from './report-outbox.ts';
import type { Report } from './report-service.ts';
import type { WorkerProcesses } from './worker-processes.ts';

/**
 * Short, so that the story is: a year's report blocks its worker for longer, and a frozen worker is replaced soon. Not
 * shorter: on a machine whose cores are all busy, a healthy worker would lose it.
 */
export const leaseMs = 5_000;
const waitMsMax = 60_000;
const year: Period = { from: '2025-01-01', to: '2025-12-31' };
const week: Period = { from: '2026-03-02', to: '2026-03-08' };

/** Everything the story works with. */
export interface Stage {
  /** Of the HTTP API. */
  url: string;
  pool: pg.Pool;
  outbox: ReportOutbox;
  workers: WorkerProcesses;
}

/** Requests, a crash, a cancellation, a failure and a race. Returns whether each report was generated and mailed once. */
export async function tellStory(stage: Stage): Promise<boolean> {
  const { url, workers } = stage;
  await workersRun(stage, ['worker-1', 'worker-2']);
  const refused = await call('POST', `${url}/reports`, { from: '2026-02-01', to: '2026-01-01' });
  say(`POST answered ${refused.status}: ${refused.body.error}`);

  const long = await request(url, year);
  const short = await Promise.all(Array.from({ length: 20 }, () => request(url, week)));
  say(`POST answered 202 to ${1 + short.length} requests, one for a year`);
  await shortTasksOvertake(stage, 1 + short.length);

  await crashWorkerOf(stage, long);
  workers.start('worker-3', leaseMs);
  const cancelled = await cancelOne(stage);
  const failed = await request(url, { from: '1999-01-01', to: '1999-01-31' });
  const failure = await reportIs(url, failed, 'failed');
  say(`a report without sales has failed: ${failure.error}`);
  for (const id of [long, ...short]) await reportIs(url, id, 'ready');
  const raced = await race(stage);

  const ready = [long, ...short, raced];
  return sumUp(stage, { ready, withoutReport: [cancelled, failed] });
}

/** The queue `default` does not wait for the queue `reports`, although the same workers work both. */
async function shortTasksOvertake({ pool, outbox }: Stage, requests: number): Promise<void> {
  await waitFor('every request is counted', async () => {
    return (await pool.query('select from counted_requests')).rowCount === requests;
  });
  const reports = (await outbox.admin.queues()).find(({ name }) => name === 'reports');
  say(
    `all ${requests} are counted, while ${(reports?.ready ?? 0) + (reports?.inFlight ?? 0)} reports are not generated`,
  );
}

/** The worker that generates the report is killed. Another one starts over. */
async function crashWorkerOf({ url, workers }: Stage, id: string): Promise<void> {
  const seen = await reportIs(url, id, 'generating', ({ progress }) => progress > 0.1);
  if (seen.worker === null) throw new Error(`No worker has ${id}.`);
  workers.signal(seen.worker, 'SIGKILL');
  say(`SIGKILL for ${seen.worker} at ${seen.note} of the year's report`);
}

async function cancelOne({ url }: Stage): Promise<string> {
  const id = await request(url, year);
  await reportIs(url, id, 'generating');
  const { status, body } = await call('DELETE', `${url}/reports/${id}`);
  say(`DELETE answered ${status}: a report that was being generated is ${body.status}`);
  return id;
}

/**
 * Two workers that have generated the same report save it at the same moment. By chance this is rare, so the story makes it
 * certain: it locks the table, stops the first worker in front of it until its lease has ended and the second one has come
 * to the same place, and lets both go on.
 */
async function race({ url, pool, outbox, workers }: Stage): Promise<string> {
  const gate = await pool.connect();
  try {
    await gate.query('begin; lock table generated_reports in share mode');
    const id = await request(url, week);
    await waitFor('a worker saves the report', async () => (await waitingAtGate(pool)) === 1);
    const [event] = (await outbox.admin.list({ aggregate: ['report', id] })).events;
    const first = (await outbox.admin.find(event?.id ?? ''))?.holder?.name ?? '';
    workers.signal(first, 'SIGSTOP');
    await waitFor('another worker saves it too', async () => (await waitingAtGate(pool)) === 2);
    say(`two workers save report ${id.slice(0, 8)} at the same time: ${first} was frozen for longer than its lease`);
    await gate.query('commit');
    workers.signal(first, 'SIGCONT');
    await reportIs(url, id, 'ready');
    await waitFor('both workers are done', async () => (await openSaves(pool)) === 0);
    return id;
  } finally {
    gate.release(true);
  }
}

async function waitingAtGate(pool: pg.Pool): Promise<number> {
  const waiting = `select from pg_locks where relation = 'generated_reports'::regclass and not granted`;
  return (await pool.query(waiting)).rowCount ?? 0;
}

async function openSaves(pool: pg.Pool): Promise<number> {
  const open = `select from pg_locks where relation = 'generated_reports'::regclass and mode = 'RowExclusiveLock'`;
  return (await pool.query(open)).rowCount ?? 0;
}

/** Reads what is there at the end, and checks it. */
async function sumUp(
  { url, pool, outbox }: Stage,
  { ready, withoutReport }: { ready: string[]; withoutReport: string[] },
): Promise<boolean> {
  await waitFor('no task is left', async () => {
    const { pending, processing } = await outbox.admin.counts();
    return pending + processing === 0;
  });
  const { rows } = await pool.query<{ generated: string[]; mailed: string[]; counted: number }>(
    `select array(select report_id::text from generated_reports order by 1) as generated,
            array(select report_id::text from sent_mails order by 1) as mailed,
            (select count(*)::integer from counted_requests) as counted`,
  );
  const { generated = [], mailed = [], counted = 0 } = rows[0] ?? {};
  const duplicates = generated.length - new Set(generated).size;
  say(`${ready.length} reports are ready: ${generated.length} generated, ${duplicates} twice, ${mailed.length} mailed`);
  const expected = [...ready].sort().join();
  const states = await Promise.all(withoutReport.map(async (id) => (await read(url, id)).status));
  const ok =
    generated.join() === expected &&
    mailed.join() === expected &&
    states.join() === 'cancelled,failed' &&
    counted === ready.length + withoutReport.length;
  console.log(
    ok
      ? 'ok       each report was generated once and mailed once'
      : `failed   ${JSON.stringify({ states, ...rows[0] })}`,
  );
  return ok;
}

async function workersRun({ outbox }: Stage, names: string[]): Promise<void> {
  await waitFor(`${names.join(' and ')} run`, async () => {
    const alive = (await outbox.admin.relays()).filter(({ state }) => state === 'alive').map(({ name }) => name);
    return names.every((name) => alive.includes(name));
  });
  say(`${names.join(' and ')} work the queues reports, mail and default`);
}

async function request(url: string, period: Period): Promise<string> {
  const { status, body } = await call('POST', `${url}/reports`, period);
  if (status !== 202 || body.id === undefined) throw new Error(`POST answered ${status}: ${JSON.stringify(body)}`);
  return body.id;
}

type ReportWith<Status> = Extract<Report, { status: Status }>;

/** Waits until the API shows the report with this status, and returns it. */
async function reportIs<Status extends Report['status']>(
  url: string,
  id: string,
  status: Status,
  fits: (report: ReportWith<Status>) => boolean = () => true,
): Promise<ReportWith<Status>> {
  let found: ReportWith<Status> | undefined;
  await waitFor(`report ${id} is ${status}`, async () => {
    const report = await read(url, id);
    if (report.status === status && fits(report as ReportWith<Status>)) found = report as ReportWith<Status>;
    return found !== undefined;
  });
  return found as ReportWith<Status>;
}

async function read(url: string, id: string): Promise<Report> {
  return (await call('GET', `${url}/reports/${id}`)).body as Report;
}

async function call(method: string, url: string, body?: object) {
  const response = await fetch(url, { method, ...(body && { body: JSON.stringify(body) }) });
  return { status: response.status, body: (await response.json()) as Partial<Report> & { error?: string } };
}

async function waitFor(what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + waitMsMax;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`Waited ${waitMsMax} ms until ${what}.`);
    await sleep(50);
  }
}

function say(line: string): void {
  console.log(`story    ${line}`);
}
