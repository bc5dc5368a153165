import type pg from 'pg';
import type { Merchant } from './merchant.ts';

/** One account in three places, in cents. */
export interface ReconciledAccount {
  id: string;
  /** What the payment service has written into its ledger. */
  ledgerCents: number;
  ledgerEntries: number;
  /** What the account service has booked. */
  balanceCents: number;
  bookings: number;
  /** What the merchant was told, by all notices together and by the one with the most bookings before it. */
  noticedCents: number;
  notices: number;
}

/** Compares three stores that share no transaction. They agree to the cent, or this tells by how much they differ. */
export async function reconcile(
  payments: pg.Pool,
  accounts: pg.Pool,
  merchant: Merchant,
): Promise<ReconciledAccount[]> {
  const ledger = await payments.query(
    'select account_id as id, sum(amount_cents)::text as cents, count(*)::integer as count from ledger group by 1',
  );
  const balances = await accounts.query(
    'select id, balance_cents::text as cents, bookings::integer as count from accounts',
  );
  const ids = new Set([...ledger.rows, ...balances.rows].map(({ id }) => id as string));
  const of = (rows: { id: string; cents: string; count: number }[], id: string) => rows.find((row) => row.id === id);
  return [...ids].sort().map((id) => {
    const notices = [...merchant.notices.values()].filter(({ accountId }) => accountId === id);
    return {
      id,
      ledgerCents: Number(of(ledger.rows, id)?.cents ?? 0),
      ledgerEntries: of(ledger.rows, id)?.count ?? 0,
      balanceCents: Number(of(balances.rows, id)?.cents ?? 0),
      bookings: of(balances.rows, id)?.count ?? 0,
      noticedCents: notices.reduce((sum, { amountCents }) => sum + amountCents, 0),
      notices: notices.length,
    };
  });
}

export function agrees(account: ReconciledAccount): boolean {
  const { ledgerCents, balanceCents, noticedCents, ledgerEntries, bookings, notices } = account;
  return (
    ledgerCents === balanceCents && balanceCents === noticedCents && ledgerEntries === bookings && bookings === notices
  );
}
