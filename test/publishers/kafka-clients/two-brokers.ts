import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** Kafka's number for a broker that does not lead the partition. */
const notLeader = 6;
const api = { produce: 0, metadata: 3, apiVersions: 18, initProducerId: 22 };
/** Newest versions without compact encodings: every client has them, and one encoder is enough here. */
const versions: Readonly<Record<number, readonly [min: number, max: number]>> = {
  [api.produce]: [3, 7],
  [api.metadata]: [5, 5],
  [api.apiVersions]: [0, 3],
  [api.initProducerId]: [0, 1],
};

export type BrokerId = 1 | 2;

export interface TwoBrokers {
  /** For the option `brokers`. */
  readonly addresses: string[];
  close(): Promise<void>;
}

export interface TwoBrokersOptions {
  /** The real broker that stores everything, `host:port`. */
  broker: string;
  topic: string;
  partitionCount: number;
  /** Which broker leads the partition now. */
  leaderOf(partition: number): BrokerId;
  /** A broker received a Produce request. What it awaits delays the answer; leaders are asked for afterwards. */
  onProduce(broker: BrokerId, partitions: readonly number[]): Promise<void> | void;
  /** These partitions were stored by the broker, and the client is about to be told. */
  onStored(broker: BrokerId, partitions: readonly number[]): void;
}

/**
 * A cluster of two brokers in front of one real broker, which stores the records. Who leads a partition is up to the
 * test: a broker that does not lead a partition refuses it with NOT_LEADER_OR_FOLLOWER and stores the others of the
 * request, as Kafka does.
 */
export async function startTwoBrokers(options: TwoBrokersOptions): Promise<TwoBrokers> {
  const sockets = new Set<Socket>();
  const servers: Server[] = [];
  const ports: number[] = [];
  for (const id of [1, 2] as const) {
    const server = createServer((client) => {
      sockets.add(client);
      new BrokerConnection(id, client, options, () => ports).serve();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    servers.push(server);
    ports.push((server.address() as { port: number }).port);
  }
  return {
    addresses: ports.map((port) => `127.0.0.1:${port}`),
    async close() {
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise((closed) => server.close(closed))));
    },
  };
}

class BrokerConnection {
  readonly #id: BrokerId;
  readonly #client: Socket;
  readonly #options: TwoBrokersOptions;
  readonly #ports: () => readonly number[];
  readonly #upstream: Socket;
  #answered: (response: Buffer) => void = () => {};
  #turn: Promise<unknown> = Promise.resolve();

  constructor(id: BrokerId, client: Socket, options: TwoBrokersOptions, ports: () => readonly number[]) {
    this.#id = id;
    this.#client = client;
    this.#options = options;
    this.#ports = ports;
    const [host = '', port = ''] = options.broker.split(':');
    this.#upstream = connect(Number(port), host);
  }

  serve(): void {
    for (const socket of [this.#client, this.#upstream]) {
      socket.on('error', () => {});
      socket.on('close', () => this.#end());
    }
    onFrame(this.#upstream, (frame) => this.#answered(frame));
    onFrame(this.#client, (frame) => {
      const answer = () => this.#answer(frame);
      this.#turn = this.#turn.then(answer).catch(() => this.#end());
    });
  }

  #end(): void {
    this.#client.destroy();
    this.#upstream.destroy();
  }

  async #answer(frame: Buffer): Promise<void> {
    const reader = new Reader(frame);
    const [key, version, correlationId] = [reader.int16(), reader.int16(), reader.int32()];
    if (key === api.apiVersions) return this.#write(correlationId, apiVersionsResponse(version));
    if (key === api.metadata) return this.#write(correlationId, this.#metadataResponse());
    if (key !== api.produce) return void this.#client.write(withLength(await this.#forward(frame)));
    reader.text();
    const request = readProduce(reader);
    const partitionsOf = (topics: readonly ProduceTopic[]) =>
      topics.flatMap(({ partitions }) => partitions.map(({ partition }) => partition));
    await this.#options.onProduce(this.#id, partitionsOf(request.topics));
    const leads = ({ partition }: { partition: number }) => this.#options.leaderOf(partition) === this.#id;
    const own = withPartitions(request.topics, leads);
    const foreign = withPartitions(request.topics, (each) => !leads(each));
    const responses = foreign.map(({ name, partitions }) => topicResponse(name, partitions));
    if (own.length > 0) {
      const head = frame.subarray(0, request.topicsAt);
      const stored = await this.#forward(Buffer.concat([head, writeTopics(own)]));
      responses.push(...readTopicResponses(stored.subarray(4)));
      this.#options.onStored(this.#id, partitionsOf(own));
    }
    this.#write(correlationId, Buffer.concat([int32(responses.length), ...responses, int32(0)]));
  }

