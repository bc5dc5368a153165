import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';
import { type Broker, chunked, timed } from './broker.ts';

const pipelineSize = 250;
const pipelinesAtOnce = 4;

export const redis: Broker = {
  name: 'redis',
  service: 'redis',
  client: 'redis',
  goal: 0.25,
  nextGoal: 0.5,
  share: 2,
  createTopic: async () => `bench-${randomUUID()}`,
  async removeTopic(url, stream) {
    const client = createClient({ url });
    await client.connect();
    await client.unlink(stream);
    await client.close();
  },
  async createPublisher(url) {
    const { redis } = await import(new URL('../../dist/publishers/redis.js', import.meta.url).href);
    return redis({ url });
  },
  async publishAll(url, stream, events) {
    // Without a timer for each command, as the publisher has it.
    const client = createClient({ url, commandOptions: { timeout: 0 } });
    await client.connect();
    const tookMs = await timed(chunked(events, pipelineSize), pipelinesAtOnce, (chunk) => {
      const pipeline = client.multi();
      for (const event of chunk) {
        const { eventId, eventType, key, body, headers } = event.toMessage();
        const fields = { id: eventId, type: eventType, key: key ?? '', headers: JSON.stringify(headers) };
        pipeline.xAdd(stream, '*', { ...fields, body: body as string });
      }
      return pipeline.execAsPipeline();
    });
    await client.close();
    return tookMs;
  },
};
