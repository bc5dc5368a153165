import type pg from 'pg';

/** The tables of the report service, and sales to report on. A service of yours has its own migrations. */
export async function createReportTables(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table sales (day date primary key, amount integer not null);
    insert into sales
      select day, 100 + extract(doy from day)::integer
        from generate_series(date '2024-01-01', date '2026-12-31', interval '1 day') as day;

    create table reports (
      id uuid primary key,
      first_day date not null,
      last_day date not null,
      -- The event that asks for it: its progress and its errors are in the outbox.
      event_id uuid not null,
      requested_at timestamptz not null default now(),
      -- One of the two at most. Both sides change this row, so the one that commits first wins.
      generated_at timestamptz,
      cancelled_at timestamptz
    );

    -- Each row is the result of one task. The primary key makes the second worker that finishes the same task lose.
    create table generated_reports (
      idempotency_key text primary key,
      report_id uuid not null references reports,
      worker text not null,
      content jsonb not null
    );
    create index on generated_reports (report_id);

    -- What a mail provider keeps that deduplicates by a key.
    create table sent_mails (idempotency_key text primary key, report_id uuid not null, subject text not null);

    create table counted_requests (idempotency_key text primary key, report_id uuid not null, days integer not null);
  `);
}
