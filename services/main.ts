// npm run services -- up|down|status [service ...] [--json]. Results go to stdout, progress to stderr.
import { parseArgs } from 'node:util';
import { services } from './registry.ts';
import type { ServiceName } from './service.ts';
import { down, type Status, status, type UpResult, up } from './shared-services.ts';

const names = Object.keys(services) as ServiceName[];

const usage = `Usage: npm run services -- <command> [service ...] [--json]

Real brokers on 127.0.0.1 for the tests, fetched when first needed, with data under a temporary folder.

Commands:
  up       see that they run, and print the environment variables that point at them once they are ready
  down     stop what up started, and remove its data
  status   what runs, and where

Services (all of them if none is named):
${Object.values(services)
  .map(({ name, title, variable }) => `  ${name.padEnd(9)} ${title.padEnd(17)} ${variable}`)
  .join('\n')}

A variable that is set points at a server of yours, which up then checks and uses.

Options:
  --json   one JSON object instead of lines (npm run --silent services -- ... for nothing else on stdout)
  --help   print this

Exit code: 0 also when this machine cannot have a service, which is then named; 1 for that too if CI=true, and when a
service should work and does not; 2 wrong usage.

Examples:
  npm run services -- up kafka redis
  export $(npm run --silent services -- up) && npm test
  npm run services -- down`;

class UsageError extends Error {}

async function main(args: string[]): Promise<number> {
  const { values, positionals } = parse(args);
  const [command, ...given] = positionals;
  if (values.help) {
    console.log(usage);
    return 0;
  }
  const chosen = given.length > 0 ? [...new Set(given.map(serviceName))] : names;
  switch (command) {
    case 'up':
      return printUp(await up(chosen, (line) => console.error(line)), values.json);
    case 'down':
      return printDown(chosen, await down(chosen), values.json);
    case 'status':
      return printStatus(await status(chosen), values.json);
    default:
      throw new UsageError(command ? `There is no command "${command}".` : 'A command is missing.');
  }
}

function parse(args: string[]) {
  try {
    const options = { json: { type: 'boolean', default: false }, help: { type: 'boolean', default: false } } as const;
    return parseArgs({ args, allowPositionals: true, options });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function serviceName(given: string): ServiceName {
  const found = names.find((name) => name === given);
  if (!found) throw new UsageError(`There is no service "${given}"; there are: ${names.join(', ')}.`);
  return found;
}

function printUp(results: UpResult[], json: boolean): number {
  const env = Object.assign({}, ...results.map((result) => result.env));
  for (const { name, title, outcome, version, reason, tookMs } of results) {
    const server = version === undefined ? title : `${title} ${version}`;
    const seconds = `${(tookMs / 1_000).toFixed(1)} s`;
    const advice = outcome === 'unavailable' ? `. Install it, or point ${services[name].variable} at one` : '';
    const story = reason === undefined ? `${server} ${outcome}, ${seconds}` : `${outcome}: ${reason}${advice}`;
    console.error(`${name}: ${story}`);
  }
  if (json) console.log(JSON.stringify({ env, services: results }));
  else for (const [variable, value] of Object.entries(env)) console.log(`${variable}=${value}`);
  const strict = process.env.CI === 'true';
  const bad = results.some(({ outcome }) => outcome === 'failed' || (strict && outcome === 'unavailable'));
  return bad ? 1 : 0;
}

function printDown(chosen: ServiceName[], ended: ServiceName[], json: boolean): number {
  if (json) console.log(JSON.stringify({ stopped: ended }));
  else for (const name of chosen) console.log(`${name}: ${ended.includes(name) ? 'stopped' : 'was not running'}`);
  return 0;
}

function printStatus(statuses: Status[], json: boolean): number {
  if (json) {
    console.log(JSON.stringify({ services: statuses }));
    return 0;
  }
  for (const { name, title, state, version, env, pid, reason } of statuses) {
    const server = version === undefined ? title : `${title} ${version}`;
    const where = [Object.values(env)[0], pid && `pid ${pid}`, reason].filter(Boolean).join(', ');
    console.log(`${name.padEnd(9)} ${state.padEnd(13)} ${server.padEnd(24)} ${where}`.trimEnd());
  }
  return 0;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (error instanceof UsageError) {
    console.error(`${error.message}\n\n${usage}`);
    process.exitCode = 2;
  } else {
    console.error(error);
    process.exitCode = 1;
  }
}
