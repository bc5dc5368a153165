import type { Broker } from './broker.ts';
import { kafka } from './kafka.ts';
import { nats } from './nats.ts';
import { rabbitmq } from './rabbitmq.ts';
import { redis } from './redis.ts';
import { sns, sqs } from './sqs.ts';
import { webhook } from './webhook.ts';

export const brokers: readonly Broker[] = [kafka, rabbitmq, nats, redis, sqs, sns, webhook];

export function brokerNamed(name: string): Broker {
  const found = brokers.find((broker) => broker.name === name);
  if (!found) throw new Error(`There is no broker "${name}".`);
  return found;
}