  #forward(frame: Buffer): Promise<Buffer> {
    return new Promise((resolve) => {
      this.#answered = resolve;
      this.#upstream.write(withLength(frame));
    });
  }

  #write(correlationId: number, body: Buffer): void {
    this.#client.write(withLength(Buffer.concat([int32(correlationId), body])));
  }

  #metadataResponse(): Buffer {
    const brokers = this.#ports().map((port, index) =>
      Buffer.concat([int32(index + 1), text('127.0.0.1'), int32(port), noText]),
    );
    const partitions = Array.from({ length: this.#options.partitionCount }, (_, partition) => {
      const leader = int32(this.#options.leaderOf(partition));
      const both = Buffer.concat([int32(2), int32(1), int32(2)]);
      return Buffer.concat([int16(0), int32(partition), leader, both, both, int32(0)]);
    });
    const topic = [int16(0), text(this.#options.topic), Buffer.from([0]), int32(partitions.length), ...partitions];
    const controller = int32(1);
    return Buffer.concat([int32(0), int32(brokers.length), ...brokers, noText, controller, int32(1), ...topic]);
  }
}

interface ProduceTopic {
  name: string;
  partitions: { partition: number; records: Buffer }[];
}

function readProduce(reader: Reader): { topicsAt: number; topics: ProduceTopic[] } {
  reader.text(); // The transaction.
  reader.skip(2 + 4); // Acknowledgements and timeout.
  const topicsAt = reader.at;
  const topics = reader.list(() => ({
    name: reader.text() ?? '',
    partitions: reader.list(() => ({ partition: reader.int32(), records: reader.bytes() })),
  }));
  return { topicsAt, topics };
}

function writeTopics(topics: readonly ProduceTopic[]): Buffer {
  const written = topics.map(({ name, partitions }) =>
    Buffer.concat([
      text(name),
      int32(partitions.length),
      ...partitions.flatMap(({ partition, records }) => [int32(partition), int32(records.length), records]),
    ]),
  );
  return Buffer.concat([int32(written.length), ...written]);
}

function withPartitions(
  topics: readonly ProduceTopic[],
  isWanted: (each: { partition: number }) => boolean,
): ProduceTopic[] {
  const filtered = topics.map(({ name, partitions }) => ({ name, partitions: partitions.filter(isWanted) }));
  return filtered.filter(({ partitions }) => partitions.length > 0);
}

function topicResponse(name: string, partitions: readonly { partition: number }[]): Buffer {
  const refusals = partitions.map(({ partition }) =>
    Buffer.concat([int32(partition), int16(notLeader), Buffer.alloc(24, 0xff)]),
  );
  return Buffer.concat([text(name), int32(refusals.length), ...refusals]);
}

/** The topics of a Produce response, as they are. */
function readTopicResponses(response: Buffer): Buffer[] {
  const reader = new Reader(response);
  return reader.list(() => {
    const start = reader.at;
    reader.text();
    reader.list(() => reader.skip(4 + 2 + 24));
    return response.subarray(start, reader.at);
  });
}

function apiVersionsResponse(version: number): Buffer {
  const isCompact = version >= 3;
  const entries = Object.entries(versions).map(([key, [min, max]]) =>
    Buffer.concat([int16(Number(key)), int16(min), int16(max), Buffer.alloc(isCompact ? 1 : 0)]),
  );
  const count = isCompact ? Buffer.from([entries.length + 1]) : int32(entries.length);
  const throttleTime = Buffer.alloc(version === 0 ? 0 : 4);
  return Buffer.concat([int16(0), count, ...entries, throttleTime, Buffer.alloc(isCompact ? 1 : 0)]);
}

function onFrame(socket: Socket, take: (frame: Buffer) => void): void {
  let received = Buffer.alloc(0);
  socket.on('data', (chunk) => {
    received = Buffer.concat([received, chunk]);
    while (received.length >= 4 && received.length >= 4 + received.readInt32BE(0)) {
      const end = 4 + received.readInt32BE(0);
      take(received.subarray(4, end));
      received = received.subarray(end);
    }
  });
}

class Reader {
  readonly #buffer: Buffer;
  at = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  skip(bytes: number): void {
    this.at += bytes;
  }

  int16(): number {
    this.at += 2;
    return this.#buffer.readInt16BE(this.at - 2);
  }

  int32(): number {
    this.at += 4;
    return this.#buffer.readInt32BE(this.at - 4);
  }

  text(): string | null {
    const length = this.int16();
    if (length < 0) return null;
    this.at += length;
    return this.#buffer.toString('utf8', this.at - length, this.at);
  }

  bytes(): Buffer {
    const length = Math.max(0, this.int32());
    this.at += length;
    return this.#buffer.subarray(this.at - length, this.at);
  }

  list<T>(read: () => T): T[] {
    return Array.from({ length: this.int32() }, read);
  }
}

function withLength(frame: Buffer): Buffer {
  return Buffer.concat([int32(frame.length), frame]);
}

function int16(value: number): Buffer {
  const buffer = Buffer.alloc(2);
  buffer.writeInt16BE(value);
  return buffer;
}

function int32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeInt32BE(value);
  return buffer;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([int16(bytes.length), bytes]);
}

const noText = int16(-1);
