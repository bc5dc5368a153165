import { type Ask, converse } from './conversation.ts';

// Class and method numbers of AMQP 0-9-1.
const connectionClass = 10;
const startMethod = 10;
const startOkMethod = 11;
const tuneMethod = 30;

/** The server is ready, and lets this user in. Resolves with its version. */
export function checkAmqp(url: URL): Promise<string | undefined> {
  return converse(url.hostname, Number(url.port || 5672), async (ask) => readVersion(await logIn(ask, url)));
}

/** Resolves with the server's first frame, when it has accepted the user and sent its limits. */
export async function logIn(ask: Ask, url: URL): Promise<Buffer> {
  const user = decodeURIComponent(url.username || 'guest');
  const password = decodeURIComponent(url.password || 'guest');
  const start = await ask(Buffer.from('AMQP\0\0\x09\x01', 'latin1'), isFrame);
  expectMethod(start, startMethod);
  const login = Buffer.concat([
    methodNumber(startOkMethod),
    length32(''), // No client properties.
    length8('PLAIN'),
    length32(`\0${user}\0${password}`),
    length8('en_US'),
  ]);
  expectMethod(await ask(methodFrame(login), isFrame), tuneMethod);
  return start;
}

export function methodFrame(payload: Buffer, channel = 0): Buffer {
  const head = Buffer.alloc(7);
  head.writeUInt8(1, 0);
  head.writeUInt16BE(channel, 1);
  head.writeUInt32BE(payload.length, 3);
  return Buffer.concat([head, payload, Buffer.from([0xce])]);
}

export function isFrame(received: Buffer): boolean {
  // A server of another protocol version answers with its own header and hangs up.
  if (received.length >= 8 && received.toString('latin1', 0, 4) === 'AMQP') return true;
  return received.length >= 7 && received.length >= 7 + received.readUInt32BE(3) + 1;
}

function expectMethod(received: Buffer, method: number): void {
  if (received.length < 12) throw new Error('it does not speak AMQP 0-9-1');
  const [classSeen, methodSeen] = [received.readUInt16BE(7), received.readUInt16BE(9)];
  if (received[0] !== 1 || classSeen !== connectionClass || methodSeen !== method) {
    throw new Error(`RabbitMQ answers with ${classSeen}.${methodSeen} instead of ${connectionClass}.${method}`);
  }
}

function methodNumber(method: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt16BE(connectionClass, 0);
  bytes.writeUInt16BE(method, 2);
  return bytes;
}

function length8(text: string): Buffer {
  return Buffer.concat([Buffer.from([text.length]), Buffer.from(text)]);
}

function length32(text: string): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(Buffer.byteLength(text));
  return Buffer.concat([head, Buffer.from(text)]);
}

/** Among the server's properties, as a long string. */
function readVersion(start: Buffer): string | undefined {
  const name = Buffer.from('\x07versionS');
  const at = start.indexOf(name);
  if (at === -1) return undefined;
  const from = at + name.length + 4;
  return start.toString('utf8', from, from + start.readUInt32BE(from - 4));
}
