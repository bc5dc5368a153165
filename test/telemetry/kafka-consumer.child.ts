// A Kafka consumer of another service: works in the trace of each message and prints its spans. Arguments: broker, topic.
import { trace } from '@opentelemetry/api';
import { NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { Kafka, logLevel } from 'kafkajs';
import { withRemoteContext } from '../../src/telemetry/remote-context.ts';

const [broker = '', topic = ''] = process.argv.slice(2);
const tell = (message: object) => console.log(JSON.stringify(message));
new NodeTracerProvider({
  spanProcessors: [
    new SimpleSpanProcessor({
      export(spans, done) {
        for (const span of spans) {
          const { traceId } = span.spanContext();
          tell({ event: 'span', name: span.name, traceId, parentSpanId: span.parentSpanContext?.spanId });
        }
        done({ code: 0 });
      },
      shutdown: async () => {},
    }),
  ],
}).register();

const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING });
const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic }], waitForLeaders: true });
await admin.disconnect();
const consumer = kafka.consumer({ groupId: `${topic}-consumer` });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
consumer.on(consumer.events.GROUP_JOIN, () => tell({ event: 'ready' }));
await consumer.run({
  eachMessage: async ({ message }) => {
    const headers = Object.fromEntries(
      Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)]),
    );
    await withRemoteContext(headers, () => trace.getTracer('consumer').startActiveSpan('work', (span) => span.end()));
  },
});
