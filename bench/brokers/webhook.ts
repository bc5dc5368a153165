import { Agent, request } from 'node:http';
import { type Broker, type MemoryEvent, timed } from './broker.ts';

const requestsAtOnce = 10;
const secret = `whsec_${Buffer.from('a secret of twenty-four b').toString('base64')}`;

export const webhook: Broker = {
  name: 'webhook',
  service: 'http',
  client: undefined,
  goal: 0.35,
  nextGoal: 0.7,
  share: 0.8,
  createTopic: async () => 'orders',
  async createPublisher(url) {
    const { webhook } = await import(new URL('../../dist/publishers/webhook.js', import.meta.url).href);
    return webhook({ url, secret, perHostMax: requestsAtOnce });
  },
  async publishAll(url, _topic, events) {
    const agent = new Agent({ keepAlive: true, maxSockets: requestsAtOnce });
    const post = (event: MemoryEvent) =>
      new Promise<void>((resolve, reject) => {
        const { body, headers, contentType } = event.toMessage();
        const sent = request(
          url,
          { method: 'POST', agent, headers: { ...headers, 'content-type': contentType } },
          (response) => {
            response.resume().on('end', resolve);
          },
        );
        sent.on('error', reject).end(body);
      });
    const tookMs = await timed(events, requestsAtOnce, post);
    agent.destroy();
    return tookMs;
  },
};
