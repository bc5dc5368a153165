import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { startService } from '../../services/private-service.ts';
import type { Broker } from '../brokers/broker.ts';
import type { BrokerResult, BrokerTask } from '../brokers/child.ts';
import { brokers as allBrokers } from '../brokers/registry.ts';
import type { Backlog } from '../contenders/contender.ts';
import { postcommit } from '../contenders/postcommit.ts';
import { fill } from '../drain-processes.ts';
import { machine } from '../machine.ts';
import { contenderNode, packageAt } from '../peers.ts';
import { median } from '../ratio.ts';
import { makeReady } from '../ready.ts';
import { compare, type Measurement } from '../report.ts';
import { forkChild } from '../run-child.ts';
import { type Server, startServer } from '../server.ts';
import { seededRandom, shuffled } from '../shuffled.ts';
import { type BenchOptions, chosen, type Suite } from './suite.ts';

interface BrokerServer {
  url: string;
  version: string;
  stop(): Promise<void>;
}

/**
 * What is left of a broker client's speed when the relay feeds it: order per aggregate, every event claimed from the
 * database, confirmed by the broker, and its delivery written down. The baseline is the same client in a process of its
 * own that publishes the same messages from memory. Each round runs both, in random order, on the same broker.
 */
export const brokers: Suite = {
  name: 'brokers',
  summary: 'a relay drains a backlog into each broker, against the same client publishing from memory',

  names: allBrokers.map(({ name }) => name),

  async run(options) {
    const node = makeReady();
    const server = await startServer(options.databaseUrl);
    try {
      const measurements: Measurement[] = [];
      for (const broker of chosen(allBrokers, options))
        measurements.push(...(await measure(broker, server, node, options)));
      return measurements;
    } finally {
      await server.stop();
    }
  },
};

async function measure(broker: Broker, server: Server, node: string, options: BenchOptions): Promise<Measurement[]> {
  const events = Math.max(1, Math.round(options.events * broker.share));
  const backlog: Backlog = { events, payloadBytes: options.payloadBytes, aggregates: options.aggregates };
  const running = await startBroker(broker);
  const rates: Record<BrokerTask['phase'], number[]> = { client: [], relay: [] };
  const random = seededRandom(options.seed);
  let nodeVersion = '';
  try {
    for (let round = 1; round <= options.rounds; round++) {
      for (const phase of shuffled(['client', 'relay'] as const, random)) {
        const { tookMs, node: version } = await once(broker, phase, running.url, backlog, server, node, options);
        nodeVersion = version;
        const rate = (events / tookMs) * 1_000;
        rates[phase].push(rate);
        const shown = Math.round(rate).toLocaleString('en');
        console.error(`round ${round} of ${options.rounds}: ${broker.name} ${phase} ${shown} events/s`);
      }
    }
  } finally {
    await running.stop();
  }
  const figure = (phase: BrokerTask['phase'], name: string): Measurement => ({
    suite: 'brokers',
    name,
    value: median(rates[phase]),
    unit: 'events/s',
    rounds: rates[phase],
    versions: {
      node: nodeVersion,
      postgres: server.version,
      [broker.service]: running.version,
      postcommit: packageAt(new URL('../../package.json', import.meta.url)).version,
      ...(broker.client && { [broker.client]: versionOf(broker.client) }),
    },
    settings: { ...backlog, rounds: options.rounds, processes: 1, ...machine() },
  });
  const client = figure('client', `${broker.name} client from memory`);
  const relay = figure('relay', `${broker.name} relay`);
  return [client, relay, compare(relay, client, { atLeast: broker.goal, next: broker.nextGoal })];
}

function versionOf(client: string): string {
  return packageAt(new URL(`../../node_modules/${client}/package.json`, import.meta.url)).version;
}

async function once(
  broker: Broker,
  phase: BrokerTask['phase'],
  url: string,
  backlog: Backlog,
  server: Server,
  node: string,
  { interrupted }: BenchOptions,
): Promise<BrokerResult> {
  const topic = await broker.createTopic(url);
  try {
    const task = { phase, broker: broker.name, url, topic, connectionString: '', backlog };
    if (phase === 'client') return await runBroker(node, task, interrupted);
    return await withBacklog(server, node, backlog, interrupted, (connectionString) =>
      runBroker(node, { ...task, connectionString }, interrupted),
    );
  } finally {
    await broker.removeTopic?.(url, topic);
  }
}

/** Runs `work` on a database of its own that holds the backlog. */
async function withBacklog<T>(
  server: Server,
  node: string,
  backlog: Backlog,
  interrupted: AbortSignal,
  work: (connectionString: string) => Promise<T>,
): Promise<T> {
  const database = `postcommit_bench_${process.pid}`;
  const connectionString = await server.createDatabase(database);
  const db = new pg.Client({ connectionString });
  try {
    const target = { connectionString, backlog, settings: {} };
    await fill(node, postcommit, target, interrupted);
    await db.connect();
    await db.query('vacuum (analyze)');
    await db.query('checkpoint');
    return await work(connectionString);
  } finally {
    await db.end();
    await server.dropDatabase(database);
  }
}

async function runBroker(node: string, task: BrokerTask, interrupted: AbortSignal): Promise<BrokerResult> {
  const what = `${task.broker} ${task.phase}`;
  return (await forkChild(node, new URL('../brokers/child.ts', import.meta.url), task, {
    what,
    timeoutMs: 120_000 + task.backlog.events * 5,
    interrupted,
  })) as BrokerResult;
}

async function startBroker({ service }: Broker): Promise<BrokerServer> {
  if (service === 'http') return await startReceiver();
  const running = await startService(service);
  return { url: running.url, version: running.version ?? '', stop: () => running.remove() };
}

async function startReceiver(): Promise<BrokerServer> {
  const file = fileURLToPath(new URL('../brokers/http-receiver.ts', import.meta.url));
  const child: ChildProcess = fork(file, {
    execPath: contenderNode(),
    execArgv: ['--disable-warning=ExperimentalWarning'],
  });
  const { port } = await new Promise<{ port: number }>((resolve, reject) => {
    child.once('message', (message) => resolve(message as { port: number }));
    child.once('error', reject);
  });
  return {
    url: `http://127.0.0.1:${port}/hooks`,
    version: `Node ${process.version}`,
    async stop() {
      child.disconnect();
    },
  };
}
