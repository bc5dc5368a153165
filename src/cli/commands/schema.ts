import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { Option } from 'commander';
import { PostcommitError } from '../../errors.ts';
import { quantity } from '../../format.ts';
import type { RegistryComparison } from '../../schema/check-registry.ts';
import { checkRegistry } from '../../schema/check-registry.ts';
import type { FileComparison } from '../../schema/compare-files.ts';
import { compareFiles } from '../../schema/compare-files.ts';
import type { CompatibilityMode } from '../../schema/compatibility/compare-schemas.ts';
import { compatibilityModes } from '../../schema/compatibility/compare-schemas.ts';
import { SchemaRegistry } from '../../schema/registry.ts';
import type { SchemaFile } from '../../schema/schema-file.ts';
import { parseSchemaFile, renderSchemaFile, schemaFileName } from '../../schema/schema-file.ts';
import { isSubjectPattern, subjectPatternDefault } from '../../schema/subject-name.ts';
import { readCatalogue } from '../catalogue.ts';
import type { Context } from '../context.ts';
import { contextOf, examples } from '../context.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import type { Output } from '../output.ts';
import { printable } from '../output.ts';
import type { Terminal } from '../terminal.ts';
import { addDocs, addTypes } from './schema-output.ts';

interface CheckFlags {
  mode: CompatibilityMode;
  update?: boolean;
  strict?: boolean;
  against?: string;
  registry?: string;
  subject: string;
}

export function addSchema(program: Command, terminal: Terminal): void {
  const schema = program
    .command('schema')
    .summary('check the schemas of events, and print types and pages of them')
    .description('Work with the schemas of the events in the config file. Needs no database.')
    .addHelpText(
      'after',
      examples(
        ['does a change break consumers?', 'schema check'],
        ['TypeScript types for consumers', 'schema types --out events.d.ts'],
        ['an AsyncAPI document and a page per event', 'schema docs --out docs/events'],
      ),
    );
  addCheck(schema, terminal);
  addTypes(schema, terminal);
  addDocs(schema, terminal);
}

function addCheck(schema: Command, terminal: Terminal): void {
  schema
    .command('check')
    .summary('fail if a change of an event schema breaks consumers')
    .description(
      `Compare the events of the config file with ${schemaFileName}, beside the config file, and print every change that breaks consumers. Exit code 1 if there is one. Mode backward: consumers with the new schema must be able to read old events (upgrade consumers first). forward: consumers with the old schema must be able to read new events (upgrade emitters first). full: both.`,
    )
    .addOption(new Option('--mode <mode>', 'what must hold').choices(compatibilityModes).default('full'))
    .option('--update', `accept all changes: write ${schemaFileName}`)
    .option('--strict', `exit code 1 also if ${schemaFileName} lacks a change that breaks nothing`)
    .option(
      '--against <file>',
      `compare with this file instead of ${schemaFileName}, e.g. with that of the main branch`,
    )
    .option(
      '--registry <url>',
      'also ask a registry with the API of Confluent Schema Registry; with --update, register the schemas',
    )
    .addOption(
      new Option('--subject <pattern>', 'the subject of a schema in the registry').default(subjectPatternDefault),
    )
    .addHelpText(
      'after',
      examples(
        ['does a change break consumers?', 'schema check'],
        ['would the registry accept the schemas?', 'schema check --registry http://localhost:8081'],
        [
          'the same, for the subjects of a topic',
          "schema check --registry http://localhost:8081 --subject 'orders-{type}'",
        ],
        ['record the schemas, and accept every change', 'schema check --update'],
        ['in CI, where the file must be up to date', 'schema check --strict'],
        ['what breaks, for a script', "schema check --json | jq '.breaking[] | {type, path, message}'"],
      ),
    )
    .action(async (flags: CheckFlags, command: Command) => {
      await check(contextOf(command, terminal), flags);
    });
}

