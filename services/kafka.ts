import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type KafkaFiles, obtainKafka } from './kafka-files.ts';
import { checkKafka } from './kafka-handshake.ts';
import { runCommand } from './run-command.ts';
import type { Command, Installed, Place, Report, Service } from './service.ts';

/** One node that is broker and controller. A second listener asks for a password (`postcommit`, for `postcommit`). */
export const kafka: Service = {
  name: 'kafka',
  title: 'Kafka',
  variable: 'KAFKA_BROKERS',
  ports: { client: 9092, controller: 9093, sasl: 9094 },
  install,
  environment: (port) => ({
    KAFKA_BROKERS: `127.0.0.1:${port('client')}`,
    KAFKA_SASL_BROKERS: `127.0.0.1:${port('sasl')}`,
  }),
  check: (environment) => checkKafka(environment.KAFKA_BROKERS ?? ''),
};

async function install(report: Report): Promise<Installed> {
  const files = await obtainKafka(report);
  return { version: files.version, prepare: (place) => prepare(files, place) };
}

async function prepare({ java, classPath }: KafkaFiles, place: Place): Promise<Command> {
  const file = join(place.folder, 'server.properties');
  const lines = Object.entries(properties(place)).map(([name, value]) => `${name}=${value}\n`);
  await writeFile(file, lines.join(''), { mode: 0o600 });
  if (!existsSync(join(place.folder, 'data', 'meta.properties'))) await format(java, classPath, file, place.folder);
  const memory = ['-Xms128m', '-Xmx512m', '-XX:+UseSerialGC', '-XX:-UsePerfData'];
  const logging = ['-Dorg.slf4j.simpleLogger.defaultLogLevel=warn', '-Dorg.slf4j.simpleLogger.showDateTime=true'];
  return { program: java, args: [...memory, ...logging, '-cp', classPath, 'kafka.Kafka', file] };
}

async function format(java: string, classPath: string, file: string, folder: string): Promise<void> {
  // A program of a second, for which the optimising compiler would not pay.
  const memory = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'];
  const args = ['format', '--cluster-id', 'cG9zdGNvbW1pdC10ZXN0cw', '--config', file];
  await runCommand(java, [...memory, '-cp', classPath, 'kafka.tools.StorageTool', ...args], folder);
}

function properties({ folder, port, settings }: Place): Record<string, string> {
  const addresses = `CLIENT://127.0.0.1:${port('client')},SASL://127.0.0.1:${port('sasl')}`;
  const controller = `127.0.0.1:${port('controller')}`;
  return {
    'process.roles': 'broker,controller',
    'node.id': '1',
    listeners: `${addresses},CONTROLLER://${controller}`,
    'advertised.listeners': addresses,
    'listener.security.protocol.map': 'CLIENT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT',
    'inter.broker.listener.name': 'CLIENT',
    'controller.listener.names': 'CONTROLLER',
    'controller.quorum.voters': `1@${controller}`,
    'sasl.enabled.mechanisms': 'PLAIN',
    'listener.name.sasl.plain.sasl.jaas.config':
      'org.apache.kafka.common.security.plain.PlainLoginModule required user_postcommit="postcommit";',
    'log.dirs': join(folder, 'data'),
    'num.partitions': '3',
    // One node cannot keep three copies, and a test does not need fifty partitions of offsets.
    'offsets.topic.replication.factor': '1',
    'offsets.topic.num.partitions': '1',
    'transaction.state.log.replication.factor': '1',
    'transaction.state.log.min.isr': '1',
    'transaction.state.log.num.partitions': '1',
    'share.coordinator.state.topic.replication.factor': '1',
    'share.coordinator.state.topic.min.isr': '1',
    'share.coordinator.state.topic.num.partitions': '1',
    'group.initial.rebalance.delay.ms': '0',
    // After a crash the controller lets the broker in again only when this is over: 14 s to start with the usual 9.
    'broker.session.timeout.ms': '4000',
    'broker.heartbeat.interval.ms': '1000',
    'num.network.threads': '2',
    'num.io.threads': '4',
    // A quarter of the heap by default.
    'log.cleaner.dedupe.buffer.size': '4194304',
    ...settings,
  };
}
