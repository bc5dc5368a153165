import type pg from 'pg';
import type { Emit, Outbox } from 'postcommit';
import type { PaymentPayload } from './events.ts';

export interface Payment {
  id: string;
  accountId: string;
  amountCents: number;
}

/** A payment, its ledger entry and its event commit together. */
export class PaymentService {
  readonly #outbox: Outbox<pg.PoolClient>;

  constructor(outbox: Outbox<pg.PoolClient>) {
    this.#outbox = outbox;
  }

  /** Fails over the limit: then there is neither a ledger entry nor an event. Repeating it with the same id changes nothing. */
  async capture({ id, accountId, amountCents }: Payment): Promise<void> {
    await this.#outbox.transaction(async (tx, emit) => {
      // The place in the transaction does not matter: what fails afterwards takes the entry and the event along.
      const { rowCount } = await tx.query(
        'insert into payments (id, account_id, amount_cents) values ($1, $2, $3) on conflict (id) do nothing',
        [id, accountId, amountCents],
      );
      if (rowCount === 1) await book(tx, emit, 'payment.captured', { id, accountId, amountCents });
    });
  }

  /** Returns whether there is such a payment. */
  async refund(id: string): Promise<boolean> {
    return this.#outbox.transaction(async (tx, emit) => {
      const { rows } = await tx.query('select account_id, amount_cents from payments where id = $1', [id]);
      if (rows.length === 0) return false;
      const { rowCount } = await tx.query('insert into refunds (payment_id) values ($1) on conflict do nothing', [id]);
      const [{ account_id: accountId, amount_cents }] = rows;
      if (rowCount === 1) {
        await book(tx, emit, 'payment.refunded', { id, accountId, amountCents: -Number(amount_cents) });
      }
      return true;
    });
  }
}

async function book(tx: pg.PoolClient, emit: Emit, type: string, payment: Payment): Promise<void> {
  const { id, accountId, amountCents } = payment;
  await tx.query('insert into ledger (payment_id, account_id, amount_cents) values ($1, $2, $3)', [
    id,
    accountId,
    amountCents,
  ]);
  const payload: PaymentPayload = { paymentId: id, amountCents };
  // The account is the aggregate: bookings of one account arrive in the order of their commits.
  await emit({ type, aggregate: ['account', accountId], payload });
}
