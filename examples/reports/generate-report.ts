import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type DeliveredEvent, type HandlerContext, Reject } from 'postcommit';
import { daysOf, type Period } from './period.ts';
import type { ReportOutbox } from './report-outbox.ts';

/** How long a day takes to read and to lay out. A year's layout blocks the event loop for 5.5 s. */
const readDayMs = 4;
const layOutDayMs = 15;
/** Every step may take this long. A report of any size may take as long as it needs, and a step that hangs is noticed. */
export const stepTimeoutMs = 10_000;

interface Line {
  day: string;
  amount: number;
}

/** Generates reports. The relay calls `handle` at least once for each request. */
export class ReportGenerator {
  readonly #pool: pg.Pool;
  readonly #outbox: ReportOutbox;
  readonly #worker: string;

  constructor(options: { pool: pg.Pool; outbox: ReportOutbox; worker: string }) {
    this.#pool = options.pool;
    this.#outbox = options.outbox;
    this.#worker = options.worker;
  }

  readonly handle = async ({ payload, aggregate }: DeliveredEvent<Period>, ctx: HandlerContext): Promise<void> => {
    this.#log(aggregate.id, `attempt ${ctx.attempt}`);
    const lines = await this.#readSales(payload, ctx);
    // Trying again would not help: a dead letter at once, and the status `failed`.
    if (lines.length === 0) throw new Reject(`There are no sales from ${payload.from} to ${payload.to}.`);
    ctx.extendTimeout(stepTimeoutMs + lines.length * layOutDayMs);
    const content = layOut(lines);
    const result = await this.#save(aggregate.id, content, ctx.idempotencyKey);
    this.#log(aggregate.id, result);
  };

  async #readSales(period: Period, ctx: HandlerContext): Promise<Line[]> {
    const days = daysOf(period);
    const lines: Line[] = [];
    for (const [index, day] of days.entries()) {
      ctx.signal.throwIfAborted(); // Cancelled, or the worker stops, or it has lost its lease.
      ctx.extendTimeout(stepTimeoutMs);
      ctx.progress(index / days.length, `day ${index + 1} of ${days.length}`);
      const { rows } = await this.#pool.query<Line>('select day::text, amount from sales where day = $1', [day]);
      lines.push(...rows);
      await sleep(readDayMs);
    }
    return lines;
  }

  /**
   * The report and the mail task commit together, once. If another worker generates the same report, because this one was
   * taken for dead, both come here with the same key. The second INSERT waits for the first transaction and changes nothing.
   */
  #save(reportId: string, content: object, idempotencyKey: string): Promise<string> {
    return this.#outbox.transaction(async (tx, emit) => {
      const { rowCount: inserted } = await tx.query(
        `insert into generated_reports (idempotency_key, report_id, worker, content) values ($1, $2, $3, $4)
         on conflict (idempotency_key) do nothing`,
        [idempotencyKey, reportId, this.#worker, content],
      );
      if (inserted === 0) return 'another worker has generated it';
      const { rowCount: finished } = await tx.query(
        'update reports set generated_at = now() where id = $1 and cancelled_at is null',
        [reportId],
      );
      if (finished === 0) {
        await tx.query('delete from generated_reports where idempotency_key = $1', [idempotencyKey]);
        return 'it was cancelled meanwhile';
      }
      await emit({ type: 'report.ready', aggregate: ['report', reportId], payload: {} });
      return 'generated';
    });
  }

  #log(reportId: string, what: string): void {
    console.log(`${this.#worker} report ${reportId.slice(0, 8)}: ${what}`);
  }
}

/** Computes without a pause, as a layout or compression library does: until it returns, nothing else runs in this process. */
function layOut(lines: readonly Line[]): { total: number; lines: readonly Line[] } {
  const until = performance.now() + lines.length * layOutDayMs;
  let total = 0;
  do {
    total = lines.reduce((sum, { amount }) => sum + amount, 0);
  } while (performance.now() < until);
  return { total, lines };
}
