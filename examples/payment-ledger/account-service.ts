import type pg from 'pg';
import type { Inbox, Outbox } from 'postcommit';
import type { BookingPayload, Envelope, PaymentPayload } from './events.ts';

/** Books each payment once, however often it is delivered, and emits that it did. */
export class AccountService {
  readonly #outbox: Outbox<pg.PoolClient>;
  readonly #inbox: Inbox<pg.PoolClient>;

  constructor(outbox: Outbox<pg.PoolClient>, inbox: Inbox<pg.PoolClient>) {
    this.#outbox = outbox;
    this.#inbox = inbox;
  }

  /** The inbox record, the balance and the event for the merchant are one transaction. */
  async receive({ eventId, aggregate, data }: Envelope<PaymentPayload>): Promise<void> {
    await this.#outbox.transaction(async (tx, emit) => {
      const { duplicate } = await this.#inbox.once(tx, { consumer: 'accounts', eventId }, async () => {
        const { rows } = await tx.query(
          `insert into accounts as a (id, balance_cents, bookings) values ($1, $2, 1)
           on conflict (id) do update set balance_cents = a.balance_cents + excluded.balance_cents, bookings = a.bookings + 1
           returning balance_cents`,
          [aggregate.id, data.amountCents],
        );
        const balanceCents = Number(rows[0].balance_cents);
        const payload: BookingPayload = { accountId: aggregate.id, amountCents: data.amountCents, balanceCents };
        await emit({ type: 'account.booked', aggregate: ['account', aggregate.id], payload });
      });
      if (duplicate) await tx.query('insert into repeated_deliveries (event_id) values ($1)', [eventId]);
    });
  }
}
