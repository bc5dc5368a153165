import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { quantity } from '../../format.ts';
import type { DocumentedService } from '../../schema/async-api.ts';
import { renderAsyncApi } from '../../schema/async-api.ts';
import { pageMark, renderPages } from '../../schema/markdown-pages.ts';
import { renderTypes } from '../../schema/typescript-types.ts';
import { readCatalogue } from '../catalogue.ts';
import type { Context } from '../context.ts';
import { contextOf, examples } from '../context.ts';
import type { Terminal } from '../terminal.ts';

export function addTypes(schema: Command, terminal: Terminal): void {
  schema
    .command('types')
    .summary('print TypeScript types of the payloads')
    .description(
      'Print TypeScript types of the payloads, for consumers that do not share the code: one type per event, and EventPayloads, which has them by event type.',
    )
    .option('--out <file>', 'write this file instead')
    .addHelpText('after', examples(['write the types', 'schema types --out events.d.ts']))
    .action(async (flags: { out?: string }, command: Command) => {
      await types(contextOf(command, terminal), flags);
    });
}

async function types(context: Context, { out }: { out?: string }): Promise<void> {
  const { output, terminal } = context;
  const { schemas } = await readCatalogue(context);
  const text = renderTypes(schemas);
  const file = out === undefined ? undefined : resolve(terminal.cwd, out);
  if (file !== undefined) write(file, text);
  const names = Object.keys(schemas.events).sort();
  output.show(file === undefined ? { types: names, text } : { types: names, file }, () => {
    if (file === undefined) output.line(text.trimEnd());
    else output.line(`${output.paint.green('wrote')} ${file}: ${quantity(names.length, 'event type')}`);
  });
}

export function addDocs(schema: Command, terminal: Terminal): void {
  schema
    .command('docs')
    .summary('print an AsyncAPI document of the events, or write it with a page per event')
    .description(
      'Print an AsyncAPI 3.0 document of the events. With --out: write it as asyncapi.json into a folder, with a Markdown page per event and an index (README.md), and remove generated pages of events that are gone. The title and version are those of the package.json beside the config file.',
    )
    .option('--out <dir>', 'write asyncapi.json and the pages into this folder')
    .option('--title <text>', 'the name of the service. Default: that of package.json')
    .addHelpText('after', examples(['write the pages', 'schema docs --out docs/events']))
    .action(async (flags: DocsFlags, command: Command) => {
      await docs(contextOf(command, terminal), flags);
    });
}

interface DocsFlags {
  out?: string;
  title?: string;
}

async function docs(context: Context, { out, title }: DocsFlags): Promise<void> {
  const { output, terminal } = context;
  const { file, schemas } = await readCatalogue(context);
  const described = packageBeside(file);
  const service = { ...described, ...(title !== undefined && { title }) };
  const asyncApi = renderAsyncApi(schemas, service);
  if (out === undefined) {
    output.show(asyncApi, () => output.line(JSON.stringify(asyncApi, null, 2)));
    return;
  }
  const folder = resolve(terminal.cwd, out);
  const pages = renderPages(schemas, service);
  const removed = generatedPages(folder).filter((name) => !pages.has(name));
  write(join(folder, 'asyncapi.json'), `${JSON.stringify(asyncApi, null, 2)}\n`);
  for (const [name, text] of pages) write(join(folder, name), text);
  for (const name of removed) rmSync(join(folder, name));
  const written = ['asyncapi.json', ...pages.keys()].sort();
  output.show({ folder, written, removed }, () => {
    output.line(`${output.paint.green('wrote')} ${folder}: ${quantity(written.length, 'file')}`);
    for (const name of removed) output.line(`${output.paint.yellow('removed')} ${name}`);
  });
}

function packageBeside(config: string): DocumentedService {
  const file = join(dirname(config), 'package.json');
  let found: { name?: unknown; version?: unknown } | null = null;
  try {
    found = JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    // No package.json, or one that npm would refuse: the document has a title and version all the same.
  }
  const text = (value: unknown, otherwise: string) => (typeof value === 'string' && value !== '' ? value : otherwise);
  return { title: text(found?.name, 'Events'), version: text(found?.version, '0.0.0') };
}

function generatedPages(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const isGenerated = (name: string) => readFileSync(join(folder, name), 'utf8').startsWith(pageMark);
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.md') && isGenerated(entry.name))
    .map(({ name }) => name);
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
