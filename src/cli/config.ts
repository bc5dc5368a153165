import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, extname, join, resolve } from 'node:path';
import type { OutboxConfig, PostcommitConfig } from '../config.ts';
import { PostcommitError } from '../errors.ts';
import type { Handlers } from '../relay/deliver/handlers.ts';
import { relayOptionNames } from '../relay/options.ts';
import { suggest } from '../suggest.ts';
import { jsonErrorLine } from './json-error-line.ts';

const extensions = ['.ts', '.mts', '.js', '.mjs', '.json'];

/** The names of a config file in order of precedence: a `.js` next to a `.ts` is usually compiled from it. */
export const configNames = extensions.map((extension) => `postcommit.config${extension}`);

const { http: _http, logger: _logger, ...ofEachOutbox } = relayOptionNames;
const outboxKeys: Record<keyof OutboxConfig, true> = { ...ofEachOutbox, partitions: true };
const knownKeys: Record<keyof PostcommitConfig, true> = {
  ...relayOptionNames,
  ...outboxKeys,
  alerts: true,
  outboxes: true,
};
/** They are part of addresses of the dashboard and of labels. */
const outboxNamePattern = /^[\w.-]{1,63}$/;

/**
 * Searches for a config file in `folder` and its parents, up to the folder with a package.json. Without a package.json,
 * only `folder` itself is searched: a config file is code, and one in a shared folder such as /tmp must not run.
 */
export function findConfig(folder: string): string | undefined {
  const folders: string[] = [];
  for (let current = resolve(folder); ; current = dirname(current)) {
    folders.push(current);
    if (existsSync(join(current, 'package.json'))) break;
    if (dirname(current) === current) {
      folders.length = 1;
      break;
    }
  }
  return folders.flatMap((each) => configNames.map((name) => join(each, name))).find((file) => existsSync(file));
}

/** Runs a config file and checks what it exports. Every failure is POSTCOMMIT_E_BAD_CONFIG with file and reason. */
export async function loadConfig(file: string): Promise<PostcommitConfig> {
  const config = await loadDefault(file, 'export default defineConfig({ … })');
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw bad(file, `The default export must be an object of options. Found ${kindOf(config)}.`);
  }
  checkOptions(file, config, knownKeys);
  const { outboxes, metrics } = config as PostcommitConfig;
  if (outboxes === undefined) return config as PostcommitConfig;
  if (typeof outboxes !== 'object' || outboxes === null || Object.keys(outboxes).length === 0) {
    throw bad(file, `outboxes must be an object of outboxes by name. Found ${kindOf(outboxes)}.`);
  }
  if (metrics !== undefined) throw bad(file, 'With outboxes each of them needs metrics of its own.');
  for (const [name, own] of Object.entries(outboxes)) {
    if (!outboxNamePattern.test(name)) {
      throw bad(file, `${JSON.stringify(name)} is not a valid outbox name: 1 to 63 letters, digits, _, . and -.`);
    }
    if (typeof own !== 'object' || own === null || Array.isArray(own)) {
      throw bad(file, `outboxes.${name} must be an object of options. Found ${kindOf(own)}.`);
    }
    checkOptions(file, own, outboxKeys, `outboxes.${name}: `);
  }
  return config as PostcommitConfig;
}

function checkOptions(file: string, options: object, known: Record<string, true>, where = ''): void {
  for (const key of Object.keys(options)) {
    if (Object.hasOwn(known, key)) continue;
    const near = suggest(key, Object.keys(known));
    const hint = near ? `Did you mean ${near}?` : `Valid options: ${Object.keys(known).join(', ')}.`;
    throw bad(file, `${where}Unknown option ${JSON.stringify(key)}. ${hint}`);
  }
  for (const key of ['connectionString', 'schema'] as const) {
    const value = (options as Record<string, unknown>)[key];
    if (value !== undefined && typeof value !== 'string') {
      throw bad(file, `${where}${key} must be a string. Found ${kindOf(value)}.`);
    }
  }
}

