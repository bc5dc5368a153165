import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { daysOf, type Period } from './period.ts';
import type { ReportOutbox } from './report-outbox.ts';

/** A report as the API shows it. */
export type Report = { id: string } & Period & ReportState;

type ReportState =
  | { status: 'requested' }
  | { status: 'generating'; progress: number; note: string | null; worker: string | null; attempt: number }
  | { status: 'ready'; content: unknown }
  | { status: 'failed'; error: string }
  | { status: 'cancelled' };

interface ReportRow extends Period {
  id: string;
  eventId: string;
  isCancelled: boolean;
  content: unknown;
}

/** Takes requests for reports and tells how far they are. It generates nothing: workers do. */
export class ReportService {
  readonly #pool: pg.Pool;
  readonly #outbox: ReportOutbox;

  constructor(pool: pg.Pool, outbox: ReportOutbox) {
    this.#pool = pool;
    this.#outbox = outbox;
  }

  /** Saves the request and its tasks in one transaction: there is no report without a task, and no task without a report. */
  async request(period: Period): Promise<Report> {
    const id = randomUUID();
    await this.#outbox.transaction(async (tx, emit) => {
      const eventId = await emit({ type: 'report.requested', aggregate: ['report', id], payload: period });
      // An aggregate of its own: as an event of the report it would wait until the report is generated.
      const payload = { reportId: id, days: daysOf(period).length };
      await emit({ type: 'request.counted', aggregate: ['request', id], payload });
      await tx.query('insert into reports (id, first_day, last_day, event_id) values ($1, $2, $3, $4)', [
        id,
        period.from,
        period.to,
        eventId,
      ]);
    });
    return { id, ...period, status: 'requested' };
  }

  /** `undefined`: there is no such report. */
  async find(id: string): Promise<Report | undefined> {
    const row = await this.#read(id);
    return row && { id, from: row.from, to: row.to, ...(await this.#stateOf(row)) };
  }

  /**
   * Cancels a report that is not ready. The update decides between this and a worker that finishes at the same time. Cancelling
   * the event only saves the work, so it does not matter if this process ends between the two.
   */
  async cancel(id: string): Promise<Report | undefined> {
    const { rows } = await this.#pool.query<{ eventId: string }>(
      `update reports set cancelled_at = now()
        where id = $1 and generated_at is null and cancelled_at is null returning event_id as "eventId"`,
      [id],
    );
    const ids = rows.map(({ eventId }) => eventId);
    if (ids.length > 0) await this.#outbox.admin.cancel({ ids }, { by: 'report service', reason: 'DELETE /reports' });
    return this.find(id);
  }

  async #read(id: string): Promise<ReportRow | undefined> {
    const { rows } = await this.#pool.query<ReportRow>(
      `select r.id, r.first_day::text as "from", r.last_day::text as "to", r.event_id as "eventId",
              r.cancelled_at is not null as "isCancelled", g.content
         from reports r left join generated_reports g on g.report_id = r.id
        where r.id = $1`,
      [id],
    );
    return rows[0];
  }

  /** What has ended is in the tables of this service. Everything before that is in the outbox, and is stored nowhere else. */
  async #stateOf({ eventId, isCancelled, content }: ReportRow): Promise<ReportState> {
    if (content !== null) return { status: 'ready', content };
    if (isCancelled) return { status: 'cancelled' };
    const event = await this.#outbox.admin.find(eventId);
    if (event === undefined) return { status: 'failed', error: 'The request is no longer in the outbox.' };
    if (event.deadLetter?.reason === 'cancelled') return { status: 'cancelled' }; // By `postcommit events cancel`.
    if (event.deadLetter) return { status: 'failed', error: event.deadLetter.error };
    const worker = event.holder?.name ?? null;
    // It was generated between the two queries. The next request finds it ready.
    if (event.status === 'SENT')
      return { status: 'generating', progress: 1, note: null, worker, attempt: event.attempts };
    const [report] = event.progress;
    if (report === undefined) return { status: 'requested' };
    return { status: 'generating', progress: report.fraction, note: report.note, worker, attempt: report.attempt };
  }
}
