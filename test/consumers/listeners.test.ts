import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { consumeKafka } from '../../src/publishers/kafka.ts';
import { until } from '../support/wait.ts';
import { silent } from './consumer-suite.ts';

describe('the listeners of a consumer', () => {
  test.each([
    ['throws', () => undefined],
    ['rejects', async () => {}],
  ])('one that %s is logged and changes nothing', async (name, begin) => {
    const unhandled: unknown[] = [];
    const note = (error: unknown) => void unhandled.push(error);
    process.on('unhandledRejection', note);
    onTestFinished(() => void process.off('unhandledRejection', note));
    const lines: object[] = [];
    const warn = (fields: object, message: string) => void lines.push({ ...fields, message });
    const orders = consumeKafka({ logger: { ...silent, warn }, deadLetter: 'skip', handle() {} });
    const fail = () => {
      throw new Error(`the listener ${name}`);
    };
    orders.on('processed', () => begin()?.then(fail) ?? fail());
    const seen: string[] = [];
    orders.on('processed', ({ eventId }) => void seen.push(eventId));
    orders.once('processed', ({ eventId }) => void seen.push(`once ${eventId}`));
    const ids = [randomUUID(), randomUUID()];
    const headersOf = (id: string) => ({ 'event-id': id, 'event-type': 'order.created' });
    for (const [n, id] of ids.entries()) {
      const message = { value: Buffer.from('1'), offset: String(n), headers: headersOf(id) };
      // It rejects unless the message was processed, and kafkajs then delivers it again.
      await orders.eachMessage({ topic: 'orders', partition: 0, message, heartbeat: async () => {} });
    }
    expect(seen).toEqual([ids[0], `once ${ids[0]}`, ids[1]]);
    expect(orders.stats()).toMatchObject({ processed: 2, released: 0 });
    await until(() => lines.length > 0, { what: 'it is logged' });
    const line = { message: 'a lifecycle listener threw', lifecycle: 'processed', error: `the listener ${name}` };
    expect(lines).toEqual([line]);
    await sleep(10); // An unhandled rejection is reported a moment later.
    expect(unhandled).toEqual([]);
  });
});
