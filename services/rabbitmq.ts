import { readdir, readFile, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { checkAmqp } from './amqp-handshake.ts';
import { unpackDebianPackage } from './debian-package.ts';
import { findProgram, isExecutable } from './run-command.ts';
import type { Installed, Place, Report, Service } from './service.ts';

export const rabbitmq: Service = {
  name: 'rabbitmq',
  title: 'RabbitMQ',
  variable: 'RABBITMQ_URL',
  // Its nodes talk to each other through two more, also where there is only one node.
  ports: { client: 5672, distribution: 25672, epmd: 24369 },
  install,
  environment: (port) => ({ RABBITMQ_URL: `amqp://guest:guest@127.0.0.1:${port('client')}` }),
  check: (environment) => checkAmqp(new URL(environment.RABBITMQ_URL ?? '')),
};

// Erlang's port mapper as a child of ours: left to itself Erlang starts one that stays when everything else ends. It
// must answer before the server looks for it. The shell outlives the server, and sees that the mapper goes with it.
const startScript = `
epmd & mapper=$!
until epmd -names >/dev/null 2>&1; do sleep 0.05; done
trap : TERM
"$0" & server=$!
wait "$server"
wait "$server"
kill "$mapper"
`;

async function install(report: Report): Promise<Installed> {
  const { server, env } = await findServer(report);
  return {
    async prepare(place) {
      await writeConfiguration(place);
      return { program: '/bin/sh', args: ['-c', startScript, server], env: { ...env, ...settingsOf(place) } };
    },
  };
}

async function writeConfiguration({ folder, port, settings }: Place): Promise<void> {
  const configuration = {
    'listeners.tcp.default': `127.0.0.1:${port('client')}`,
    'log.console': 'true',
    'log.console.level': 'warning',
    'log.file': 'false',
    'vm_memory_high_watermark.absolute': '1GB',
    ...settings,
  };
  const lines = Object.entries(configuration).map(([name, value]) => `${name} = ${value}\n`);
  await writeFile(join(folder, 'rabbitmq.conf'), lines.join(''), { mode: 0o600 });
  await writeFile(join(folder, 'advanced.config'), '[].\n');
  await writeFile(join(folder, 'enabled_plugins'), '[].\n');
}

function settingsOf({ folder, port }: Place): Record<string, string> {
  return {
    // For its cookie, which must not be the user's.
    HOME: folder,
    ERL_EPMD_ADDRESS: '127.0.0.1',
    ERL_EPMD_PORT: String(port('epmd')),
    RABBITMQ_NODENAME: `postcommit-${port('client')}@localhost`,
    RABBITMQ_DIST_PORT: String(port('distribution')),
    // Without it the distribution port is open on all addresses.
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
    RABBITMQ_CONFIG_FILE: join(folder, 'rabbitmq.conf'),
    RABBITMQ_ADVANCED_CONFIG_FILE: join(folder, 'advanced.config'),
    RABBITMQ_CONFIG_FILES: join(folder, 'none'),
    RABBITMQ_CONF_ENV_FILE: join(folder, 'none'),
    RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, 'enabled_plugins'),
    RABBITMQ_MNESIA_BASE: join(folder, 'data'),
    RABBITMQ_LOG_BASE: join(folder, 'log'),
    RABBITMQ_PID_FILE: join(folder, 'rabbitmq.pid'),
  };
}

async function findServer(report: Report): Promise<{ server: string; env: Record<string, string> }> {
  // An installed Debian package: the one on the PATH wraps this one and insists on the user rabbitmq.
  const debian = '/usr/lib/rabbitmq/bin/rabbitmq-server';
  const installed = (await isExecutable(debian)) ? debian : await findProgram('rabbitmq-server');
  const epmd = await findProgram('epmd');
  if (installed !== undefined && epmd !== undefined) {
    return { server: installed, env: { PATH: `${dirname(epmd)}${delimiter}${process.env.PATH}` } };
  }
  const dependencies = /^erlang-/;
  const { root, libraryFolders } = await unpackDebianPackage(
    { package: 'rabbitmq-server', dependencies, adapt: relocateErlang },
    report,
  );
  return {
    server: join(root, debian),
    env: {
      PATH: `${join(root, 'usr', 'bin')}${delimiter}${process.env.PATH}`,
      LD_LIBRARY_PATH: libraryFolders.join(delimiter),
    },
  };
}

/** Its start script has the folder it was built for written into it. */
async function relocateErlang(folder: string, root: string): Promise<void> {
  const bin = join(folder, 'usr', 'lib', 'erlang', 'bin');
  // Absent where Erlang itself is installed and only RabbitMQ was unpacked.
  const names = await readdir(bin).catch(() => []);
  for (const name of names.filter((candidate) => candidate === 'erl' || candidate === 'start')) {
    const file = join(bin, name);
    const text = await readFile(file, 'utf8');
    await writeFile(file, text.replaceAll('=/usr/lib/erlang', `=${join(root, 'usr', 'lib', 'erlang')}`));
  }
}
