import { kafka } from './kafka.ts';
import { nats } from './nats.ts';
import { rabbitmq } from './rabbitmq.ts';
import { redis } from './redis.ts';
import { schemaRegistry } from './schema-registry.ts';
import type { Service, ServiceName } from './service.ts';
import { sqs } from './sqs.ts';

export const services: Readonly<Record<ServiceName, Service>> = {
  kafka,
  rabbitmq,
  nats,
  redis,
  sqs,
  'schema-registry': schemaRegistry,
};
