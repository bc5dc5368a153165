// The thread that a relay's heartbeat runs on: see heartbeat-thread.ts. Starts nothing unless it is run as that thread.
import { writeSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import type { Server } from '../../database/connection-string.ts';
import { jsonLogger, type Logger } from '../../telemetry/logging.ts';
import { Heartbeat } from './heartbeat.ts';
import { LeaseState, monotonicMs } from './lease-state.ts';
import type { FromThread, PasswordAnswer, ThreadData, ToThread } from './thread-messages.ts';
import { errorFields, errorOf } from './thread-messages.ts';

function run(port: NonNullable<typeof parentPort>, data: ThreadData): void {
  const tell = (message: FromThread) => port.postMessage(message);
  const log = (level: keyof Logger) => (fields: object, message: string) =>
    tell({ tell: 'log', level, fields, message });
  const passwords = new Map<number, (answer: PasswordAnswer) => void>();
  let asked = 0;
  const askPassword = (server: number) =>
    new Promise<string>((resolve, reject) => {
      const number = ++asked;
      passwords.set(number, ({ password, error }) => (error ? reject(errorOf(error)) : resolve(password ?? '')));
      tell({ tell: 'askPassword', number, server });
    });
  const withPassword = (server: Server, index: number): Server => ({
    ...server,
    config: { ...server.config, password: () => askPassword(index) },
  });

  /** Of this thread's own: `process.stderr` of a thread is written by the event loop that hangs. */
  const standardError = jsonLogger((line) => {
    try {
      writeSync(2, line);
    } catch {
      // Closed, or full: the log of the relay has it when the event loop moves again.
    }
  });

  const leaseState = new LeaseState(data.memory);
  const { servers } = data;
  let stats: unknown = {};
  const heartbeat = new Heartbeat({
    ...data,
    servers: data.asksForPassword ? { ...servers, servers: servers.servers.map(withPassword) } : servers,
    leaseState,
    stats: () => stats,
    logger: { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') },
    isBlocked: () => monotonicMs() - leaseState.movedAt > data.blockedMaxMs,
    onBlocked: (fields, message) => standardError.error(fields, message),
    onLost: (token) => tell({ tell: 'lost', token }),
    onRelayLost: (relay) => tell({ tell: 'relayLost', relay }),
    onDisconnected: (error) => tell({ tell: 'disconnected', error: String(error) }),
  });

  const answer = (number: number, work: Promise<void>) =>
    work.then(
      () => tell({ tell: 'done', number }),
      (error) => tell({ tell: 'done', number, error: errorFields(error) }),
    );
  port.on('message', (message: ToThread) => {
    if ('call' in message) {
      if (message.call === 'start') void answer(message.number, heartbeat.start());
      else if (message.call === 'keepAlive') void answer(message.number, heartbeat.keepAlive(message.registration));
      else void answer(message.number, heartbeat.stop()).then(() => port.close());
    } else if (message.tell === 'drop') {
      heartbeat.drop();
    } else if (message.tell === 'report') {
      stats = message.stats;
    } else {
      passwords.get(message.number)?.(message);
      passwords.delete(message.number);
    }
  });
}

if (parentPort && workerData?.memory instanceof SharedArrayBuffer) run(parentPort, workerData as ThreadData);
