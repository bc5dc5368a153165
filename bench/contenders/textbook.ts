import pg from 'pg';
import { aggregateOf, type Contender, chunks, payloadOf } from './contender.ts';

const claimSql = `
with next_batch as (
  select id from outbox_events
   where status = 'PENDING' and next_retry_at <= now()
   order by created_at
   limit $1
   for update skip locked
)
update outbox_events set status = 'PROCESSING' where id in (select id from next_batch)
returning id, aggregate_type, aggregate_id, event_type, payload, retry_count`;

/**
 * The relay of the blog posts: one table with a status, a claim that sets PROCESSING, then one event after the other is
 * published and set to SENT. They pause for a second between two batches; here it goes on at once, as fast as it can.
 * Order within a batch, none between relays.
 */
export const textbook: Contender = {
  name: 'textbook',
  packageJson: new URL('../../node_modules/pg/package.json', import.meta.url),
  settings: { batchSize: 100 },
  claimStatement: /skip locked/i,
  limits: { events: 20_000 },

  async prepare({ connectionString }) {
    const client = new pg.Client({ connectionString });
    await client.connect();
    await client.query(`
      create table outbox_events (
        id             uuid primary key default gen_random_uuid(),
        aggregate_type text not null,
        aggregate_id   text not null,
        event_type     text not null,
        payload        jsonb not null,
        headers        jsonb not null default '{}',
        status         text not null default 'PENDING',
        retry_count    integer not null default 0,
        next_retry_at  timestamptz not null default now(),
        created_at     timestamptz not null default clock_timestamp(),
        published_at   timestamptz,
        last_error     text
      );
      create index on outbox_events (created_at) where status = 'PENDING';
      create index on outbox_events (aggregate_type, aggregate_id, created_at)`);
    await client.end();
  },

  async fill({ connectionString, backlog }) {
    const client = new pg.Client({ connectionString });
    await client.connect();
    for (const indexes of chunks(backlog)) {
      await client.query(
        `insert into outbox_events (aggregate_type, aggregate_id, event_type, payload)
         select 'order', aggregate_id, 'order.created', payload::jsonb
         from unnest($1::text[], $2::text[]) as given (aggregate_id, payload)`,
        [
          indexes.map((index) => aggregateOf(index, backlog.aggregates)),
          indexes.map((index) => JSON.stringify(payloadOf(index, backlog.payloadBytes))),
        ],
      );
    }
    await client.end();
  },

  async start({ connectionString, settings }, onEvent) {
    const client = new pg.Client({ connectionString });
    await client.connect();
    let stopped = false;
    const run = async () => {
      while (!stopped) {
        const { rows } = await client.query<{ id: string }>(claimSql, [settings.batchSize]);
        for (const row of rows) {
          onEvent(row.id, row);
          await client.query(`update outbox_events set status = 'SENT', published_at = now() where id = $1`, [row.id]);
        }
        if (rows.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
      }
      await client.end();
    };
    const running = run();
    return {
      async stop() {
        stopped = true;
        await running;
      },
    };
  },

  async unsettled(db, ids) {
    const { rows } = await db.query(
      `select exists (
         select from unnest($1::uuid[]) as recent (id) join outbox_events using (id) where status <> 'SENT'
       ) as found`,
      [ids],
    );
    return rows[0]?.found === true;
  },

  async remaining(db) {
    const { rows } = await db.query(`select count(*)::int as remaining from outbox_events where status <> 'SENT'`);
    return Number(rows[0]?.remaining);
  },
};