/** The handlers of a config, from their own file if the config names one. */
export async function loadHandlers(file: string, config: PostcommitConfig): Promise<Handlers> {
  let { handlers } = config;
  let from = file;
  if (typeof handlers === 'string') {
    from = resolve(dirname(file), handlers);
    if (!existsSync(from)) throw bad(file, `handlers is ${handlers}, but the file ${from} does not exist.`);
    handlers = (await loadDefault(
      from,
      "export default { 'order.created': { 'send-receipt': async (event) => {} } }",
    )) as Handlers | undefined;
  }
  const hasDestinations = Object.keys(config.destinations ?? {}).length > 0;
  if (handlers === undefined && hasDestinations) return {};
  if (typeof handlers !== 'object' || handlers === null || Array.isArray(handlers)) {
    throw bad(from, `handlers must be an object of named handlers by event type. Found ${kindOf(handlers)}.`);
  }
  // Without handlers and destinations, every event would fail until its attempts are used up.
  if (Object.keys(handlers).length === 0 && !hasDestinations) {
    throw bad(from, 'handlers is empty and there are no destinations, so the relay has nothing to deliver to.');
  }
  return handlers;
}

async function loadDefault(file: string, example: string): Promise<unknown> {
  const extension = extname(file);
  if (extension === '.json') return parseJson(file);
  if (!/^\.[cm]?[jt]s$/.test(extension)) {
    throw bad(file, `Its extension must be one of ${extensions.join(', ')}. Found ${extension || 'none'}.`);
  }
  const [{ createJiti }, ownModule] = await Promise.all([import('jiti'), import('../index.ts')]);
  let module: object;
  try {
    const jiti = createJiti(file, {
      // A cache of compiled files would store the connection string with its password in a temporary folder.
      fsCache: false,
      interopDefault: false,
      tsconfigPaths: /ts$/.test(extension),
      // The config gets the running package, also under npx, so that its `Reject` is the one the relay checks for.
      virtualModules: { postcommit: ownModule },
    });
    module = await jiti.import<object>(file);
    if ('default' in module) return await module.default;
  } catch (error) {
    throw bad(file, whatFailed(file, error), error);
  }
  const named = Object.keys(module);
  const found = named.length > 0 ? `only named exports: ${named.slice(0, 10).join(', ')}` : 'no exports at all';
  throw bad(file, `It has no default export; found ${found}. Write \`${example}\`.`);
}

function parseJson(file: string): unknown {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').replace(/^\uFEFF/, '');
  } catch (error) {
    throw bad(file, (error as Error).message, error);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    // V8 quotes the text around the error, which may contain a password: keep only the first clause.
    const what = (error as Error).message.replace(/(,? (\.\.\.)?"| in JSON at| is not valid)[\s\S]*$/, '');
    throw new PostcommitError('POSTCOMMIT_E_BAD_CONFIG', `${file}:${jsonErrorLine(text)}: ${what}.`);
  }
}

/** What went wrong in a module, with the line where that is known. */
function whatFailed(file: string, error: unknown): string {
  if (!(error instanceof Error)) return `It threw ${kindOf(error)}.`;
  const parse = /^ParseError: (.*?)\s*\n\s*(.+):(\d+):(\d+)$/s.exec(error.message);
  if (parse) {
    const [, what = '', where = file, line, column] = parse;
    return `Syntax error at ${where === file ? `line ${line}` : `${where}:${line}`}, column ${column}: ${sentence(what)}`;
  }
  const at = error.stack?.split(`${file}:`)[1]?.match(/^\d+/)?.[0];
  const name = error.name === 'Error' ? '' : `${error.name}: `;
  return `It failed${at ? ` at line ${at}` : ''}: ${name}${sentence(error.message.split('\n')[0] ?? '')}`;
}

/** Ends with one full stop, whether or not the text has one. */
function sentence(text: string): string {
  return `${text.trim().replace(/\.+$/, '')}.`;
}

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

function bad(file: string, detail: string, cause?: unknown): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_CONFIG', `${basename(file)}: ${detail} (${file})`, { cause });
}
