// The least that leaves something in a broker and finds it again, without a client library.
import { randomUUID } from 'node:crypto';
import { isFrame, logIn, methodFrame } from '../../services/amqp-handshake.ts';
import { type Ask, converse } from '../../services/conversation.ts';
import { askKafka, metadataRequest } from '../../services/kafka-handshake.ts';

export interface KeptData {
  write(port: number): Promise<void>;
  isThere(port: number): Promise<boolean>;
}

const talk = <T>(port: number, work: (ask: Ask) => Promise<T>) => converse('127.0.0.1', port, work);

export const inRedis: KeptData = {
  async write(port) {
    await talk(port, (ask) => ask('SET kept yes\r\n', (received) => received.includes('+OK\r\n')));
  },
  async isThere(port) {
    const answer = await talk(port, (ask) => ask('GET kept\r\n', (received) => received.includes('\r\n')));
    return answer.toString().includes('yes');
  },
};

export const inNats: KeptData = {
  async write(port) {
    await askJetStream(port, '$JS.API.STREAM.CREATE.KEPT', { name: 'KEPT', subjects: ['kept'] });
    await askJetStream(port, 'kept', {});
  },
  async isThere(port) {
    return /"messages":\s*1\b/.test(await askJetStream(port, '$JS.API.STREAM.INFO.KEPT', {}));
  },
};

async function askJetStream(port: number, subject: string, message: object): Promise<string> {
  const body = JSON.stringify(message);
  const inbox = `_INBOX.${randomUUID()}`;
  const lines = ['CONNECT {"verbose":false}', `SUB ${inbox} 1`, `PUB ${subject} ${inbox} ${body.length}`, body, ''];
  const isAnswer = (received: Buffer) => /MSG \S+ 1 +\d+\r\n.*\r\n/.test(received.toString());
  return (await talk(port, (ask) => ask(lines.join('\r\n'), isAnswer))).toString();
}

export const inKafka: KeptData = {
  async write(port) {
    // Asking for a topic creates it.
    const topic = Buffer.from('\0\0\0\x01\0\x04kept');
    await talk(port, (ask) => askKafka(ask, metadataRequest, topic));
  },
  async isThere(port) {
    const allTopics = Buffer.from([0xff, 0xff, 0xff, 0xff]);
    return (await talk(port, (ask) => askKafka(ask, metadataRequest, allTopics))).includes('kept');
  },
};

const passive = 0b01;
const durable = 0b10;

export const inRabbitmq: KeptData = {
  async write(port) {
    await declareQueue(port, durable);
  },
  async isThere(port) {
    // A passive declaration of a queue that is not there closes the channel (20.40) instead of 50.11.
    const answer = await declareQueue(port, passive | durable);
    return answer.readUInt16BE(7) === 50;
  },
};

async function declareQueue(port: number, flags: number): Promise<Buffer> {
  const url = new URL(`amqp://guest:guest@127.0.0.1:${port}`);
  return talk(port, async (ask) => {
    await logIn(ask, url);
    const tuneOk = methodFrame(Buffer.from('\0\x0a\0\x1f\0\x01\0\x02\0\0\0\0', 'latin1'));
    const open = methodFrame(Buffer.from('\0\x0a\0\x28\x01/\0\0', 'latin1'));
    await ask(Buffer.concat([tuneOk, open]), isFrame);
    await ask(methodFrame(Buffer.from('\0\x14\0\x0a\0', 'latin1'), 1), isFrame);
    const declare = Buffer.concat([
      Buffer.from('\0\x32\0\x0a\0\0\x04kept', 'latin1'),
      Buffer.from([flags, 0, 0, 0, 0]),
    ]);
    return ask(methodFrame(declare, 1), isFrame);
  });
}
