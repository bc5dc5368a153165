import { type Ask, converse } from './conversation.ts';

// Of every version from 2.1 on.
export const metadataRequest = { key: 3, version: 1 };
const initProducerIdRequest = { key: 22, version: 1 };

/**
 * The broker knows itself and its controller, and gives out producer ids: a few moments after the first, and an
 * idempotent producer that comes earlier waits for a second.
 */
export function checkKafka(brokers: string): Promise<undefined> {
  const [host = '', port = '9092'] = (brokers.split(',')[0] ?? '').trim().split(':');
  return converse(host, Number(port), async (ask) => {
    const noTopics = Buffer.alloc(4);
    const { brokerCount, controllerId } = readMetadata(await askKafka(ask, metadataRequest, noTopics));
    if (brokerCount < 1 || controllerId < 0) throw new Error('the broker has not joined its cluster yet');
    const withoutTransaction = Buffer.alloc(6);
    withoutTransaction.writeInt16BE(-1, 0);
    const producerId = await askKafka(ask, initProducerIdRequest, withoutTransaction);
    const errorCode = producerId.readInt16BE(4); // After the throttle time.
    if (errorCode !== 0) throw new Error(`the broker gives out no producer ids yet (error ${errorCode})`);
    return undefined;
  });
}

interface Api {
  key: number;
  version: number;
}

/** The response without its length and correlation id. */
export async function askKafka(ask: Ask, { key, version }: Api, body: Buffer): Promise<Buffer> {
  const clientId = Buffer.from('postcommit-check');
  const head = Buffer.alloc(14);
  head.writeInt32BE(10 + clientId.length + body.length, 0);
  head.writeInt16BE(key, 4);
  head.writeInt16BE(version, 6);
  head.writeInt32BE(key, 8);
  head.writeInt16BE(clientId.length, 12);
  const response = await ask(
    Buffer.concat([head, clientId, body]),
    (received) => received.length >= 8 && received.length >= 4 + received.readInt32BE(0),
  );
  return response.subarray(8);
}

function readMetadata(response: Buffer): { brokerCount: number; controllerId: number } {
  let at = 0;
  const int32 = () => {
    at += 4;
    return response.readInt32BE(at - 4);
  };
  const skipText = () => {
    at += 2 + Math.max(response.readInt16BE(at), 0);
  };
  const brokerCount = int32();
  for (let broker = 0; broker < brokerCount; broker++) {
    int32();
    skipText();
    int32();
    skipText();
  }
  return { brokerCount, controllerId: int32() };
}
