import type pg from 'pg';

/** Amounts are whole cents: a number that cannot hold a tenth must not hold money. */
export async function createPaymentTables(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table payments (
      -- Chosen by the client, so that a request which is repeated after a lost answer changes nothing.
      id uuid primary key,
      account_id text not null,
      amount_cents bigint not null check (amount_cents between 1 and 100000)
    );
    create table refunds (payment_id uuid primary key references payments);

    -- What the payment service owes each account. Never changed, only added to.
    create table ledger (
      entry bigint generated always as identity primary key,
      payment_id uuid not null references payments,
      account_id text not null,
      amount_cents bigint not null
    );
  `);
}

export async function createAccountTables(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table accounts (
      id text primary key,
      balance_cents bigint not null default 0,
      bookings bigint not null default 0
    );
    -- Only for the story: how often an event came again.
    create table repeated_deliveries (event_id uuid not null);
  `);
}
