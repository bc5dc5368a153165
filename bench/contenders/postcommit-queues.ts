import pg from 'pg';
import type { Contender } from './contender.ts';
import { load, postcommit } from './postcommit.ts';

const reports = 1_000;
const reportSlots = 2;

/** Ourselves with a second queue that is full of work that takes an hour. */
export const postcommitFullReports: Contender = {
  ...postcommit,
  name: 'postcommit-full-reports',

  async fill({ connectionString }) {
    const client = new pg.Client({ connectionString });
    await client.connect();
    await client.query(
      `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload, queue)
       select 'report', n::text, 'report.requested', '{}', 'reports' from generate_series(1, $1::integer) n`,
      [reports],
    );
    await client.end();
  },

  async start({ connectionString, settings }, onEvent) {
    const { createRelay } = await load();
    let begun = 0;
    let allBegun = () => {};
    const busy = new Promise<void>((resolve) => {
      allBegun = resolve;
    });
    const relay = createRelay({
      ...settings,
      connectionString,
      queues: { default: 100, reports: reportSlots },
      deliverTimeoutMs: 3_600_000,
      stopTimeoutMs: 0,
      handlers: {
        'order.created': { noop: async (event) => onEvent(event.seq, event) },
        'report.requested': {
          generate: () => {
            if (++begun === reportSlots) allBegun();
            return new Promise<void>(() => {});
          },
        },
      },
    });
    await relay.start();
    await busy;
    return { stop: () => relay.stop() };
  },
};
