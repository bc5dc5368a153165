import { OutboxEvent } from 'postcommit/nestjs';

abstract class OrderEvent extends OutboxEvent {
  constructor(readonly orderId: string) {
    super();
  }

  /** Events of one order are delivered in the order of their commits. */
  override aggregate() {
    return ['order', this.orderId] as const;
  }
}

export class OrderCreatedEvent extends OrderEvent {
  static readonly eventType = 'order.created';

  constructor(
    orderId: string,
    readonly total: number,
  ) {
    super(orderId);
  }
}

export class OrderPaidEvent extends OrderEvent {
  static readonly eventType = 'order.paid';
}
