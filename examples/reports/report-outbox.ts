import type pg from 'pg';
import { createOutbox, defineEvents, fromPg, type Outbox } from 'postcommit';

export type ReportOutbox = Outbox<pg.PoolClient>;

/** The task types and their queues. The server and the workers have the same. */
const events = defineEvents({
  'report.requested': { queue: 'reports' }, // Minutes of work: few at a time.
  'report.ready': { queue: 'mail' },
  'request.counted': {}, // The queue `default`: milliseconds, and never behind a report.
});

export function createReportOutbox(pool: pg.Pool): ReportOutbox {
  return createOutbox({ db: fromPg<pg.PoolClient>(pool), events });
}