async function check(context: Context, flags: CheckFlags): Promise<void> {
  const { mode, update, strict, against, registry: url, subject } = flags;
  if (update && against !== undefined) {
    throw new PostcommitError('POSTCOMMIT_E_USAGE', '--update and --against exclude each other.');
  }
  const { output, terminal } = context;
  const client = url === undefined ? undefined : new SchemaRegistry(url);
  const { file: config, schemas } = await readCatalogue(context);
  requireSubject(subject, Object.keys(schemas.events).length);
  const own = join(dirname(config), schemaFileName);
  const file = against === undefined ? own : resolve(terminal.cwd, against);
  const recorded = readRecorded(file, update === true);
  const comparison = compareFiles(recorded, schemas, mode);
  // First: where the registry is down or refuses a schema, nothing is written.
  const registry = client && (await checkRegistry(client, schemas, { register: update === true, subject }));
  const isRefused = registry !== undefined && registry.refused.length > 0;
  const isUpdated = update === true && !isRefused;
  if (isUpdated) writeFileSync(own, renderSchemaFile(schemas));
  const isBroken = !update && comparison.breaking.length > 0;
  const isStale = !update && against === undefined && !comparison.upToDate;
  output.show({ mode, file, updated: isUpdated, ...comparison, ...(registry && { registry }) }, () => {
    if (registry) printRegistry(output, registry);
    if (!(update && isRefused)) print(output, comparison, { file, isUpdated, isStale });
  });
  const isMissing = !update && registry !== undefined && registry.missing.length > 0;
  if (isBroken || isRefused || (strict && (isStale || isMissing))) throw new ExitWith(exitCodes.failed);
}

function requireSubject(pattern: string, types: number): void {
  if (!isSubjectPattern(pattern, ['{type}'])) {
    const detail =
      "--subject must be a text in which {type} stands for the event type. For {topic}, write the topic's name.";
    throw new PostcommitError('POSTCOMMIT_E_USAGE', detail);
  }
  if (types > 1 && !pattern.includes('{type}')) {
    const detail = `The ${types} event types would share the subject ${pattern}. Add {type} to --subject.`;
    throw new PostcommitError('POSTCOMMIT_E_USAGE', detail);
  }
}

function readRecorded(file: string, isOptional: boolean): SchemaFile {
  if (existsSync(file)) return parseSchemaFile(readFileSync(file, 'utf8').replace(/^\uFEFF/, ''), file);
  if (isOptional) return { events: {} };
  throw new PostcommitError('POSTCOMMIT_E_NO_SCHEMA_FILE', `There is no ${file}.`);
}

function printRegistry(output: Output, { url, refused, missing, registered }: RegistryComparison): void {
  const { paint } = output;
  for (const { type, messages } of refused) {
    const reason = messages.length > 0 ? `: ${messages.map(printable).join('; ')}` : '';
    output.line(
      `${paint.red('refused')}  ${paint.bold(printable(type))}: incompatible with its latest version in the registry${reason}`,
    );
  }
  for (const type of registered) output.line(`${paint.green('registered')}  ${printable(type)}`);
  for (const type of missing) output.line(`${paint.green('not registered')}  ${printable(type)}`);
  if (refused.length > 0) output.line(paint.red(`${url} refuses ${quantity(refused.length, 'schema')}.`));
}

function print(
  output: Output,
  { breaking, added, changed }: FileComparison,
  { file, isUpdated, isStale }: { file: string; isUpdated: boolean; isStale: boolean },
): void {
  const { paint } = output;
  for (const { type, path, message } of breaking) {
    const word = isUpdated ? paint.yellow('accepted') : paint.red('breaking');
    output.line(`${word}  ${paint.bold(printable(type))}: ${path ? `${printable(path)}: ` : ''}${printable(message)}`);
  }
  for (const type of added) output.line(`${paint.green('new')}  ${printable(type)}`);
  for (const type of changed) {
    if (!breaking.some((each) => each.type === type)) output.line(`${paint.green('compatible')}  ${printable(type)}`);
  }
  if (isUpdated) {
    output.line(`${paint.green('wrote')} ${file}`);
  } else if (breaking.length > 0) {
    output.line();
    output.line(paint.red(`${quantity(breaking.length, 'change')} would break consumers.`));
    output.line('Make the change compatible, or raise the version with an upcast and upgrade the consumers first,');
    output.line(output.repeatFlags('then accept it: npx postcommit schema check --update'));
  } else {
    output.line(paint.green('no change breaks consumers'));
    if (isStale)
      output.line(
        `${schemaFileName} is out of date. ${output.repeatFlags('Record the changes: npx postcommit schema check --update')}`,
      );
  }
}
