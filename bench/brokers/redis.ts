import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';
import { type Broker, chunked, timed } from './broker.ts';

const pipelineSize = 500;

export const redis: Broker = {
  name: 'redis',
  service: 'redis',
  client: 'redis',
  share: 1,
  createTopic: async () => `bench-${randomUUID()}`,
  async createPublisher(url) {
    const { redis } = await import(new URL('../../dist/publishers/redis.js', import.meta.url).href);
    return redis({ url });
  },
  async publishAll(url, stream, messages) {
    const client = createClient({ url });
    await client.connect();
    const entries = messages.map(({ eventId, eventType, key, body, headers }) => ({
      id: eventId,
      type: eventType,
      key: key ?? '',
      headers: JSON.stringify(headers),
      body: body as string,
    }));
    const tookMs = await timed(chunked(entries, pipelineSize), 2, (chunk) => {
      const pipeline = client.multi();
      for (const entry of chunk) pipeline.xAdd(stream, '*', entry);
      return pipeline.execAsPipeline();
    });
    await client.close();
    return tookMs;
  },
};
