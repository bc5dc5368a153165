/** What the payment service publishes. */
export interface PaymentPayload {
  paymentId: string;
  /** Negative for a refund. */
  amountCents: number;
}

/** What the account service tells the merchant. */
export interface BookingPayload {
  accountId: string;
  amountCents: number;
  balanceCents: number;
}

/** The parts of the envelope that consumers here read. */
export interface Envelope<Payload> {
  eventId: string;
  eventType: string;
  aggregate: { type: string; id: string };
  data: Payload;
}
