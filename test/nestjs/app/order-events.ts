import { OutboxEvent } from 'postcommit/nestjs';

export class OrderCreatedEvent extends OutboxEvent {
  static readonly eventType = 'order.created';

  constructor(
    readonly orderId: string,
    readonly total: number,
  ) {
    super();
  }

  override aggregate() {
    return ['order', this.orderId] as const;
  }
}

/** Without an aggregate, and with a payload of its own. */
export class OrderPaidEvent extends OutboxEvent {
  static readonly eventType = 'order.paid';

  constructor(private readonly cents: bigint) {
    super();
  }

  override toPayload() {
    return { cents: String(this.cents) };
  }
}
