import { randomUUID } from 'node:crypto';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect, headers as natsHeaders } from '@nats-io/transport-node';
import { type Broker, timed } from './broker.ts';

const unacknowledgedMax = 256;

export const nats: Broker = {
  name: 'nats',
  service: 'nats',
  client: '@nats-io/jetstream',
  goal: 0.4,
  nextGoal: 0.8,
  share: 1.6,
  async createTopic(url) {
    const name = `bench-${randomUUID()}`;
    const connection = await connect({ servers: url });
    await (await jetstreamManager(connection)).streams.add({ name, subjects: [name] });
    await connection.close();
    return name;
  },
  async removeTopic(url, name) {
    const connection = await connect({ servers: url });
    await (await jetstreamManager(connection)).streams.delete(name);
    await connection.close();
  },
  async createPublisher(url) {
    const { nats } = await import(new URL('../../dist/publishers/nats.js', import.meta.url).href);
    return nats({ servers: url });
  },
  async publishAll(url, subject, events) {
    const connection = await connect({ servers: url });
    const stream = jetstream(connection);
    const tookMs = await timed(events, unacknowledgedMax, (event) => {
      const { body, headers, eventId } = event.toMessage();
      const all = natsHeaders();
      for (const [name, value] of Object.entries(headers)) all.set(name, value);
      return stream.publish(subject, body as string, { msgID: eventId, headers: all });
    });
    await connection.close();
    return tookMs;
  },
};
