import { choosePort } from './ports.ts';
import type { ProcessIdentity } from './process-identity.ts';
import { spawnServer, waitUntilReady } from './server-process.ts';
import type { Installed, PortNumber, Service } from './service.ts';
import { StartFailed } from './service.ts';

const portAttemptsMax = 3;

/** One server: what it needs to be started again as it was. */
export interface Instance {
  readonly service: Service;
  readonly installed: Installed;
  readonly folder: string;
  readonly ports: Readonly<Record<string, number>>;
  readonly settings: Readonly<Record<string, string>>;
}

export interface RunningInstance {
  instance: Instance;
  server: ProcessIdentity;
  version: string | undefined;
}

/** Starts it and resolves when it is ready. `onSpawn` hears of the process before that. */
export async function launch(
  instance: Instance,
  onSpawn?: (server: ProcessIdentity) => Promise<void>,
): Promise<RunningInstance> {
  const { service, installed, folder, ports, settings } = instance;
  const port = portNumbers(ports);
  const command = await installed.prepare({ folder, port, settings });
  const server = await spawnServer(command, folder);
  await onSpawn?.(server);
  const version = await waitUntilReady(service, server, service.environment(port), folder);
  return { instance, server, version: version ?? installed.version };
}

/** The same on ports that are free: the usual ones, or any. Tries others when one was taken in the meantime. */
export async function launchOnFreePorts(
  instance: Omit<Instance, 'ports'>,
  prefer: 'usual' | 'any',
  onSpawn?: (server: ProcessIdentity, ports: Record<string, number>) => Promise<void>,
): Promise<RunningInstance> {
  for (let attempt = 1; ; attempt++) {
    const ports = await choosePorts(instance.service, prefer);
    try {
      return await launch({ ...instance, ports }, (server) => onSpawn?.(server, ports) ?? Promise.resolve());
    } catch (error) {
      const taken = error instanceof StartFailed && /address (already )?in use|eaddrinuse/i.test(error.message);
      if (!taken || attempt >= portAttemptsMax) throw error;
    }
  }
}

export function portNumbers(ports: Readonly<Record<string, number>>): PortNumber {
  return (name) => {
    const number = ports[name];
    if (number === undefined) throw new Error(`There is no port "${name}", only ${Object.keys(ports).join(', ')}.`);
    return number;
  };
}

async function choosePorts(service: Service, prefer: 'usual' | 'any'): Promise<Record<string, number>> {
  const ports: Record<string, number> = {};
  for (const [name, usual] of Object.entries(service.ports)) {
    let number: number;
    do {
      number = await choosePort(prefer === 'usual' ? usual : undefined);
    } while (Object.values(ports).includes(number));
    ports[name] = number;
  }
  return ports;
}
