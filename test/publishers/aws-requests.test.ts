import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { AwsEntry } from '../../src/publishers/aws/entry.ts';
import type { AwsSession } from '../../src/publishers/aws/publisher.ts';
import { AwsRequests } from '../../src/publishers/aws/requests.ts';

it('entries that are tried alone after a refusal stay within requestsAtOnceMax', async () => {
  let underWay = 0;
  let underWayMax = 0;
  let requests = 0;
  const refusal = Object.assign(new Error('malformed'), { name: 'SomethingNew', $metadata: { httpStatusCode: 400 } });
  const session = {
    async send(_target: string, entries: readonly AwsEntry[]) {
      requests++;
      underWayMax = Math.max(underWayMax, ++underWay);
      await nextTurn();
      underWay--;
      if (entries.length > 1) throw refusal;
      return { Successful: [{ Id: '0' }] };
    },
  } as unknown as AwsSession;
  const limits = { messageBytesMax: 1_000_000, requestsAtOnceMax: 3 };
  const sender = new AwsRequests(session, limits, new AbortController().signal);
  const entry: AwsEntry = { body: '{}', attributes: {}, groupId: undefined, deduplicationId: undefined, bytes: 2 };
  const outcomes = await Promise.all(Array.from({ length: 100 }, () => sender.add('queue', entry)));
  expect(outcomes).toEqual(Array(100).fill({ kind: 'delivered' }));
  expect(requests).toBe(110);
  expect(underWayMax).toBe(3);
});
