import type pg from 'pg';
import { createOutbox, defineEvents, type EventToEmit, fromPg, type Outbox } from 'postcommit';

/** The task types and their queues. The server and the workers have the same. */
const events = defineEvents({
  'report.requested': { queue: 'reports' }, // Minutes of work: few at a time.
  'report.ready': { queue: 'mail' },
  'request.counted': {}, // The queue `default`: milliseconds, and never behind a report.
});

export type ReportOutbox = Outbox<pg.PoolClient, never, EventToEmit<typeof events>>;

export function createReportOutbox(pool: pg.Pool): ReportOutbox {
  return createOutbox({ db: fromPg<pg.PoolClient>(pool), events });
}
